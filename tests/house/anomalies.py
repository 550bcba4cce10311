"""Makes docs/anomalies.md from what the checkers declare: `python -m tests.house.anomalies`."""

from __future__ import annotations

from pathlib import Path

from analysis.checking import Checker
from analysis.core.anomalies import CHECKERS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "anomalies.md"
INTRODUCTION = """# What the analysis can find

Made by `python -m tests.house.anomalies` from what the files in `analysis/checkers/` declare; a test fails when this
page is out of date. A campaign's cell names an anomaly in `expect`; reports show it with its class.
"""


def page() -> str:
    """The page as it should be."""
    return INTRODUCTION + "".join(_section(checker) for checker in CHECKERS)


def _section(checker: Checker) -> str:
    judged = "every run" if checker.judge is None else f'runs whose workload says `judge = "{checker.judge}"`'
    where = f"`analysis/checkers/{checker.check.__module__.rpartition('.')[2]}.py`"
    lines = ["", f"## {checker.name}", checker.question, f"It applies to {judged}: {where}.", ""]
    if not checker.anomalies:
        return "\n".join([*lines, "It names no anomaly: what it misses makes a run *unknown*."]) + "\n"
    guards = any(kind.guards for kind in checker.anomalies)
    columns = ["anomaly", "class", "the promise", "what was found", *(["rules"] if guards else [])]
    lines += [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for kind in checker.anomalies:
        rules = [", ".join(kind.guards)] if guards else []
        lines.append(f"| {' | '.join([f'`{kind.name}`', kind.breaks.code, kind.breaks.text, kind.meaning, *rules])} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

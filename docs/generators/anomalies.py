"""Writes docs/anomalies.md from the checkers' declarations: `python -m docs.generators.anomalies`."""

from collections.abc import Sequence
from pathlib import Path

from analysis.checker import Checker
from analysis.checker_registry import CHECKERS
from analysis.doubt import COMMON, Reason

PAGE = Path(__file__).resolve().parents[2] / "docs" / "anomalies.md"
INTRODUCTION = """# Anomalies and reasons for *unknown*

Made by `python -m docs.generators.anomalies` from the declarations in `analysis/checkers/`. A test fails if this page
is out of date. A campaign's cell names an anomaly, or codes of reasons for *unknown*, in `expect`
([campaigns](campaigns.md)). Reports show an anomaly with its class. A class marked * stands alone: the breach of
another promise never causes it, and a cell that expects an anomaly of another class does not tolerate it.
"""


def page() -> str:
    """The page as it should be."""
    common = ["", "## All checkers, and the analysis", *_reasons(COMMON)]
    return INTRODUCTION + "".join(_section(checker) for checker in CHECKERS) + "\n".join(common) + "\n"


def _section(checker: Checker) -> str:
    judged = "every run" if checker.judge is None else f'runs whose workload has `judge = "{checker.judge}"`'
    where = f"`analysis/checkers/{checker.check.__module__.rpartition('.')[2]}.py`"
    lines = ["", f"## {checker.name.capitalize()}", checker.question, f"It applies to {judged}: {where}.", ""]
    if not checker.anomalies:
        lines.append("It reports no anomaly: missing evidence makes a run *unknown*.")
        return "\n".join(lines + _reasons(checker.reasons)) + "\n"
    guards = any(kind.guards for kind in checker.anomalies)
    columns = ["anomaly", "class", "promise", "meaning", *(["rules"] if guards else [])]
    lines += [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for kind in checker.anomalies:
        rules = [", ".join(kind.guards)] if guards else []
        klass = kind.breaks.code + (" *" if kind.breaks.stands_alone else "")
        lines.append(f"| {' | '.join([f'`{kind.name}`', klass, kind.breaks.text, kind.meaning, *rules])} |")
    return "\n".join(lines + _reasons(checker.reasons)) + "\n"


def _reasons(reasons: Sequence[Reason]) -> list[str]:
    """The table of reasons for *unknown*, as lines."""
    rows = [f"| `{reason.code}` | {reason.meaning} |" for reason in reasons]
    return ["", "| reason for *unknown* | meaning |", "|---|---|", *rows]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

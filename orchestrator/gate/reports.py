"""Writes a campaign's documents: summary.json, report.html and junit.xml, with the gate's decision.

Build servers gate a release on `junit.xml`. Its form satisfies all common JUnit schemas: every attribute that one of
them needs, children in their order.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

from analysis.verdict import PASS, UNKNOWN, besides, first_reasons
from history.regular_files import replace_text
from installation.counted import counted
from installation.sanitize import shortened, visible, visible_line
from orchestrator.gate.decision import GateResult
from orchestrator.gate.policy_checks import mutation_score

_MOST_TEXT: Final = 20_000
_MOST_LINE: Final = 500
_DECLARATION: Final = "<?xml version='1.0' encoding='utf-8'?>\n"
_NO_TIME: Final = "1970-01-01T00:00:00"
_TAGS: Final = {PASS: "", UNKNOWN: "error"}  # anything else is a failure


@dataclass(frozen=True)
class _Case:
    """`tag`: failure, error, or empty for a success. `text`: the whole reason, for people."""

    classname: str
    name: str
    time_s: float
    tag: str
    message: str
    text: str


def write_junit(campaign_dir: Path, summary: Mapping[str, Any]) -> Path:
    """Write one test case for each planned run (executed or not), each demand of the policy, and each unknown of the
    plan. An unmet expectation is a failure; what could not be decided is an error. The suite has neither exactly when
    the gate passes. `summary`: the content of summary.json."""
    cases = list(_cases(summary))
    tags = [case.tag for case in cases]
    suite = ElementTree.Element(
        "testsuite",
        name=visible_line(str(summary["campaign"])),
        timestamp=_began(summary),
        hostname="localhost",
        tests=str(len(cases)),
        failures=str(tags.count("failure")),
        errors=str(tags.count("error")),
        skipped="0",
        time=f"{sum(case.time_s for case in cases):.3f}",
    )
    ElementTree.SubElement(suite, "properties")
    for case in cases:
        _add(suite, case)
    text = "\n".join(f"{case.name}: {case.text}" for case in cases if case.text and not case.tag)
    ElementTree.SubElement(suite, "system-out").text = _text(text)
    ElementTree.SubElement(suite, "system-err").text = ""
    target = campaign_dir / "junit.xml"
    replace_text(target, _DECLARATION + ElementTree.tostring(suite, encoding="unicode"))
    return target


def _cases(summary: Mapping[str, Any]) -> Iterator[_Case]:
    campaign, excused = str(summary["campaign"]), summary.get("signatures", {}).get("excused", {})
    for run in summary["runs"]:
        text = "\n".join(run["reasons"])
        is_excused = run["run"] in excused
        # An excused failure does not excuse other missing results.
        judged = UNKNOWN if is_excused and besides(run["reasons"]) else run["verdict"]
        is_fine = run["met"] or (is_excused and judged != UNKNOWN)
        yield _Case(
            classname=f"{campaign}.{run['cell'] or 'run'}",
            name=f"{run['cell'] or '?'} seed {run['seed']} expects {run['expected']} ({run['run']})",
            time_s=run["duration_s"],
            tag="" if is_fine else _TAGS.get(judged, "failure") or "failure",
            message=f"{run['verdict']}, expected {run['expected']}: {(run['reasons'] or [''])[0]}",
            text=f"{text}\nreplay: {run['replay']}" if run.get("replay") and text else text,
        )
    for doubt in summary.get("doubts", ()):
        yield _Case(f"{campaign}.gate", f"the plan: {doubt}", 0.0, "error", doubt, doubt)
    for finding in summary.get("findings", ()):
        tag, sentence = _TAGS.get(finding["verdict"], "failure"), finding["sentence"]
        yield _Case(f"{campaign}.gate", f"{finding['demand']}: {sentence}", 0.0, tag, sentence, sentence)
    if not summary["runs"]:
        yield _Case(
            f"{campaign}.gate", "the runs", 0.0, "error", "the campaign has no runs", "the campaign has no runs"
        )


def _add(suite: ElementTree.Element, case: _Case) -> None:
    element = ElementTree.SubElement(
        suite, "testcase", classname=_line(case.classname), name=_line(case.name), time=f"{case.time_s:.3f}"
    )
    if case.tag:
        problem = ElementTree.SubElement(element, case.tag, type="brownout", message=_line(case.message))
        problem.text = _text(case.text)


def _began(summary: Mapping[str, Any]) -> str:
    """When the first run started, in UTC and without a zone, as the schema requires."""
    for started in sorted(run.get("started", "") for run in summary["runs"]):
        try:
            return datetime.fromisoformat(started).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")
        except ValueError:
            continue
    return _NO_TIME


def _line(text: str) -> str:
    return visible_line(shortened(text, _MOST_LINE))


def _text(text: str) -> str:
    return visible(shortened(text, _MOST_TEXT))


def write_documents(result: GateResult) -> Path:
    """Write them into the campaign's directory; returns the report's path. Raises `OSError`."""
    from analysis.report import render_campaign

    summary = result.to_json()
    replace_text(result.directory / "summary.json", json.dumps(summary, indent=1) + "\n")
    write_junit(result.directory, summary)
    return render_campaign(result.directory, summary)


# ---- The gate's decision as Markdown, for the summary page of a CI job.

_MARKS = {"pass": "✅", "fail": "❌", "unknown": "❓"}
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~<>&])")
_MOST_ROWS = 200
_MOST_OF_A_TEXT = 600


def in_markdown(result: GateResult) -> str:
    """A heading, the decision, tables of the runs and of the policy, and the versions that the runs were made with."""
    decision = result.decision
    lines = [
        f"## {_MARKS[decision.verdict]} {escaped(result.directory.name)}: {decision.verdict}",
        "",
        escaped(decision.reason, 4 * _MOST_OF_A_TEXT),
        "",
        *_runs(result),
        *_policy(result),
        *_made_with(result),
    ]
    return "\n".join(lines) + "\n"


def _runs(result: GateResult) -> list[str]:
    if not result.entries:
        return []
    rows = [
        (
            _MARKS["pass" if entry.met else "unknown" if entry.verdict == "unknown" else "fail"],
            entry.cell,
            str(entry.seed),
            entry.verdict,
            entry.expected + ("" if entry.met else " (not met)"),
            ", ".join(entry.anomalies),
            f"{entry.faults_confirmed}/{entry.faults}",
            "" if entry.met else "; ".join(first_reasons(entry.reasons, 3)),
            entry.run,
        )
        for entry in sorted(result.entries, key=lambda entry: entry.met)  # runs that missed their expectation first
    ]
    heads = ("", "cell", "seed", "verdict", "expected", "anomalies", "faults confirmed", "why", "run")
    left_out = [f"... and {counted(len(rows) - _MOST_ROWS, 'more run')}.", ""] if len(rows) > _MOST_ROWS else []
    return [*table(heads, rows[:_MOST_ROWS]), *left_out]


def _policy(result: GateResult) -> list[str]:
    report = result.report
    if report is None and not result.findings:
        return []
    lines = ["### Policy" if report else "### Failures", ""]
    if result.findings:
        rows = [(_MARKS[finding.verdict], finding.demand, finding.sentence) for finding in result.findings]
        lines += table(("", "demand", "result"), rows)
    if report is None:
        return [*lines, ""]
    signatures = report.signatures
    for title, members in (
        ("New", list(map(str, signatures.new))),
        ("In the baseline too", list(map(str, signatures.unresolved))),
        ("Known", [f"{each} until {known.expires}: {known.reason}" for each, known in signatures.known.items()]),
        ("Resolved", list(signatures.resolved)),
    ):
        lines += [f"- {title}: {escaped('; '.join(members))}"] if members else []
    return [*lines, ""]


def _made_with(result: GateResult) -> list[str]:
    killed, mutated = mutation_score(result.entries)
    versions = ", ".join(f"{name} {' and '.join(found)}" for name, found in result.versions.items())
    lines = [
        f"- Worlds: {escaped(', '.join(result.worlds) or 'unknown')}",
        f"- Invocations: {escaped(', '.join(result.invocations) or 'none')}",
        *([f"- Superseded: {escaped(', '.join(result.superseded))}"] if result.superseded else []),
        *([f"- Mutants: killed as expected: {killed} of {counted(mutated, 'cell')} with mutants"] if mutated else []),
        *(f"- Limit: {escaped(limit)}" for limit in result.limits),
        f"- Versions: {escaped(versions or 'unknown')}",
    ]
    return [*lines, ""]


def table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    lines = [heads, ("---",) * len(heads), *(tuple(map(escaped, row)) for row in rows)]
    return [*(f"| {' | '.join(cells)} |" for cells in lines), ""]


def escaped(text: str, most: int = _MOST_OF_A_TEXT) -> str:
    """On one line, escaped, so that Markdown shows it literally."""
    return _SPECIAL.sub(r"\\\1", visible_line(shortened(text, most)))

"""The gate's decision as Markdown, for the summary page of a CI job."""

import re
from collections.abc import Sequence

from analysis.verdict import first_reasons
from installation.counted import counted
from installation.sanitize import shortened, visible_line
from orchestrator.gate.decision import GateResult
from orchestrator.gate.policy_checks import mutation_score

_MARKS = {"pass": "✅", "fail": "❌", "unknown": "❓"}
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~<>&])")
_MOST_ROWS = 200
_MOST_TEXT = 600


def in_markdown(result: GateResult) -> str:
    """A heading, the decision, tables of the runs and of the policy, and the versions that the runs were made with."""
    decision = result.decision
    lines = [
        f"## {_MARKS[decision.verdict]} {escaped(result.directory.name)}: {decision.verdict}",
        "",
        escaped(decision.reason, 4 * _MOST_TEXT),
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


def escaped(text: str, most: int = _MOST_TEXT) -> str:
    """On one line, escaped, so that Markdown shows it literally."""
    return _SPECIAL.sub(r"\\\1", visible_line(shortened(text, most)))

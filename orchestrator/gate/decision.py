"""Decides over the planned runs of a campaign, each against its expectation.

A run that meets its expectation counts in favour, whatever its verdict: a mutant that was killed is as good as a pass.
A run with another verdict than expected makes the gate fail, and so does a cell with fewer failures than it expects
(`at_least`). A planned run that is missing, undecided or not
trustworthy makes it unknown. A policy may demand more.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from analysis.run_row import RunRow, to_json
from analysis.verdict import FAIL, PASS, UNKNOWN, besides
from installation.counted import counted
from orchestrator.campaign.plan import invocation_of
from orchestrator.errors import EXIT_OF_VERDICT
from orchestrator.gate.policy_checks import PolicyFinding, PolicyReport, check_policy, counted_failures
from orchestrator.gate.policy_file import Policy
from orchestrator.store.matrix import Matrix, read_matrix

_MOST_NAMED = 5


@dataclass(frozen=True)
class GateDecision:
    """`verdict`: pass, fail or unknown, over all runs; `reason`: one sentence."""

    verdict: str
    reason: str

    @property
    def exit_code(self) -> int:
        return EXIT_OF_VERDICT[self.verdict]


@dataclass(frozen=True)
class GateResult:
    """The decision over one campaign, or over one `run` of it, with its basis.

    `invocations`: stamps of the invocations that counted; `superseded`: stamps of those that a later one supersedes.
    `partial`: no invocation that counted is of the whole campaign. `failures`: the results of cells that expect a
    number of failures. `report`: the result of the policy, None without one; `policy`: its file."""

    directory: Path
    decision: GateDecision
    entries: tuple[RunRow, ...]
    doubts: tuple[str, ...]
    invocations: tuple[str, ...]
    superseded: tuple[str, ...] = ()
    partial: bool = False
    run: str | None = None
    policy: str = ""
    report: PolicyReport | None = None
    failures: tuple[PolicyFinding, ...] = ()

    @property
    def findings(self) -> tuple[PolicyFinding, ...]:
        return (*self.failures, *(() if self.report is None else self.report.findings))

    @property
    def worlds(self) -> tuple[str, ...]:
        return tuple(sorted({entry.world for entry in self.entries if entry.world}))

    @property
    def limits(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(limit for entry in self.entries for limit in entry.limits))

    @property
    def versions(self) -> dict[str, list[str]]:
        """By name: the distinct versions that the runs were made with."""
        anomalies: dict[str, set[str]] = {}
        for entry in self.entries:
            for name, version in entry.versions.items():
                anomalies.setdefault(name, set()).add(version)
        return {name: sorted(versions) for name, versions in sorted(anomalies.items())}

    def to_json(self) -> dict[str, Any]:
        """The content of `gate --json` and of summary.json."""
        content = {
            "campaign": self.directory.name,
            "verdict": self.decision.verdict,
            "reason": self.decision.reason,
            "met": sum(entry.met for entry in self.entries),
            "invocations": list(self.invocations),
            "superseded": list(self.superseded),
            "whole": not self.partial,
            "doubts": list(self.doubts),
            "worlds": list(self.worlds),
            "limits": list(self.limits),
            "versions": self.versions,
            "policy": self.policy,
            "findings": [asdict(finding) for finding in self.findings],
            "signatures": {} if self.report is None else self.report.signatures.to_json(),
            "runs": to_json(self.entries),
        }
        return content | ({} if self.run is None else {"run": self.run})


def gate(
    campaign_dir: Path, *, invocations: Sequence[str] = (), run: str | None = None, policy: Policy | None = None
) -> GateResult:
    """Decide over a campaign's directory: over the invocations that count, or over the given stamps; or over one run,
    to which no policy applies. Writes nothing. Raises `UsageError` for a directory that cannot be read."""
    if run is not None:
        return _result(campaign_dir, read_matrix(campaign_dir, [invocation_of(run)], only=run), run=run)
    (result,) = gate_together({campaign_dir: invocations}, policy=policy)
    return result


def gate_together(campaigns: Mapping[Path, Sequence[str]], *, policy: Policy | None = None) -> list[GateResult]:
    """One decision over several campaigns: their directories, each with the stamps of its invocations, as of `gate`.
    Writes nothing. Raises `UsageError` for a directory that cannot be read."""
    matrices = {path: read_matrix(path, stamps) for path, stamps in campaigns.items()}
    covered = {path.name: matrix for path, matrix in matrices.items() if policy and policy.speaks_of(path.name)}
    reports = check_policy(policy, covered) if policy else {}
    return [_result(path, matrix, policy=policy, report=reports.get(path.name)) for path, matrix in matrices.items()]


def _result(
    campaign_dir: Path,
    matrix: Matrix,
    *,
    run: str | None = None,
    policy: Policy | None = None,
    report: PolicyReport | None = None,
) -> GateResult:
    failures = tuple(counted_failures(matrix.entries).values()) if run is None else ()
    findings, excused = ((), {}) if report is None else (report.findings, report.excused)
    return GateResult(
        directory=campaign_dir,
        decision=decide(matrix.entries, matrix.doubts, (*failures, *findings), excused),
        entries=matrix.entries,
        doubts=matrix.doubts,
        invocations=tuple(plan.stamp for plan in matrix.plans),
        superseded=matrix.superseded,
        partial=run is None and not any(plan.whole for plan in matrix.plans),
        run=run,
        policy="" if policy is None or report is None else str(policy.path),
        report=report,
        failures=failures,
    )


def decide(
    entries: Sequence[RunRow],
    doubts: Sequence[str] = (),
    findings: Sequence[PolicyFinding] = (),
    excused: Collection[str] = (),
) -> GateDecision:
    """The worst of the runs' results, of the doubts about the plan, and of the policy's findings. `excused`: runs whose
    failures are known and allowed. That excuses a proven failure, not missing evidence: a run that would be unknown
    without its failure makes the gate unknown."""
    unmet = [entry for entry in entries if not entry.met and entry.run not in excused]
    failed = [entry for entry in unmet if entry.verdict != UNKNOWN]
    against = [f"{_count(failed, entries)} did not meet their expectation: {_names(failed)}"] if failed else []
    against += [finding.sentence for finding in findings if finding.verdict == FAIL]
    if against:
        return GateDecision(FAIL, "; ".join(against))
    open_points = [f"{_count(unmet, entries)} undecided: {_names(unmet)}"] if unmet else []
    loose = [entry for entry in entries if entry.run in excused and besides(entry.reasons)]
    if loose:
        runs = ", ".join(f"{entry.run} ({besides(entry.reasons)[0]})" for entry in loose[:_MOST_NAMED]) + _more(loose)
        known = f"{_count(loose, entries)} failed as the policy allows"
        open_points.append(f"{known}, but are otherwise undecided: {runs}")
    open_points += doubts
    open_points += [finding.sentence for finding in findings if finding.verdict == UNKNOWN]
    if open_points or not entries:
        return GateDecision(UNKNOWN, "; ".join(open_points) or "no runs to decide over")
    if excused:
        allowed = f"{len(excused)} failed only as the policy allows: {', '.join(sorted(excused))}"
        return GateDecision(
            PASS, f"{len(entries) - len(excused)} of {counted(len(entries), 'run')} met the expectation; {allowed}"
        )
    return GateDecision(PASS, f"all {len(entries)} runs met their expectation" if len(entries) > 1 else "as expected")


def _count(chosen: Sequence[object], all_of_them: Sequence[object]) -> str:
    return f"{len(chosen)} of {len(all_of_them)} run{'s' if len(all_of_them) > 1 else ''}"


def _names(entries: Sequence[RunRow]) -> str:
    shown = []
    for entry in entries[:_MOST_NAMED]:
        reason = f": {entry.reasons[0]}" if entry.verdict == UNKNOWN and entry.reasons else ""
        shown.append(f"{entry.run} ({entry.verdict}, expected {entry.expected}{reason})")
    return ", ".join(shown) + _more(entries)


def _more(entries: Sequence[RunRow]) -> str:
    return f" and {len(entries) - _MOST_NAMED} more" if len(entries) > _MOST_NAMED else ""

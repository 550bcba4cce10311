"""The gate: do the runs that were planned, each against what was expected of it, let the change through?

A run that met its expectation counts for it, whatever the verdict: a mutant that was caught is as good as a pass. One
run that came to another verdict than expected closes the gate; a planned run that is missing, could not be judged, or
whose verdict cannot be believed leaves it undecided. Beyond that, a policy may ask for more.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from analysis.summary import RunSummary, to_json
from analysis.verdict import FAIL, PASS, UNKNOWN, besides
from orchestrator.campaign.matrix import Matrix, read_matrix
from orchestrator.campaign.plan import invocation_of
from orchestrator.campaign.policy_checks import PolicyFinding, PolicyReport, check_policy
from orchestrator.campaign.policy_file import Policy
from orchestrator.errors import EXIT_OF_VERDICT

_MOST_NAMED = 5


@dataclass(frozen=True)
class GateDecision:
    """`verdict`: pass, fail or unknown, over all runs; `reason` in a sentence."""

    verdict: str
    reason: str

    @property
    def exit_code(self) -> int:
        return EXIT_OF_VERDICT[self.verdict]


@dataclass(frozen=True)
class GateResult:
    """The decision over one campaign, or over one `run` of it, and all that it rests on.

    `invocations`, `superseded`: stamps of those that counted, and of those that a later one has taken the place of.
    `partial`: none of those that counted asked for the whole campaign. `report`: what the policy came to, None without
    one; `policy` is its file."""

    directory: Path
    decision: GateDecision
    entries: tuple[RunSummary, ...]
    doubts: tuple[str, ...]
    invocations: tuple[str, ...]
    superseded: tuple[str, ...] = ()
    partial: bool = False
    run: str | None = None
    policy: str = ""
    report: PolicyReport | None = None

    @property
    def findings(self) -> tuple[PolicyFinding, ...]:
        return () if self.report is None else self.report.findings

    @property
    def worlds(self) -> tuple[str, ...]:
        return tuple(sorted({entry.world for entry in self.entries if entry.world}))

    @property
    def limits(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(limit for entry in self.entries for limit in entry.limits))

    @property
    def versions(self) -> dict[str, list[str]]:
        """Of everything that runs were made with, each version once."""
        found: dict[str, set[str]] = {}
        for entry in self.entries:
            for name, version in entry.versions.items():
                found.setdefault(name, set()).add(version)
        return {name: sorted(versions) for name, versions in sorted(found.items())}

    def to_json(self) -> dict[str, Any]:
        """As `gate --json` prints it, and as summary.json keeps it."""
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
    """Decide over a campaign's directory: over the invocations that count, or those given by their stamps; or over one
    run, to which no policy applies. Writes nothing. Raises `UsageError` for a directory that cannot be read."""
    if run is not None:
        return _result(campaign_dir, read_matrix(campaign_dir, [invocation_of(run)], only=run), run=run)
    matrix = read_matrix(campaign_dir, invocations)
    report = (
        None
        if policy is None or not policy.speaks_of(campaign_dir.name)
        else check_policy(policy, campaign_dir.name, matrix)
    )
    return _result(campaign_dir, matrix, policy=policy, report=report)


def _result(
    campaign_dir: Path,
    matrix: Matrix,
    *,
    run: str | None = None,
    policy: Policy | None = None,
    report: PolicyReport | None = None,
) -> GateResult:
    findings, excused = ((), {}) if report is None else (report.findings, report.excused)
    return GateResult(
        directory=campaign_dir,
        decision=decide(matrix.entries, matrix.doubts, findings, excused),
        entries=matrix.entries,
        doubts=matrix.doubts,
        invocations=tuple(plan.stamp for plan in matrix.plans),
        superseded=matrix.superseded,
        partial=run is None and not any(plan.whole for plan in matrix.plans),
        run=run,
        policy="" if policy is None or report is None else str(policy.path),
        report=report,
    )


def decide(
    entries: Sequence[RunSummary],
    doubts: Sequence[str] = (),
    findings: Sequence[PolicyFinding] = (),
    excused: Collection[str] = (),
) -> GateDecision:
    """The gravest of what the runs came to, of what is not known of the plan, and of what the policy found. `excused`:
    runs whose failures are known and allowed for. That excuses what was proven, not what is missing: a run that would
    be undecided without its failure leaves the gate undecided with it."""
    unmet = [entry for entry in entries if not entry.met and entry.run not in excused]
    wrong = [entry for entry in unmet if entry.verdict != UNKNOWN]
    against = [f"{_count(wrong, entries)} did not come to what was expected: {_names(wrong)}"] if wrong else []
    against += [finding.sentence for finding in findings if finding.verdict == FAIL]
    if against:
        return GateDecision(FAIL, "; ".join(against))
    open_points = [f"{_count(unmet, entries)} could not be judged: {_names(unmet)}"] if unmet else []
    loose = [entry for entry in entries if entry.run in excused and besides(entry.reasons)]
    if loose:
        told = ", ".join(f"{entry.run} ({besides(entry.reasons)[0]})" for entry in loose[:_MOST_NAMED]) + _more(loose)
        known = f"{_count(loose, entries)} failed in ways that the policy knows"
        open_points.append(f"{known}, and more of it is undecided: {told}")
    open_points += doubts
    open_points += [finding.sentence for finding in findings if finding.verdict == UNKNOWN]
    if open_points or not entries:
        return GateDecision(UNKNOWN, "; ".join(open_points) or "there are no runs to decide over")
    if excused:
        told = f"{len(excused)} failed only in ways that the policy knows: {', '.join(sorted(excused))}"
        return GateDecision(
            PASS, f"{len(entries) - len(excused)} of {len(entries)} runs came to what was expected; {told}"
        )
    return GateDecision(
        PASS, f"all {len(entries)} runs came to what was expected" if len(entries) > 1 else "as expected"
    )


def _count(some: Sequence[object], all_of_them: Sequence[object]) -> str:
    return f"{len(some)} of {len(all_of_them)} run{'s' if len(all_of_them) > 1 else ''}"


def _names(entries: Sequence[RunSummary]) -> str:
    shown = []
    for entry in entries[:_MOST_NAMED]:
        why = f": {entry.reasons[0]}" if entry.verdict == UNKNOWN and entry.reasons else ""
        shown.append(f"{entry.run} ({entry.verdict}, expected {entry.expected}{why})")
    return ", ".join(shown) + _more(entries)


def _more(entries: Sequence[RunSummary]) -> str:
    return f" and {len(entries) - _MOST_NAMED} more" if len(entries) > _MOST_NAMED else ""

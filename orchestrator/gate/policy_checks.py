"""Evaluates a policy over a campaign's runs. A demand that cannot be decided is unknown, never met.

Classifies failures as new, known or resolved.

A signature is an anomaly of a system in a cell that must not have it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.run_row import RunRow, samples
from analysis.verdict import FAIL, PASS, UNKNOWN
from history.time_scale import ORDINARY
from installation.counted import counted
from orchestrator.gate.policy_file import Baseline, KnownFailure, Policy
from orchestrator.store.figures import FIGURES, Figure, measurements, passes
from orchestrator.store.matrix import Matrix, read_matrix

if TYPE_CHECKING:
    from orchestrator.store.comparison import Comparison


@dataclass(frozen=True, order=True)
class Signature:
    anomaly: str
    system: str
    cell: str

    def __str__(self) -> str:
        return f"{self.anomaly} of {self.system or 'the system'} in cell {self.cell}"


@dataclass(frozen=True)
class Signatures:
    """`new`: neither listed nor in the baseline. `unresolved`: also in the baseline. `known`: listed, with the entry of
    the list; `expired`: listed, but the entry has expired. `resolved`: in the baseline or listed, and not seen now.
    `excused`: by run, why its failure is allowed."""

    new: tuple[Signature, ...]
    unresolved: tuple[Signature, ...]
    known: Mapping[Signature, KnownFailure]
    expired: Mapping[Signature, KnownFailure]
    resolved: tuple[str, ...]
    excused: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        return {
            "new": list(map(str, self.new)),
            "unresolved": list(map(str, self.unresolved)),
            "known": {str(signature): failure.reason for signature, failure in self.known.items()},
            "expired": {str(signature): failure.reason for signature, failure in self.expired.items()},
            "resolved": list(self.resolved),
            "excused": dict(self.excused),
        }


def signatures_of(
    entries: Sequence[RunRow], baseline: Sequence[RunRow] | None, listed: Sequence[KnownFailure], today: date
) -> Signatures:
    """Compare the failures with a baseline, if there is one, and with the list of known failures."""
    by_run = {entry.run: _of(entry) for entry in entries}
    believed = {entry.run for entry in entries if not entry.doubts}
    seen = sorted({signature for found in by_run.values() for signature in found})
    before = {signature for entry in baseline or () for signature in _of(entry)}
    by_end = sorted(listed, key=lambda known: known.expires)  # of several matching entries the last to expire applies
    fitting = {each: known for each in seen for known in by_end if known.fits(each.anomaly, each.system, each.cell)}
    known = {each: entry for each, entry in fitting.items() if entry.expires >= today}
    excused = {
        run: "; ".join(sorted({known[each].reason for each in found}))
        for run, found in by_run.items()
        if found and run in believed and all(each in known for each in found)
    }
    unseen = [str(each) for each in sorted(before - set(seen))]
    unseen += [
        f"{known.anomaly} (listed: {known.reason})"
        for known in listed
        if not any(known.fits(each.anomaly, each.system, each.cell) for each in seen)
    ]
    return Signatures(
        new=tuple(each for each in seen if each not in fitting and each not in before),
        unresolved=tuple(each for each in seen if each not in fitting and each in before),
        known=known,
        expired={each: entry for each, entry in fitting.items() if each not in known},
        resolved=tuple(unseen),
        excused=excused,
    )


def _of(entry: RunRow) -> list[Signature]:
    """Of a run that failed and was not expected to. An anomaly beside the expected one of a mutant is the mutant's
    own."""
    if entry.verdict != FAIL or entry.expected.startswith(FAIL):
        return []
    return [Signature(anomaly, entry.system, entry.cell) for anomaly in entry.anomalies]


_MOST_NAMED = 5


@dataclass(frozen=True)
class PolicyFinding:
    """The result of one demand of the policy or of a cell: pass, fail or unknown, with a sentence."""

    demand: str
    verdict: str
    sentence: str


@dataclass(frozen=True)
class PolicyReport:
    """`excused`: by run, why its failure is allowed."""

    findings: tuple[PolicyFinding, ...]
    signatures: Signatures
    excused: Mapping[str, str]


def check_policy(policy: Policy, matrices: Mapping[str, Matrix], today: date | None = None) -> dict[str, PolicyReport]:
    """The reports on the campaigns of one decision, by name: the comparisons of all with the baseline are corrected
    together. Raises `UsageError` for a baseline that cannot be read. `today`: for expiry dates; default: now, in
    UTC."""
    then, against = dict[str, Matrix](), dict[str, list[PolicyFinding]]()
    if policy.baseline is not None:
        then = {name: _baseline_matrix(policy.baseline, name) for name in matrices}
        compared = [_against(policy.baseline, then[name], name, matrix.entries) for name, matrix in matrices.items()]
        against = dict(zip(matrices, _decided(policy.baseline, compared), strict=True))
    reports = dict[str, PolicyReport]()
    for name, matrix in matrices.items():
        entries = matrix.entries
        baseline = then[name].entries if name in then else None
        signatures = signatures_of(entries, baseline, policy.known, today or datetime.now(UTC).date())
        findings = [
            *_worlds(policy, entries),
            *_faults(policy, entries),
            *_seeds(policy, entries),
            *_clean_build(policy, entries),
            *_mutation_score(policy, entries),
            *_budgets(policy, entries),
            *against.get(name, ()),
            *_signatures(signatures),
        ]
        reports[name] = PolicyReport(tuple(findings), signatures, signatures.excused)
    return reports


def counted_failures(entries: Sequence[RunRow]) -> dict[str, PolicyFinding]:
    """By cell that expects a number of failures (`at_least`): whether that number of its runs failed as expected.

    Undecided runs might have failed. Too few runs cannot violate the expectation either: both are unknown."""
    needed = {entry.cell: entry.at_least for entry in entries if entry.at_least}
    findings = dict[str, PolicyFinding]()
    for cell, minimum in sorted(needed.items()):
        runs = [entry for entry in entries if entry.cell == cell]
        failed = sum(entry.met and entry.verdict == FAIL for entry in runs)
        undecided = sum(entry.verdict == UNKNOWN for entry in runs)
        is_possible = failed + undecided >= minimum or len(runs) < minimum
        verdict = PASS if failed >= minimum else UNKNOWN if is_possible else FAIL
        sentence = f"cell {cell}: {failed} of {counted(len(runs), 'run')} failed as expected, at least {minimum} must"
        remedy = "; make runs with more seeds" if verdict == UNKNOWN and len(runs) < minimum else ""
        findings[cell] = PolicyFinding("failures", verdict, sentence + remedy)
    return findings


def mutation_score(entries: Sequence[RunRow]) -> tuple[int, int]:
    """How many cells with mutants were killed as expected in each of their runs, and how many there are. Benign
    mutants, which are expected to pass, are not counted."""
    cells, short = _mutated_cells(entries), _cells_without_failures(entries, PASS)
    killed = [cell for cell in cells - short if all(entry.met for entry in entries if entry.cell == cell)]
    return len(killed), len(cells)


def _cells_without_failures(entries: Sequence[RunRow], *accepted: str) -> set[str]:
    """The cells whose number of failures has another result than those accepted."""
    return {cell for cell, finding in counted_failures(entries).items() if finding.verdict not in accepted}


def _mutated_cells(entries: Sequence[RunRow]) -> set[str]:
    return {entry.cell for entry in entries if entry.mutants and entry.expected.startswith(FAIL)}


def _worlds(policy: Policy, entries: Sequence[RunRow]) -> Iterator[PolicyFinding]:
    for world in policy.require.worlds:
        absent = sorted(
            {entry.cell for entry in entries} - {entry.cell for entry in entries if entry.world == world and entry.met}
        )
        absence = f"cells without a good run there: {', '.join(absent)}" if absent else "every cell was run there"
        yield PolicyFinding("world", UNKNOWN if absent or not entries else PASS, f"required world {world}: {absence}")


def _faults(policy: Policy, entries: Sequence[RunRow]) -> Iterator[PolicyFinding]:
    confirmed: Counter[str] = Counter()
    for entry in samples(entry for entry in entries if entry.verdict != UNKNOWN):
        confirmed.update(entry.confirmed)
    for kind, minimum in policy.require.faults.items():
        verdict = PASS if confirmed[kind] >= minimum else UNKNOWN
        yield PolicyFinding(
            "fault",
            verdict,
            f"required fault {kind}: confirmed {counted(confirmed[kind], 'time')}, required: {minimum}",
        )


def _seeds(policy: Policy, entries: Sequence[RunRow]) -> Iterator[PolicyFinding]:
    if policy.require.seeds is None:
        return
    judged = {
        cell: len({entry.seed for entry in entries if entry.cell == cell and entry.verdict != UNKNOWN})
        for cell in sorted({entry.cell for entry in entries})
    }
    few = [f"{cell} {count}" for cell, count in judged.items() if count < policy.require.seeds]
    judgement = f"too few were decided: {', '.join(few)}" if few else f"at least {min(judged.values(), default=0)}"
    yield PolicyFinding(
        "seeds",
        UNKNOWN if few or not judged else PASS,
        f"required seeds of each cell {policy.require.seeds}: {judgement}",
    )


def _clean_build(policy: Policy, entries: Sequence[RunRow]) -> Iterator[PolicyFinding]:
    if not policy.require.clean_build:
        return
    builds = sorted({entry.versions.get("brownout", "unknown") for entry in entries})
    unclean = [build for build in builds if not build or build == "unknown" or build.endswith("+changes")]
    makers = f"runs were made with {', '.join(unclean)}" if unclean else f"all runs were made with {', '.join(builds)}"
    if len(builds) > 1 and not unclean:
        makers = f"runs were made with different builds: {', '.join(builds)}"
    yield PolicyFinding("clean build", PASS if len(builds) == 1 and not unclean else UNKNOWN, f"clean build: {makers}")


def _mutation_score(policy: Policy, entries: Sequence[RunRow]) -> Iterator[PolicyFinding]:
    demanded = policy.require.mutation_score
    if demanded is None:
        return
    killed, cells = mutation_score(entries)
    if not cells:
        yield PolicyFinding(
            "mutation score",
            UNKNOWN,
            "mutation score: no cell has mutants that are expected to fail, so nothing shows that bugs are found",
        )
        return
    survived = {entry.cell for entry in entries if not entry.met and entry.verdict != UNKNOWN}
    escaped = (survived | _cells_without_failures(entries, PASS, UNKNOWN)) & _mutated_cells(entries)
    best = cells - len(escaped)  # if all undecided ones were killed
    verdict = PASS if killed / cells >= demanded else UNKNOWN if best / cells >= demanded else FAIL
    score = f"mutation score: {killed} of {counted(cells, 'cell')} with mutants killed as expected"
    undecided = f", {best - killed} undecided" if best > killed else ""
    yield PolicyFinding("mutation score", verdict, f"{score}{undecided}; {demanded:.0%} are required")


def _budgets(policy: Policy, entries: Sequence[RunRow]) -> Iterator[PolicyFinding]:
    for figure, limit, unit, subject in (
        ("latency_p50_ms", policy.budget.latency_p50_ms, "ms", "median latency"),
        ("latency_p99_ms", policy.budget.latency_p99_ms, "ms", "latency p99"),
        ("longest_outage_s", policy.budget.outage_s, "s", "longest outage"),
    ):
        if limit is not None:
            yield _budget(figure, limit, unit, subject, passes(entries))


def _budget(figure: str, limit: float, unit: str, subject: str, entries: Sequence[RunRow]) -> PolicyFinding:
    """Of one figure, over the runs that passed as expected. A limit is multiplied by the time scale of a run's world,
    as all bounds of time are."""
    over = [entry for entry in entries if entry.stats.get(figure, 0.0) > limit * entry.time_scale]
    unmeasured = [entry.run for entry in entries if figure not in entry.stats]
    if over:
        above = ", ".join(f"{entry.run} {entry.stats[figure]:g} {unit}{_scaled_limit(entry)}" for entry in over)
        return PolicyFinding("budget", FAIL, f"{subject}: over {limit:g} {unit} in {above}")
    if unmeasured or not entries:
        unmeasured_in = f"in {', '.join(unmeasured)}" if unmeasured else "in no run that passed"
        return PolicyFinding(
            "budget",
            UNKNOWN,
            f"{subject}: not measured {unmeasured_in}" if unmeasured else f"{subject}: measured {unmeasured_in}",
        )
    worst = max(entries, key=lambda entry: entry.stats[figure] / entry.time_scale)
    measured = f"{worst.stats[figure]:g} {unit} at most{_scaled_limit(worst)}, {limit:g} {unit} are allowed"
    return PolicyFinding("budget", PASS, f"{subject}: {measured}")


def _scaled_limit(entry: RunRow) -> str:
    return "" if entry.time_scale == ORDINARY else f" (with {entry.time_scale:g} times the limit)"


def _baseline_matrix(baseline: Baseline, campaign: str) -> Matrix:
    below = Path(baseline.path, campaign)
    return read_matrix(Path(below if below.is_dir() else baseline.path).resolve(), any_analysis=True)


@dataclass
class _Compared:
    """A campaign's figures against the baseline. `undecided`: those that cannot be compared; `comparisons`: the others,
    each with its name."""

    undecided: list[PolicyFinding] = field(default_factory=list)
    comparisons: list[tuple[str, Comparison]] = field(default_factory=list)

    def lacks(self, sentence: str) -> _Compared:
        """The same, with one that cannot be compared."""
        self.undecided.append(PolicyFinding("baseline", UNKNOWN, sentence))
        return self


def _against(baseline: Baseline, then: Matrix, campaign: str, now: Sequence[RunRow]) -> _Compared:
    """The comparison with a baseline, which must be of this campaign. The cells of a figure are one test, in which each
    run is only compared with runs of its cell."""
    from orchestrator.store.comparison import compare  # imports numpy, which nothing else here needs

    result = _Compared()
    if other_campaigns := sorted({plan.campaign for plan in then.plans} - {campaign}):
        problem = f"it is of the campaign {', '.join(other_campaigns)} and cannot be compared with {campaign}"
        return result.lacks(f"against {baseline.path}: {problem}")
    if shared_runs := sorted({entry.run for entry in then.entries} & {entry.run for entry in now}):
        runs = _first(shared_runs)
        problem = f"{len(shared_runs)} of its runs are the runs under test, which cannot be their own baseline: {runs}"
        return result.lacks(f"against {baseline.path}: {problem}")
    for figure in (figure for figure in FIGURES if figure.measure in baseline.measures):
        title = f"{figure.name} against {baseline.path}"
        value_of = partial(_positive, figure)
        passed = passes(now), passes(then.entries)
        if unmeasured := [entry.run for entries in passed for entry in entries if value_of(entry) is None]:
            result.lacks(f"{title}: not measured in {_first(unmeasured)}")
            continue
        after, before = (measurements(entries, value_of) for entries in passed)
        uncompared = sorted(after.keys() - before.keys())
        sides = {cell: (before[cell], after[cell]) for cell in sorted(before.keys() & after.keys())}
        if uncompared or not sides:
            text = f"the baseline has no runs of {', '.join(uncompared)}" if uncompared else "no runs to compare"
            result.lacks(f"{title}: {text}")
            continue
        result.comparisons.append((title, compare(sides, larger_is_worse=figure.larger_is_worse)))
    return result


def _decided(baseline: Baseline, campaigns: Sequence[_Compared]) -> Iterator[list[PolicyFinding]]:
    """The findings of each campaign. All comparisons are decided together."""
    from orchestrator.store.comparison import decide

    comparisons = [comparison for campaign in campaigns for _, comparison in campaign.comparisons]
    decisions = iter(decide(comparisons, baseline.alpha, baseline.effect))
    for campaign in campaigns:
        findings = list(campaign.undecided)
        for figure, _ in campaign.comparisons:
            decision = next(decisions)
            sentence = (
                f"{figure}: {abs(decision.change):.1%} {'worse' if decision.change > 0 else 'better'}, "
                f"p = {decision.p:.3g}, corrected for {counted(len(comparisons), 'comparison')} "
                f"(alpha {baseline.alpha:g}, {baseline.effect:.0%} worse is allowed)"
            )
            verdict = FAIL if decision.worse else PASS
            if decision.worse is None:
                verdict = UNKNOWN
                sentence += (
                    f"; so few runs cannot reach that alpha, their smallest p is {decision.least_p:.3g}: run more seeds"
                )
            findings.append(PolicyFinding("baseline", verdict, sentence))
        yield findings


def _positive(figure: Figure, entry: RunRow) -> float | None:
    """The figure of a run; None also for zero, which has no logarithm."""
    value = figure.of(entry)
    return value if value is not None and value > 0 else None


def _first(runs: Sequence[str]) -> str:
    unnamed = len(runs) - _MOST_NAMED
    return ", ".join(runs[:_MOST_NAMED]) + (f" and {unnamed} more" if unnamed > 0 else "")


def _signatures(signatures: Signatures) -> Iterator[PolicyFinding]:
    for signature in signatures.new:
        yield PolicyFinding("signature", FAIL, f"new: {signature}")
    for signature, failure in signatures.expired.items():
        yield PolicyFinding(
            "signature", FAIL, f"{signature} was known until {failure.expires}, which has passed: {failure.reason}"
        )
    for signature, failure in signatures.known.items():
        yield PolicyFinding("signature", PASS, f"known until {failure.expires}: {signature}: {failure.reason}")

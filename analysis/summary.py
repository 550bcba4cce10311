"""The summary of a run: one entry of its campaign's summary.json."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Final

import msgspec

from analysis.checkers.oracles import SIMULATION
from analysis.expectation import unmet
from analysis.stored_verdict import StoredVerdict
from analysis.verdict import PASS, UNKNOWN, Expectation
from history.time_scale import ORDINARY

Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""A document with a larger integer is damaged; tables have none."""
_FAULTS: Final = "faults"
"""The check that compares a run's faults with their evidence."""
_MOST: Final = 1e300  # a larger figure is not a measurement, and JSON readers may turn it into infinity


@dataclass(frozen=True)
class RunSummary:
    """What is believed about one planned run; summary.json has the fields' names as keys.

    `verdict`: unknown unless the stored one can be believed; a proven, unexpected failure remains a failure. `met`: it
    is what was `expected`. `doubts`: why the stored verdict cannot be believed; they are also in the `reasons`.
    `faults_confirmed`: the number of faults marked as confirmed; `confirmed`: the number for each kind, if the run's
    own check of its faults believes them all. `time_scale`: how many times longer everything took in its world than on
    this machine. `stats`: the verdict's numeric figures, under its names. `cause`: of a failure, in one sentence.
    `verdict_sha256`: the digest of the verdict.json that this is made from; empty without one.
    """

    run: str
    cell: str
    seed: Int64
    verdict: str
    expected: str
    met: bool
    reasons: tuple[str, ...]
    doubts: tuple[str, ...] = ()
    anomalies: tuple[str, ...] = ()
    faults: Int64 = 0
    faults_confirmed: Int64 = 0
    confirmed: Mapping[str, int] = field(default_factory=dict)
    acknowledged: Int64 = 0
    duration_s: float = 0.0
    world: str = ""
    time_scale: float = ORDINARY
    limits: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    system: str = ""
    mutants: tuple[str, ...] = ()
    started: str = ""
    stats: Mapping[str, float] = field(default_factory=dict)
    replay: str = ""
    cause: str = ""
    verdict_sha256: str = ""


@dataclass(frozen=True)
class Planned:
    """A planned run: its name, its cell and seed, the expectation, and the mutants of the cell."""

    run: str
    cell: str
    seed: int
    expected: Expectation
    mutants: tuple[str, ...] = ()


def entry(planned: Planned, standing: StoredVerdict, doubts: Sequence[str] = ()) -> RunSummary:
    """The summary of a run. `doubts`: reasons from outside of its directory why its verdict cannot be believed."""
    verdict, expected, all_doubts = standing.verdict, planned.expected, (*doubts, *standing.doubts)
    blank = RunSummary(
        planned.run,
        planned.cell,
        planned.seed,
        UNKNOWN,
        str(expected),
        met=False,
        reasons=all_doubts,
        doubts=all_doubts,
        system=standing.system,
        mutants=planned.mutants,
        started=standing.started,
        verdict_sha256=standing.digest,
    )
    if verdict is None:
        return blank
    why = unmet(expected, verdict)
    met = not why
    is_failure = standing.proves_failure and not met
    believed = verdict.verdict if is_failure or not all_doubts else UNKNOWN
    confirmed = Counter(str(fault.get("kind")) for fault in verdict.faults if fault.get("status") == "confirmed")
    are_believed = any(check.name == _FAULTS and check.verdict == PASS for check in verdict.checks)
    stats = figures(verdict.stats)
    causes = (*(why if verdict.verdict == expected.verdict else ()), *verdict.reasons)
    reasons = (*causes, *all_doubts) if is_failure else (*all_doubts, *causes)
    return replace(
        blank,
        verdict=believed,
        met=met and not all_doubts,
        reasons=tuple(dict.fromkeys(reasons)),
        cause=verdict.cause,
        anomalies=tuple(sorted({anomaly.name for anomaly in verdict.anomalies})),
        faults=len(verdict.faults),
        faults_confirmed=confirmed.total(),
        confirmed=dict(sorted(confirmed.items())) if are_believed else {},
        acknowledged=int(stats.get("acknowledged", 0)),
        duration_s=float(stats.get("duration_s", 0.0)),
        world=verdict.world,
        time_scale=ORDINARY if standing.description is None else standing.description.time_scale,
        limits=verdict.limits,
        versions=dict(verdict.versions),
        stats=stats,
        replay=verdict.replay,
    )


def figures(stats: Mapping[str, Any]) -> dict[str, float]:
    """The numeric figures of a verdict's `stats`."""
    return {
        name: value
        for name, value in stats.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and -_MOST < value < _MOST
    }


def place_of(run: RunSummary) -> str:
    """Where a run was made: figures of different places are not comparable."""
    slower = "" if run.time_scale == ORDINARY else f" with the time scale {run.time_scale:g}"
    return f"the {run.world} world{slower}"


def sample_of(run: Mapping[str, Any]) -> tuple[object, ...]:
    """The sample that a run (an entry of summary.json) is counted as: the run itself, or in the simulation its seed.
    There the same seed of the same code is the same run, however often it is repeated."""
    if run["world"] != SIMULATION:
        return (run["run"],)
    return run["cell"], run["seed"], run["versions"].get("brownout", "")


def samples(entries: Iterable[RunSummary]) -> list[RunSummary]:
    """The first of the runs that are the same sample."""
    found: dict[tuple[object, ...], RunSummary] = {}
    for each in entries:
        found.setdefault(sample_of(vars(each)), each)
    return list(found.values())


def to_json(entries: Sequence[RunSummary]) -> list[dict[str, Any]]:
    """The entries of summary.json."""
    return [asdict(each) for each in entries]

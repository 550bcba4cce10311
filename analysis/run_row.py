"""One run as a row: what gate, list, index page, trends, comparisons, live page and tables show of it.

A campaign's summary.json has the rows over which the gate decided, each with the digest of the verdict.json that it is
made from: a row with another digest is stale. So a field of `RunRow` is a key of summary.json and a column of the table
`runs`; `LISTED` are those of `brownout list --json` and of the index page.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import asdict, replace

from analysis.evidence.run_toml import SIMULATION
from analysis.expectation import unmet
from analysis.stored_verdict import StoredVerdict
from analysis.verdict import PASS, UNKNOWN, Expectation, Verdict
from history.field_types import Int64
from history.time_scale import ORDINARY

LISTED: Final = (
    "campaign", "run", "made", "duration_s", "world", "system", "cell", "seed", "verdict", "expected", "met", "counts",
    "anomalies", "acknowledged", "reasons", "cause", "drawn", "report",
)  # fmt: skip
_OF_STORE: Final = frozenset(("campaign", "counts", "made", "report", "settings", "settings_unread"))
"""The fields that depend on the place of a run in its store; a summary.json has none of them."""
_FAULTS: Final = "faults"
"""The check that compares a run's faults with their evidence."""
_MOST: Final = 1e300  # a larger figure is not a measurement, and JSON readers may turn it into infinity


class RunRow(msgspec.Struct, frozen=True):
    """What is believed about one run. A row is never evidence: only the gate examines that."""

    run: str
    """The name of the run's directory."""
    cell: str
    """The name of the campaign's cell."""
    seed: Int64
    """The seed of the run; -1 if it is unknown."""
    verdict: str
    """Unknown unless the stored one can be believed; a proven, unexpected failure remains a failure. The live page has
    words of its own for a run without a verdict."""
    expected: str
    """What the campaign expects of the run, in one phrase."""
    met: bool
    """Whether the verdict is what was `expected`."""
    reasons: tuple[str, ...]
    """Why the verdict is not *pass*, as sentences."""
    doubts: tuple[str, ...] = ()
    """Why the stored verdict cannot be believed; they are also in the `reasons`."""
    anomalies: tuple[str, ...] = ()
    """The names of the run's anomalies."""
    faults: Int64 = 0
    """The number of faults."""
    faults_confirmed: Int64 = 0
    """The number of faults marked as confirmed."""
    confirmed: Mapping[str, int] = {}
    """The number of confirmed faults of each kind, if the run's own check of its faults believes them all."""
    acknowledged: Int64 = 0
    """The number of acknowledged changes."""
    duration_s: float = 0.0
    """The duration of the run in seconds."""
    world: str = ""
    """Where the nodes lived."""
    time_scale: float = ORDINARY
    """How many times longer everything took in the run's world than on this machine."""
    limits: tuple[str, ...] = ()
    """What the run could not show, as sentences."""
    versions: Mapping[str, str] = {}
    """The versions that the run was made with, by name."""
    system: str = ""
    """The name of the system under test; empty if run.toml does not say."""
    mutants: tuple[str, ...] = ()
    """The mutants that were switched on."""
    started: str = ""
    """When the run started, in ISO 8601; empty if run.toml does not say."""
    stats: Mapping[str, float] = {}
    """The verdict's numeric figures, under its names."""
    replay: str = ""
    """The command that makes the run again."""
    cause: str = ""
    """Of a failure, in one sentence."""
    drawn: str = ""
    """What the seed of a swarm drew and what the run met, in one line; empty for other runs."""
    verdict_sha256: str = ""
    """The digest of the verdict.json that the row is made from; empty without one."""
    at_least: Int64 = 0
    """The number of the cell's runs that must fail as expected; 0: every run of the cell."""
    campaign: str = ""
    """The name of the campaign's directory."""
    counts: bool = False
    """The last decision over the campaign rests on the run."""
    made: str = ""
    """The start of the run's invocation in ISO 8601, UTC; empty if the name of the run's directory has no time."""
    report: str = ""
    """The path of the run's page, relative to the store; empty without one."""
    settings: str = ""
    """In tables, of the first run of each cell that counts: its run.toml, as JSON with dotted keys."""
    settings_unread: str = ""
    """Why that run.toml cannot be read."""

    @property
    def is_unexpected(self) -> bool:
        """Whether the run counts and did not meet its expectation."""
        return self.counts and not self.met

    def to_json(self) -> dict[str, Any]:
        """The row of `brownout list --json`."""
        return {name: getattr(self, name) for name in LISTED}


def unknown_row(run: str, cell: str = "", seed: int = -1, expected: str = "", mutants: Sequence[str] = ()) -> RunRow:
    """The row of a run of which only the plan is known, or nothing."""
    return RunRow(run, cell, seed, UNKNOWN, expected, False, (), mutants=tuple(mutants))


def decided_row(planned: RunRow, expected: Expectation, standing: StoredVerdict, doubts: Sequence[str] = ()) -> RunRow:
    """The row of a run as the gate sees it. `doubts`: reasons from outside of its directory why its verdict cannot be
    believed."""
    verdict, all_doubts = standing.verdict, (*doubts, *standing.doubts)
    blank = replace(
        planned,
        reasons=all_doubts,
        doubts=all_doubts,
        system=standing.system,
        started=standing.started,
        verdict_sha256=standing.digest,
        at_least=expected.at_least or 0,
    )
    if verdict is None:
        return blank
    unmet_demands = unmet(expected, verdict)
    met = not unmet_demands
    is_failure = standing.proves_failure and not met
    causes = (*(unmet_demands if verdict.verdict == expected.verdict else ()), *verdict.reasons)
    reasons = (*causes, *all_doubts) if is_failure else (*all_doubts, *causes)
    return replace(
        with_findings(blank, verdict),
        verdict=verdict.verdict if is_failure or not all_doubts else UNKNOWN,
        met=met and not all_doubts,
        reasons=tuple(dict.fromkeys(reasons)),
        time_scale=ORDINARY if standing.description is None else standing.description.time_scale,
    )


def with_findings(row: RunRow, verdict: Verdict) -> RunRow:
    """The row with what a verdict says besides its decision."""
    confirmed = Counter(str(fault.get("kind")) for fault in verdict.faults if fault.get("status") == "confirmed")
    are_believed = any(check.name == _FAULTS and check.verdict == PASS for check in verdict.checks)
    stats = _figures(verdict.stats)
    return replace(
        row,
        cause=verdict.cause,
        drawn="".join(verdict.drawn),
        anomalies=tuple(sorted({anomaly.name for anomaly in verdict.anomalies})),
        faults=len(verdict.faults),
        faults_confirmed=confirmed.total(),
        confirmed=dict(sorted(confirmed.items())) if are_believed else {},
        acknowledged=int(stats.get("acknowledged", 0)),
        duration_s=float(stats.get("duration_s", 0.0)),
        world=verdict.world,
        limits=verdict.limits,
        versions=dict(verdict.versions),
        stats=stats,
        replay=verdict.replay,
    )


def _figures(stats: Mapping[str, Any]) -> dict[str, float]:
    """The numeric figures of a verdict's `stats`."""
    return {
        name: value
        for name, value in stats.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and -_MOST < value < _MOST
    }


def place_of(run: RunRow) -> str:
    """Where a run was made: figures of different places are not comparable."""
    slower = "" if run.time_scale == ORDINARY else f" with the time scale {run.time_scale:g}"
    return f"the {run.world} world{slower}"


def sample_of(run: Mapping[str, Any]) -> tuple[object, ...]:
    """The sample that a run (an entry of summary.json) is counted as: the run itself, or in the simulation its seed.
    There the same seed of the same code is the same run, however often it is repeated."""
    if run["world"] != SIMULATION:
        return (run["run"],)
    return run["cell"], run["seed"], run["versions"].get("brownout", "")


def samples(rows: Iterable[RunRow]) -> list[RunRow]:
    """The first of the runs that are the same sample."""
    first_rows: dict[tuple[object, ...], RunRow] = {}
    for row in rows:
        first_rows.setdefault(sample_of(asdict(row)), row)
    return list(first_rows.values())


def to_json(rows: Sequence[RunRow]) -> list[dict[str, Any]]:
    """The rows as summary.json has them."""
    return [{name: value for name, value in asdict(row).items() if name not in _OF_STORE} for row in rows]

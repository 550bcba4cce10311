"""Any two kinds of fault at once on one machine: each is proven or names the other one as what prevented it, the heal
of one leaves the other in force, and the journal proves all of it.

The pairs are those of all registered kinds, and of the modes of their options: a new kind is among them, and a new
option needs its modes in `tests.worlds.fault_rows`. The pairs of a batch share their machines.
"""

import functools
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from analysis.checkers.faults import fault_doubts
from history.journal.writer import Journal
from nemeses import Fault, Nemesis, Site
from orchestrator.running.faults import FaultLog
from orchestrator.running.progress import Progress
from orchestrator.worlds.namespaces.lab import NamespaceWorld
from orchestrator.worlds.simulation.lab import SimulationWorld
from simulator.client import SimulatedClient
from simulator.cluster import SimulatedCluster
from simulator.oracles.findings import OracleFindings
from tests.orchestrator.unwatched import Unwatched
from tests.worlds.fault_rows import STAKE, Row, rows
from tests.worlds.simulated_site import fill_store, site_of
from tests.worlds.support import play

FLUSHED: Final = {"log.flush.interval.messages": "1"}
SIMULATED: Final = sorted(SimulationWorld.capabilities)
FIRST, SECOND = 0.3, 0.8
"""Draws of the strengths of the two faults."""

OFF: Final = {"power-loss", "power-loss-all"}
DARK: Final = OFF | {"stall", "clock-freeze", "crash-point"}
BROKEN: Final = {"disk-error", "disk-full"}
DOWN: Final = BROKEN | {"kill", "stop", "disk-wipe", "disk-flip"}
ANYWHERE: Final = {kind for kind in SIMULATED if kind.startswith("objects-")}
CUTS: Final = {"partition-one", "partition-halves", "partition-leader", "reject"}
PACKETS: Final = {"packet-delay", "packet-loss", "packet-duplicate", "packet-reorder", "connection-reset"}
DISK: Final = {kind for kind in SIMULATED if kind.startswith("disk-")} | {"old-disk"}
_DARKENING: Final = {kind: {*SIMULATED} - ANYWHERE for kind in DARK}
_ENDING: Final = {kind: {"kill", "stop", "pause", "disk-flip", "connection-reset", "crash-point"} for kind in DOWN}
_BREAKING: Final = {kind: DISK | {"kill", "stop", "pause", "connection-reset", "crash-point"} for kind in BROKEN}
_PARTING: Final = dict.fromkeys(CUTS, PACKETS)
_OTHERS: Final = {"disk-hang": DISK | {"stop", "crash-point"}, "pause": {"pause", "stop", "crash-point"}}
LOSING: Final = {"disk-wipe", "old-disk"}
"""They may take the last copy of a record, which an oracle then misses."""
EMPTYING: Final = {*LOSING, "disk-flip"}
"""After them a replica may be empty for a while: the next pair needs other machines."""
PREVENTED: Final[Mapping[str, set[str]]] = {**_DARKENING, **_ENDING, **_BREAKING, **_PARTING, **_OTHERS}
"""By the kind in force: the kinds that it leaves nothing to act on."""
_NOT_WAITING: Final = {"kill", "stop", "disk-wipe"} | DARK | CUTS | ANYWHERE
WAITING: Final[Mapping[str, set[str]]] = {
    **{kind: {*SIMULATED} - _NOT_WAITING for kind in DARK},
    **{kind: {"pause"} for kind in DOWN - BROKEN},
    **{kind: (DISK - {"disk-wipe"}) | {"pause"} for kind in BROKEN},
    **dict.fromkeys(CUTS, PACKETS),
    "disk-hang": DISK - {"disk-wipe"},
}
"""By the kind of a later fault: the kinds whose heal waits for its heal."""
ROWS: Final = rows(SIMULATED)
_BATCH: Final = 4
BATCHES: Final = [(one, tuple(ROWS[at : at + _BATCH])) for one in ROWS for at in range(0, len(ROWS), _BATCH)]


def prevents(one: Row, other: Row) -> bool:
    """Whether a fault in force leaves the other one nothing to act on. A cut of one link leaves packets to others."""
    return other.kind in PREVENTED.get(one.kind, ()) and not (one.kind in CUTS and one.mode == "pairs")


def waits(left: Row, *, ended: Row) -> bool:
    """Whether the heal of a fault waits for that of a later one."""
    return ended.kind in WAITING.get(left.kind, ()) and not (left.kind in CUTS and left.mode == "pairs")


def drawn(row: Row, draw: float) -> Fault:
    """A fault of n1 with another strength for each draw."""
    return row.drawn(draw, ("n1", "n2", "n3"))


class Run(NamedTuple):
    """Three machines with connections and records, and the run's faults with their journal."""

    cluster: SimulatedCluster
    site: Site
    faults: FaultLog
    journal: Path

    def put_at_stake(self) -> None:
        """Unsynced data, which a power cut takes: over what the file had, so that a full disk has space for it."""
        machine = self.cluster.machines["n1"]
        if machine.powered:
            machine.disk.open(STAKE, create=True)
            machine.disk.overwrite(STAKE, b"unsynced")

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.journal.read_text().splitlines()]


@contextmanager
def machines() -> Iterator[Run]:
    with SimulatedCluster(1, 3, properties=FLUSHED) as cluster, tempfile.TemporaryDirectory() as directory:
        cluster.start()
        cluster.run(cluster.ready())
        site = site_of(cluster)
        nemesis = Nemesis(site)
        assert nemesis.arm().confirmed
        cluster.run(_filled(cluster))
        with Journal(Path(directory)) as journal:
            faults = FaultLog(nemesis, journal, Progress(quiet=True), Unwatched())  # type: ignore[arg-type]
            yield Run(cluster, site, faults, Path(directory) / "history" / "journal.jsonl")


async def _filled(cluster: SimulatedCluster) -> None:
    client = SimulatedClient(cluster.addresses)
    await client.create_topic("log", 1, 3)
    for _ in range(5):
        await client.produce("log", 0, [b"value" * 20])
    fill_store(cluster)


def state(run: Run) -> dict[str, Any]:
    """What faults have changed of the machine n1."""
    cluster, wire, machine = run.cluster, run.site.wire, run.cluster.machines["n1"]
    assert wire is not None
    faults, outlet = machine.disk.faults, cluster.network.outlet("n1")
    before = wire.times_reset("n1")
    cluster.loop.run_for(1.5)
    return {
        "power": machine.powered,
        "process": machine.running,
        "paused": machine.paused,
        "suspended": (machine.suspended, machine.clock.frozen),
        "jumped_s": pytest.approx(machine.clock.ahead(cluster.loop.now), abs=0.5),
        "drift": pytest.approx(machine.clock.drift),
        "disk": (faults.failing, faults.free_bytes, faults.hung),
        "slow_s": pytest.approx(faults.slow_s),
        "cuts": (sorted(cluster.network._cut), sorted(cluster.network._rejecting)),
        "packets": None if outlet is None else outlet.disturbance,
        "resets": wire.times_reset("n1") > before,
        "objects": sorted(each.partition(" ")[0] for each in cluster.objects.reasons),
    }


@functools.cache
def alone(row: Row | None, draw: float) -> dict[str, Any]:
    """The state under one fault; without a row, under none."""
    with machines() as run:
        if row is not None:
            run.put_at_stake()
            run.faults.inject(drawn(row, draw))
        return state(run)


def expected(left: Row, draw: float, *, ended: Row) -> dict[str, Any]:
    """The state under a fault that was in force together with another one, which has ended."""
    under, unchanged = dict(alone(left, draw)), alone(None, 0)
    if left.kind == "pause" and ended.kind in DOWN | OFF | {"old-disk", "crash-point"}:
        under["paused"] = False  # the process that was paused has ended
    if left.kind in BROKEN | {"disk-flip"}:
        del under["process"]  # it ends if it uses the disk
    if left.kind == "crash-point":
        under = {key: value for key, value in under.items() if key not in ("process", "power")}  # it may have crashed
    if left.kind == "pause" and ended.kind in BROKEN:
        del under["paused"]  # the process that was paused has ended if it used the disk
    if left.kind in {"disk-hang", "stall", "clock-freeze"} and ended.kind in DOWN | OFF:
        under["process"] = False  # it starts when the disk or the machine answers
    if ended.kind == "clock-jump" or left.kind != "clock-jump":
        del under["jumped_s"]  # a correction also takes back what drifts and freezes have added
    assert unchanged["process"]
    return under


@pytest.mark.rotating(96, among="pairs of faults")
@pytest.mark.parametrize(("one", "others"), BATCHES, ids=lambda part: str(part if isinstance(part, Row) else part[0]))
def test_two_faults_of_one_machine_compose(one: Row, others: Sequence[Row]) -> None:
    remaining = [
        (other, heals_first)
        for other in others
        for heals_first in ("first", "second")[: 1 if prevents(one, other) else 2]
    ]
    while remaining:
        with machines() as run:
            is_intact = True
            while remaining and is_intact:
                other, heals_first = remaining.pop()
                _compose(run, one, other, heals_first)
                is_intact = not {one.kind, other.kind} & EMPTYING
            if {one.kind, other.kind} & LOSING:
                run.cluster.watch.findings = OracleFindings(run.cluster.loop.time)


def _compose(run: Run, one: Row, other: Row, heals_first: str) -> None:
    """Inject both faults, and heal them in this order. The heal of a fault that was prevented does nothing."""
    faults = drawn(one, FIRST), drawn(other, SECOND)
    row_of = {id(faults[0]): one, id(faults[1]): other}
    healed, left = faults if heals_first == "first" else faults[::-1]
    ended, rest = row_of[id(healed)], row_of[id(left)]
    is_prevented = prevents(one, other)
    run.put_at_stake()
    first = run.faults.inject(faults[0])
    run.put_at_stake()
    second = run.faults.inject(faults[1])
    assert first.confirmed, first
    whole = second.status == "prevented" or "prevented_by" in second.detail.get("n1", {})
    assert whole == is_prevented, second
    assert second.status == "prevented" or second.confirmed, second
    run.cluster.loop.run_for(0.5)
    run.faults.heal(lambda fault: fault is healed)
    if is_prevented and left is faults[1]:
        assert {**state(run), "jumped_s": None} == {**alone(None, 0), "jumped_s": None}
    elif left is faults[1] and waits(rest, ended=ended):
        assert "waits for" in run.lines()[-1].get("text", "")
    else:
        under = expected(rest, left.at, ended=ended)
        assert {key: value for key, value in state(run).items() if key in under} == under
    run.cluster.loop.run_for(0.5)
    run.faults.heal(lambda fault: fault is left)
    run.cluster.loop.run_for(0.5)
    assert {**state(run), "jumped_s": None} == {**alone(None, 0), "jumped_s": None}
    run.faults.heal_all()
    assert abs(run.cluster.machines["n1"].clock.ahead(run.cluster.loop.now)) < 0.5
    assert list(fault_doubts(run.lines(), finished=True)) == []


STORE: Final = {"store-down", "store-full", "store-read-only"}
OBJECTS: Final = {"object-cut", "object-corrupt", "object-missing"}


NAMESPACE_ROWS: Final = [
    row for row in rows(sorted(NamespaceWorld.capabilities)) if row.mode in {"", "tear", "replaced"}
]
"""The other modes have no code of their own in this world."""
_NAMESPACE_BATCH: Final = 6


@pytest.mark.root
@pytest.mark.rotating(24, among="pairs of faults of namespaces")
@pytest.mark.parametrize("start", range(0, len(NAMESPACE_ROWS), _NAMESPACE_BATCH))
@pytest.mark.parametrize("one", NAMESPACE_ROWS, ids=str)
def test_two_faults_of_one_namespace_compose(tmp_path: Path, one: Row, start: int) -> None:
    hidden = STORE | OBJECTS if one.kind in OFF else OBJECTS if one.kind in STORE else set()
    prevented = {
        str(other): prevents(one, other) or other.kind in hidden
        for other in NAMESPACE_ROWS[start : start + _NAMESPACE_BATCH]
    }
    orders = [
        f"{other}:{order}" for other in prevented for order in ("first", "second")[: 1 if prevented[other] else 2]
    ]
    seen = play("pairs_of", str(tmp_path), str(one), *orders, module="tests.worlds.pair_scenarios")
    assert {pair: each["wrong"] for pair, each in seen.items() if each["wrong"]} == {}
    assert {pair: each["prevented"] for pair, each in seen.items()} == {
        pair: prevented[pair.partition(":")[0]] for pair in orders
    }

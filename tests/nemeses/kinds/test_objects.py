"""Faults of the simulated object store: believed when a probe of the store has met them."""

from collections.abc import AsyncIterator, Iterator

import pytest

from nemeses import Fault, Nemesis, Site
from orchestrator.worlds.simulation.lab import SimulatedObjects
from orchestrator.worlds.simulation.scheduling import VirtualScheduler
from simulator.cluster import SimulatedCluster
from simulator.object_store import StoreFaults, combined
from tests.nemeses.fakes import FakeHost

FAULTS = [
    Fault("objects-slow", ("n1",), 0, {"delay_ms": 500}),
    Fault("objects-hung", ("n1",)),
    Fault("objects-failing", ("n1",)),
    Fault("objects-refused", ("n1",)),
    Fault("objects-partial", ("n1",)),
    Fault("objects-stale", ("n1",), 0, {"age_s": 5}),
    Fault("objects-mixed", ("n1",)),
]
KINDS = [fault.kind for fault in FAULTS]


class DeafObjects(SimulatedObjects):
    """A store that ignores requests."""

    @property
    def _faults(self) -> StoreFaults:
        return StoreFaults()


class StuckObjects(SimulatedObjects):
    """A store whose faults do not end."""

    def work(self) -> None:
        pass


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    with SimulatedCluster(1, 1) as made:
        yield made


def nemesis(objects: SimulatedObjects | None) -> Nemesis:
    return Nemesis(Site({"n1": FakeHost("n1")}, objects=objects))


@pytest.mark.parametrize("fault", FAULTS, ids=KINDS)
def test_a_probe_meets_the_fault_and_after_the_heal_it_does_not(cluster: SimulatedCluster, fault: Fault) -> None:
    by = nemesis(SimulatedObjects(cluster, VirtualScheduler(cluster, 1)))
    seen = by.inject(fault)
    assert seen.status == "confirmed", seen
    healed = by.heal(fault)
    assert healed.status == "confirmed", healed
    assert cluster.objects.objects == {}, "the probe leaves nothing"


@pytest.mark.parametrize("first_in", [True, False], ids=["first-in-first-out", "last-in-first-out"])
@pytest.mark.parametrize("second", FAULTS, ids=KINDS)
@pytest.mark.parametrize("first", FAULTS, ids=KINDS)
def test_each_pair_of_overlapping_faults_is_proven_and_healed(
    cluster: SimulatedCluster, first: Fault, second: Fault, first_in: bool
) -> None:
    by = nemesis(SimulatedObjects(cluster, VirtualScheduler(cluster, 1)))
    evidence = [by.inject(first), by.inject(second)]
    both = list(cluster.objects.reasons.values())
    assert cluster.objects._in_force == combined(both)
    order = [first, second] if first_in else [second, first]
    evidence.append(by.heal(order[0]))
    (left,) = cluster.objects.reasons.values()
    assert left == both[1 if first_in or first == second else 0] or first == second, "only the healed fault has ended"
    evidence.append(by.heal(order[1]))
    assert [each.status for each in evidence] == ["confirmed"] * 4, evidence
    assert cluster.objects.reasons == {}
    assert cluster.objects.objects == {}


def test_the_heal_of_everything_ends_all_overlapping_faults(cluster: SimulatedCluster) -> None:
    by = nemesis(SimulatedObjects(cluster, VirtualScheduler(cluster, 1)))
    for fault in FAULTS:
        assert by.inject(fault).confirmed
    assert by.heal_all().detail["objects"] == {"n1": {"probe": "done", "listing": "done"}}
    assert cluster.objects.reasons == {}


@pytest.mark.parametrize("fault", FAULTS, ids=KINDS)
def test_a_store_without_the_fault_is_a_mismatch(cluster: SimulatedCluster, fault: Fault) -> None:
    assert nemesis(DeafObjects(cluster, VirtualScheduler(cluster, 1))).inject(fault).status == "mismatch"


@pytest.mark.parametrize("fault", [FAULTS[1], FAULTS[2], FAULTS[3]], ids=[KINDS[1], KINDS[2], KINDS[3]])
def test_a_store_that_does_not_recover_is_a_mismatch(cluster: SimulatedCluster, fault: Fault) -> None:
    by = nemesis(StuckObjects(cluster, VirtualScheduler(cluster, 1)))
    by.inject(fault)
    assert by.heal(fault).status == "mismatch"


@pytest.mark.parametrize("fault", FAULTS, ids=KINDS)
def test_a_world_without_an_object_store_is_inconclusive(fault: Fault) -> None:
    assert nemesis(None).inject(fault).status == "inconclusive"


def test_a_partial_upload_leaves_a_part_of_the_object(cluster: SimulatedCluster) -> None:
    scheduler = VirtualScheduler(cluster, 1)
    nemesis(SimulatedObjects(cluster, scheduler)).inject(FAULTS[4])

    async def upload() -> None:
        await cluster.objects.put("a", chunks())

    async def chunks() -> AsyncIterator[bytes]:
        yield b"first"
        yield b"second"

    with pytest.raises(Exception, match="the simulated store fails"):
        scheduler.run(upload())
    assert cluster.objects.objects == {"a": b"first"}

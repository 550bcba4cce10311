"""Faults of the simulated object store: believed when a probe of the store has met them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from nemeses import Fault, Nemesis, Site
from orchestrator.worlds.simulation.faults import SimulatedObjects
from orchestrator.worlds.simulation.scheduling import VirtualScheduler
from simulator.cluster import SimulatedCluster
from simulator.object_store import StoreFaults
from tests.nemeses.fakes import FakeHost

FAULTS = [
    Fault("objects-slow", ("n1",), 0, {"delay_ms": 500}),
    Fault("objects-hung", ("n1",)),
    Fault("objects-failing", ("n1",)),
    Fault("objects-refused", ("n1",)),
    Fault("objects-partial", ("n1",)),
    Fault("objects-stale", ("n1",), 0, {"age_s": 5}),
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

"""Faults of objects at rest in the simulated store: an object is missing, cut or corrupt, or a segment's objects are
those of another one."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from broker.tiered.object_store import ObjectMissingError
from broker.tiered.segments import LOG, SUFFIXES
from nemeses import Fault, Nemesis, Site
from orchestrator.worlds.simulation.lab import SimulatedObjects
from orchestrator.worlds.simulation.scheduling import VirtualScheduler
from simulator.cluster import SimulatedCluster
from tests.nemeses.fakes import FakeHost

ROWS: list[tuple[str, Mapping[str, Any]]] = [
    ("object-missing", {}),
    ("object-cut", {}),
    ("object-corrupt", {}),
    ("object-corrupt", {"replaced": 0}),
    ("object-corrupt", {"replaced": 5}),
]
IDS = ["missing", "cut", "corrupt", "replaced-0", "replaced-5"]
SIZE = 1_000


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    """Two partitions with two segments each, of the same offsets."""
    with SimulatedCluster(1, 1) as made:
        for number, (partition, base) in enumerate(itertools.product(range(2), (0, 20))):
            for suffix in SUFFIXES:
                made.objects.objects[segment(partition, base) + suffix] = bytes([number]) * SIZE
        yield made


def segment(partition: int, base: int) -> str:
    return f"cluster/log-id/{partition}/{base:020d}-{partition}{base}"


def nemesis(cluster: SimulatedCluster) -> Nemesis:
    scheduler = VirtualScheduler(cluster, 1)
    return Nemesis(Site({"n1": FakeHost("n1")}, objects=SimulatedObjects(cluster, scheduler), scheduler=scheduler))


def fault_of(row: tuple[str, Mapping[str, Any]], at: float = 1.0) -> Fault:
    return Fault(row[0], ("n1",), at, row[1])


def contents(cluster: SimulatedCluster) -> dict[str, bytes]:
    """The objects as a broker gets them; a listing agrees."""

    async def read() -> dict[str, bytes]:
        listed = {entry.name: entry.size for entry in await cluster.objects.list("")}
        shown = {}
        for name in cluster.objects.objects:
            try:
                shown[name] = await cluster.objects.get(name, 0, SIZE)
            except ObjectMissingError:
                continue
        assert listed == {name: len(data) for name, data in shown.items()}
        return shown

    return cluster.run(read())


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_readers_get_damaged_objects_until_the_heal(cluster: SimulatedCluster, row: tuple[str, Any]) -> None:
    before, by = contents(cluster), nemesis(cluster)
    seen = by.inject(fault_of(row))
    assert seen.status == "confirmed", seen
    under = contents(cluster)
    changed = {name for name in before if under.get(name) != before[name]}
    name = seen.detail["n1"]["object"]
    assert name in changed
    if "replaced" in row[1]:
        assert changed == {name.removesuffix(LOG) + suffix for suffix in SUFFIXES}
        partition, base = next(at for at in itertools.product(range(2), (0, 20)) if segment(*at) + LOG == name)
        assert under[name] == before[segment(1 - partition, base) + LOG], "the same offsets, of the other partition"
    else:
        assert changed == {name}
    healed = by.heal(fault_of(row))
    assert healed.status == "confirmed", healed
    assert contents(cluster) == before
    assert cluster.objects.reasons == {}


@pytest.mark.parametrize("heals_first", [0, 1])
@pytest.mark.parametrize(("one", "other"), [*itertools.product(ROWS, repeat=2)])
def test_two_faults_damage_two_segments(
    cluster: SimulatedCluster, one: tuple[str, Any], other: tuple[str, Any], heals_first: int
) -> None:
    before, by = contents(cluster), nemesis(cluster)
    faults = fault_of(one), fault_of(other, 2.0)
    seen = [by.inject(fault) for fault in faults]
    assert [each.status for each in seen] == ["confirmed"] * 2, seen
    names = [each.detail["n1"]["object"] for each in seen]
    assert len({*names}) == 2
    assert by.heal(faults[heals_first]).confirmed
    under = contents(cluster)
    stem = names[1 - heals_first].removesuffix(LOG)
    assert {name for name in before if under.get(name) != before[name]} <= {stem + suffix for suffix in SUFFIXES}
    assert under.get(stem + LOG) != before[stem + LOG]
    assert by.heal(faults[1 - heals_first]).confirmed
    assert contents(cluster) == before


def test_a_fault_is_prevented_by_faults_that_damaged_each_segment(cluster: SimulatedCluster) -> None:
    before, by = contents(cluster), nemesis(cluster)
    for number in range(4):
        assert by.inject(Fault("object-cut", ("n1",), float(number))).confirmed
    fifth = Fault("object-corrupt", ("n1",), 9.0, {"replaced": 3})
    assert by.inject(fifth).detail["n1"]["prevented_by"] == "object-cut"
    assert by.heal(fifth).status == "prevented"
    by.heal_all()
    assert contents(cluster) == before


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_an_object_that_the_cluster_has_deleted_stays_deleted(cluster: SimulatedCluster, row: tuple[str, Any]) -> None:
    by = nemesis(cluster)
    stem = by.inject(fault_of(row)).detail["n1"]["object"].removesuffix(LOG)

    async def delete() -> None:
        for suffix in SUFFIXES:
            await cluster.objects.delete(stem + suffix)

    cluster.run(delete())
    healed = by.heal(fault_of(row))
    assert healed.status == "confirmed", healed
    assert healed.detail["n1"]["restored"] == "deleted"
    assert not any(name.startswith(stem) for name in contents(cluster))


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_a_fault_waits_for_the_first_whole_segments(cluster: SimulatedCluster, row: tuple[str, Any]) -> None:
    """A random schedule may inject it before the first upload."""
    uploaded = dict(cluster.objects.objects)
    cluster.objects.objects.clear()
    cluster.loop.call_later(3, cluster.objects.objects.update, uploaded)
    assert nemesis(cluster).inject(fault_of(row)).status == "confirmed"
    assert 3 <= cluster.loop.now < 4


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_a_store_without_a_whole_segment_is_inconclusive(row: tuple[str, Any]) -> None:
    with SimulatedCluster(1, 1) as cluster:
        cluster.objects.objects[segment(0, 0) + LOG] = b"an upload in progress"
        seen = nemesis(cluster).inject(fault_of(row))
        assert seen.status == "inconclusive"
        assert "no object to change" in str(seen.detail)
        assert cluster.objects.reasons == {}


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_a_damage_that_does_not_take_effect_or_does_not_end_is_a_mismatch(
    cluster: SimulatedCluster, row: tuple[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    by = nemesis(cluster)
    monkeypatch.setattr(type(cluster.objects), "_at_rest", lambda store, name, _faults: store.objects.get(name))
    assert by.inject(fault_of(row)).status == "mismatch"
    monkeypatch.undo()
    second = Fault(row[0], ("n1",), 2.0, row[1])
    assert by.inject(second).confirmed
    monkeypatch.setattr(SimulatedObjects, "work", lambda _: None)
    assert by.heal(second).status == "mismatch"

"""A store has one owner: another cluster, and a copy of the owner's disks, are refused and delete nothing."""

import asyncio
import random
from collections.abc import Callable

import pytest

from broker.errors import StartupError
from broker.tiered.store_owner import OWNERS, StoreOwner
from simulator.cluster import SimulatedCluster
from simulator.disk import Content, SimulatedDisk
from simulator.object_store import SimulatedObjectStore
from tests.simulator.running import World
from tests.simulator.stories import in_cluster
from tests.simulator.test_tiered import TIERED, TOPIC, all_numbers, leader, only_remote, only_remote_topic, write

EXIT_USAGE = 64


def images(cluster: SimulatedCluster) -> dict[str, Content]:
    return {name: machine.disk.image() for name, machine in cluster.machines.items()}


def put_disks(cluster: SimulatedCluster, content: dict[str, Content]) -> None:
    """The machines are down."""
    for name, machine in cluster.machines.items():
        machine.disk.replace(content[name])


def exit_codes(cluster: SimulatedCluster) -> set[int | None]:
    return {machine.exits.get(machine.pid) for machine in cluster.machines.values()}


async def owned(cluster: SimulatedCluster) -> None:
    """Every broker has put a marker since its start."""

    def all_may_delete() -> bool:
        storages = [cluster.node(name).tiered for name in cluster.machines]
        return all(it is not None and it.owner.may_delete for it in storages)

    await cluster.until(all_may_delete, 60)


@pytest.mark.parametrize("clean", [True, False])
@in_cluster(40, properties={**TIERED, "log.flush.interval.messages": "1"})
async def test_a_copy_of_the_disks_is_refused_once_the_original_has_gone_on(
    cluster: SimulatedCluster, /, clean: bool
) -> None:
    client = await only_remote_topic(cluster)
    await owned(cluster)
    await (cluster.stop() if clean else asyncio.sleep(0))
    cluster.kill()
    copy = images(cluster)
    cluster.start()
    await cluster.ready()
    await client.refresh(TOPIC)
    await write(client, 40, 40)
    await cluster.until(lambda: only_remote(cluster, 70), 60)
    await owned(cluster)
    cluster.kill()
    original, before = images(cluster), dict(cluster.objects.objects)
    put_disks(cluster, copy)
    cluster.start()
    await cluster.until(lambda: exit_codes(cluster) == {EXIT_USAGE})
    assert cluster.objects.objects == before
    put_disks(cluster, original)
    cluster.start()
    await cluster.ready()
    await client.refresh(TOPIC)
    assert await all_numbers(client) == list(range(80))


def broker_of(store: SimulatedObjectStore, disk: SimulatedDisk, seed: int) -> StoreOwner:
    return StoreOwner(
        store=store,
        disk=disk,
        cluster_id=lambda: "c",
        node_id=1,
        interval_s=1.0,
        rng=random.Random(seed),
        source="b1",
        url="file:///store",
    )


@pytest.mark.parametrize("stale_s", [0.0, 30.0])
@pytest.mark.parametrize("pause_s", [0.0, 3.7])
def test_a_copy_of_a_running_broker_is_refused_and_the_running_one_continues(stale_s: float, pause_s: float) -> None:
    """The copy knows the last marker; while it watches the store, the original puts the next one."""
    world = World()
    store = SimulatedObjectStore(random.Random(1))
    disks = [SimulatedDisk(world.loop, random.Random(number)) for number in range(2)]
    original, copy = (broker_of(store, disk, number) for number, disk in enumerate(disks))
    both: list[float] = []

    async def story() -> None:
        running = asyncio.ensure_future(original.run())
        await until(lambda: original.may_delete)
        await asyncio.sleep(pause_s)
        store.faults.stale_s = stale_s
        disks[1].replace(disks[0].image())
        copying = asyncio.ensure_future(copy.run())
        while not copying.done():
            await asyncio.sleep(0.1)
            both.extend([asyncio.get_running_loop().time()] if original.may_delete and copy.may_delete else [])
        with pytest.raises(StartupError, match=r"b1: rsm.config.url: .* belongs to another copy"):
            copying.result()
        await asyncio.sleep(10)
        assert original.may_delete
        assert not running.done()
        running.cancel()

    world.run("a", story())
    assert not both


def test_a_silent_store_ends_the_right_to_delete_and_a_working_one_returns_it() -> None:
    world = World()
    store = SimulatedObjectStore(random.Random(1))
    owner = broker_of(store, SimulatedDisk(world.loop, random.Random(0)), 0)

    async def story() -> None:
        running = asyncio.ensure_future(owner.run())
        await until(lambda: owner.may_delete)
        store.faults.failing = dict.fromkeys(("put", "list", "get"), "503")
        await until(lambda: not owner.may_delete)
        store.faults.failing = {}
        await until(lambda: owner.may_delete)
        assert len(store.objects) == 1, "older markers are removed"
        running.cancel()

    world.run("a", story())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("when", ["before the first start", "while it runs"])
@in_cluster(42, properties=TIERED)
async def test_a_store_of_another_cluster_is_refused(cluster: SimulatedCluster, /, when: str) -> None:
    other = {f"{OWNERS}another/7/0000000001": b"{}", "another/log-x/0/notes": b"x"}
    if when == "while it runs":
        await only_remote_topic(cluster)
        await owned(cluster)
    else:
        cluster.start()
    cluster.objects.objects |= other
    await cluster.until(lambda: exit_codes(cluster) == {EXIT_USAGE})
    assert other.items() <= cluster.objects.objects.items()


@in_cluster(43, properties=TIERED)
async def test_a_broker_with_an_empty_disk_continues_the_chain_of_its_markers(cluster: SimulatedCluster, /) -> None:
    client = await only_remote_topic(cluster)
    await owned(cluster)
    name = leader(cluster)
    cluster.kill(name)
    cluster.machines[name].disk.replace([])
    cluster.start(name)
    await cluster.ready()
    await owned(cluster)
    await client.refresh(TOPIC)
    assert await all_numbers(client) == list(range(40))

"""Real brokers in the simulated world: they form a cluster and survive the loss of members, power and links."""

import asyncio
import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from broker.server.failure_detector import DeathWatch
from simulator.client import RefusedError, SimulatedClient, UncertainError
from simulator.cluster import SimulatedCluster
from simulator.disk import FileSystem
from tests.simulator.stories import in_cluster, started

ROOT = Path(__file__).resolve().parents[2]
SAFE = {"min.insync.replicas": "2", "default.replication.factor": "3"}
FLUSHED = {**SAFE, "log.flush.interval.messages": "1"}
TOPIC = "log"


async def topic(cluster: SimulatedCluster, partitions: int = 1) -> SimulatedClient:
    """Start the cluster and create a topic."""
    client = await started(cluster)
    await client.create_topic(TOPIC, partitions)
    return client


async def read(client: SimulatedClient, partition: int = 0) -> list[bytes]:
    return [record.value or b"" for record in await client.read_all(TOPIC, partition)]


@in_cluster(1, properties=SAFE)
async def test_three_brokers_form_a_cluster_and_keep_records(cluster: SimulatedCluster, /) -> None:
    client = await topic(cluster, partitions=2)
    assert cluster.controller() is not None
    assert cluster.loop.time() < 5
    for number in range(20):
        offset = await client.produce(TOPIC, number % 2, [b"a%d" % number, b"b%d" % number])
        assert offset == number // 2 * 2
    assert await read(client) == [b"%c%d" % (name, number) for number in range(0, 20, 2) for name in b"ab"]
    metadata = await client.metadata([TOPIC])
    assert [sorted(state.isr_nodes) for state in metadata.topics[0].partitions] == [[1, 2, 3], [1, 2, 3]]


@pytest.mark.parametrize("seed", range(5))
@in_cluster("seed", properties=SAFE)
async def test_a_killed_leader_is_replaced_and_committed_records_stay(cluster: SimulatedCluster, /) -> None:
    client = await topic(cluster)
    for number in range(10):
        await client.produce(TOPIC, 0, [b"%d" % number])
    old = await client.leader_of(TOPIC, 0)
    cluster.kill(f"n{old}")
    async with asyncio.timeout(15):
        assert await client.leader_of(TOPIC, 0, unlike=old) != old
    assert await read(client) == [b"%d" % number for number in range(10)]
    await client.produce(TOPIC, 0, [b"after"])
    cluster.start()
    await cluster.ready()
    assert (await read(client))[-1] == b"after"
    await cluster.until(lambda: _isr(cluster) == {1, 2, 3})


@pytest.mark.conforms("K101-15")
@pytest.mark.parametrize("file_system", list(FileSystem))
@pytest.mark.parametrize("seed", range(4))
def test_a_power_cut_of_all_nodes_keeps_flushed_and_acknowledged_records(seed: int, file_system: FileSystem) -> None:
    with SimulatedCluster(seed, properties=FLUSHED, file_system=file_system) as cluster:
        acknowledged: list[bytes] = []

        async def producing(client: SimulatedClient) -> None:
            for number in range(1000):
                value = b"%d" % number
                try:
                    await client.produce(TOPIC, 0, [value] * 20)
                except UncertainError:
                    return
                acknowledged.append(value)

        async def story() -> None:
            client = await topic(cluster)
            producer = asyncio.create_task(producing(client))
            await asyncio.sleep(0.3 + cluster.rng.random())
            cluster.power_loss()
            before = len(acknowledged)
            assert before > 10
            await asyncio.sleep(1)
            cluster.start()
            await cluster.ready()
            found = await read(client)
            assert found[: 20 * before : 20] == acknowledged[:before]
            await producer
            await client.produce(TOPIC, 0, [b"after"])
            assert (await read(client))[-1] == b"after"

        cluster.run(story())


@in_cluster(2, properties=SAFE)
async def test_a_clean_stop_and_start_needs_no_recovery(cluster: SimulatedCluster, /) -> None:
    client = await topic(cluster)
    await client.produce(TOPIC, 0, [b"x"])
    await cluster.stop("n1")
    assert not cluster.machines["n1"].running
    cluster.start()
    await cluster.ready()
    assert cluster.journal.of("broker_started", node=1)[-1]["clean_shutdown"] is True
    assert await read(client) == [b"x"]


@pytest.mark.parametrize("seed", range(4))
@in_cluster("seed", properties=SAFE)
async def test_a_leader_that_is_cut_off_is_replaced_and_follows_when_it_is_back(cluster: SimulatedCluster, /) -> None:
    client = await topic(cluster)
    await client.produce(TOPIC, 0, [b"before"])
    old = await client.leader_of(TOPIC, 0)
    others = [name for name in cluster.machines if name != f"n{old}"]
    cluster.partition([f"n{old}"], [*others, "client"])
    async with asyncio.timeout(20):
        await client.leader_of(TOPIC, 0, unlike=old)
    while True:
        try:
            await client.produce(TOPIC, 0, [b"during"])
            break
        except UncertainError:
            await client.leader_of(TOPIC, 0, unlike=old)
    cluster.heal()
    await cluster.until(lambda: _isr(cluster) == {1, 2, 3})
    found = await read(client)
    assert found[0] == b"before"
    assert set(found[1:]) == {b"during"}


@in_cluster(1, properties=FLUSHED)
async def test_a_broker_with_a_broken_disk_stops(cluster: SimulatedCluster, /) -> None:
    client = await topic(cluster)
    await client.produce(TOPIC, 0, [b"x"])
    leader = f"n{await client.leader_of(TOPIC, 0)}"
    cluster.machines[leader].disk.faults.failing = True
    with pytest.raises(UncertainError):
        await client.produce(TOPIC, 0, [b"y"])
    await cluster.until(lambda: not cluster.machines[leader].running)
    assert "Input/output" in cluster.journal.of("exited", machine=leader)[0]["reason"]
    assert (await read(client))[0] == b"x"


def chaos(seed: int) -> str:
    """The digest of a run with a bit of everything."""
    with SimulatedCluster(seed, properties=SAFE) as cluster:

        async def story() -> None:
            client = await topic(cluster, partitions=2)
            for number in range(12):
                with contextlib.suppress(RefusedError, UncertainError):
                    await client.produce(TOPIC, number % 2, [b"%d" % number], timeout=2.0)
                name = cluster.rng.choice(sorted(cluster.machines))
                match number:
                    case 3:
                        cluster.kill(name)
                    case 5:
                        cluster.start()
                    case 6:
                        cluster.partition([name], [other for other in cluster.machines if other != name])
                    case 8:
                        cluster.heal()
                        cluster.power_loss(name)
                    case 9:
                        cluster.start()
            await cluster.ready()
            await cluster.stop("n2")

        cluster.run(story())
        return cluster.digest()


@pytest.mark.rotating(10, among="storms")
@pytest.mark.conforms("K595-54")
def test_the_same_seed_gives_the_same_run_in_every_process() -> None:
    program = "from tests.simulator.test_cluster import chaos; print(chaos(5))"
    digests = {chaos(5)}
    for hash_seed in ("0", "12345"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
        )
        digests.add(done.stdout.strip())
    assert len(digests) == 1
    assert chaos(6) not in digests


def _isr(cluster: SimulatedCluster) -> set[int]:
    """The ISR of partition 0, as the controller has it."""
    controller = cluster.controller()
    if controller is None:
        return set()
    found = cluster.node(controller).image.topics.get(TOPIC)
    return set(found.partitions[0].isr) if found is not None else set()


@pytest.mark.parametrize("ending", ["none", "kill", "power loss", "exit"])
def test_a_failed_task_of_a_broker_without_an_awaiter_fails_the_run(
    ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = DeathWatch.leads

    async def fail() -> None:
        raise KeyError("planted")

    def begins_a_task(watch: DeathWatch) -> None:
        kept.append(asyncio.get_running_loop().create_task(fail()))
        begin(watch)

    kept: list[asyncio.Task[None]] = []
    monkeypatch.setattr(DeathWatch, "leads", begins_a_task)

    async def story() -> None:
        cluster.start()
        await cluster.ready()
        await asyncio.sleep(1)
        match ending:
            case "kill":
                cluster.kill()
            case "power loss":
                cluster.power_loss()
            case "exit":
                await cluster.stop()

    lost = pytest.raises(AssertionError, match=r"n\d at .* s: no code awaits the failed task .*fail: KeyError")
    with lost, SimulatedCluster(1) as cluster:
        cluster.run(story())


@pytest.mark.rotating(10, among="storms")
@in_cluster(3, properties={"message.max.bytes": "2000"})
async def test_a_dead_broker_is_fenced_however_small_batches_have_to_be(cluster: SimulatedCluster, /) -> None:
    await topic(cluster, partitions=90)
    controller = cluster.controller()
    assert controller is not None
    dead = next(name for name in cluster.machines if name != controller)
    broker = cluster.machines[dead].node_id
    image = cluster.node(controller).image
    assert sum(broker in partition.isr for *_, partition in image.partitions()) >= 30
    cluster.kill(dead)
    await cluster.until(lambda: image.brokers[broker].fenced)
    assert not any(broker in partition.isr for *_, partition in image.partitions())
    cluster.start(dead)
    await cluster.until(lambda: not image.brokers[broker].fenced)

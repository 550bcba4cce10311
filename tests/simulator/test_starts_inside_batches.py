"""Logs of tiered topics that start inside a batch, because DeleteRecords was asked for an offset there."""

import asyncio

import pytest

from broker.errors import ErrorCode
from simulator.client import RefusedError, SimulatedClient, UncertainError
from simulator.cluster import SimulatedCluster
from tests.simulator.test_tiered import TIERED, TOPIC, leader, only_remote, replicas, tiered_topic

PER_BATCH, BATCHES = 10, 40
END = PER_BATCH * BATCHES
PROPERTIES = {**TIERED, "log.flush.interval.messages": "1"}


async def write_batches(client: SimulatedClient, first: int, count: int) -> None:
    """Batches of `PER_BATCH` records, each with its number as its value and as its timestamp."""
    for number in range(first, first + count):
        offsets = range(number * PER_BATCH, (number + 1) * PER_BATCH)
        await client.produce(TOPIC, 0, [b"%d " % it + b"v" * 50 for it in offsets], timestamp=1_000 + number)


async def found_by_time(client: SimulatedClient, timestamp: int) -> int:
    """Repeated while the answer is being loaded from remote storage."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await client.offset(TOPIC, 0, timestamp, timeout=5.0)
            except (RefusedError, UncertainError):
                await asyncio.sleep(0.05)


async def check(cluster: SimulatedCluster, client: SimulatedClient, start: int) -> None:
    """Every record from the start on is served, and found by its time."""
    records = await client.read_all(TOPIC, 0, 60.0, first=start)
    assert [int((it.value or b"").split()[0]) for it in records] == list(range(start, END))
    for number in range(start // PER_BATCH, BATCHES):
        assert await found_by_time(client, 1_000 + number) == max(start, number * PER_BATCH)
    node = cluster.node(leader(cluster))
    last = replicas(cluster)[leader(cluster)].log.last_epoch
    answer = node.replicas.offset_for_leader_epoch(TOPIC, 0, last, last)
    assert (answer.error, answer.end.epoch, answer.end.end_offset) == (ErrorCode.NONE, last, END)


@pytest.mark.conforms("K107-3")
@pytest.mark.parametrize("start", [5, 57, 203])
@pytest.mark.parametrize("deleted_first", [True, False], ids=["before the upload", "in remote storage"])
def test_each_replica_serves_a_log_that_starts_inside_a_batch(start: int, deleted_first: bool) -> None:
    with SimulatedCluster(start, properties=PROPERTIES) as cluster:

        async def delete() -> None:
            answer = await cluster.node(leader(cluster)).replicas.delete_records(TOPIC, 0, start)
            assert answer == (ErrorCode.NONE, start)
            assert {it.log.log_start_offset for it in replicas(cluster).values()} == {start}

        async def story() -> None:
            client = await tiered_topic(cluster)
            already = start // PER_BATCH + 1 if deleted_first else BATCHES
            await write_batches(client, 0, already)
            if deleted_first:
                await delete()
                await write_batches(client, already, BATCHES - already)
            await cluster.until(lambda: only_remote(cluster, END - 80), 60)
            if not deleted_first:
                await delete()
            await check(cluster, client, start)
            for _ in range(2):
                first = leader(cluster)
                cluster.kill(first)
                await cluster.until(lambda: any(it.serving is not None for it in replicas(cluster).values()), 60)
                cluster.start(first)
                await cluster.until(lambda: _whole(cluster), 60)
                await check(cluster, client, start)
            node = cluster.node(leader(cluster))
            assert node.tiered is not None
            key = (replicas(cluster)["n1"].topic_id, 0)
            segments = [it for it in node.tiered.metadata.manifest(key) if it.is_readable]
            assert min(it.base_offset for it in segments) <= start
            assert not any(cluster.node(name).replicas.work.failures for name in cluster.machines)

        cluster.run(story())


def _whole(cluster: SimulatedCluster) -> bool:
    """Whether all replicas run and are in sync."""
    leading = [it.serving for it in replicas(cluster).values() if it.serving is not None]
    return len(replicas(cluster)) == 3 and any(len(it.isr) == 3 for it in leading)

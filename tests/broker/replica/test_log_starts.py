"""The stored start offsets of logs: never above the records that a truncation has left."""

import asyncio
from pathlib import Path

import pytest

from broker.errors import ErrorCode
from broker.log.log import PartitionLog
from broker.replica.follower import PartitionFollower
from tests.broker.replica.cluster import TOPIC, Cluster, Node, tell, until
from tests.stories import played_by

STORIES = played_by(tell, "tmp_path")


async def cut_below_its_start(cluster: Cluster) -> Node:
    """Broker 2 deleted records up to offset 6; then 1, whose log ends at 2, was elected uncleanly, and 2 followed."""
    await cluster.start(1, 2)
    await cluster.create_topic([1, 2])
    await cluster.nodes[1].produce("a", "b")
    cluster.cut |= {(1, 2), (2, 1)}
    cluster.elect(2, isr=[2])
    await cluster.hear()
    assert (await cluster.nodes[2].produce(*"cdefgh")).error is ErrorCode.NONE
    answer = await cluster.nodes[2].manager.delete_records(TOPIC, 0, 6, timeout_s=0.0)
    assert answer == (ErrorCode.REQUEST_TIMED_OUT, -1), "broker 1 is live, and does not know the start"
    assert cluster.nodes[2].partition().log.log_start_offset == 6
    cluster.elect(1, uncleanly=True)
    await cluster.hear()  # before the links are restored: no replica fetches under the old epoch now
    cluster.cut.clear()
    await until(lambda: cluster.committed.topics[TOPIC].partitions[0].isr == (1, 2))
    return cluster.nodes[2]


@pytest.mark.parametrize("killed", [True, False])
async def test_a_restart_keeps_acknowledged_records_below_an_earlier_log_start(
    cluster: Cluster, /, killed: bool
) -> None:
    node = await cut_below_its_start(cluster)
    assert (node.partition().log.log_start_offset, node.partition().log.log_end_offset) == (2, 2)
    assert (await cluster.nodes[1].produce("x", "y")).error is ErrorCode.NONE
    assert node.content() == ["x", "y"]
    await (cluster.kill(2) if killed else cluster.stop(2))
    await cluster.start(2, clean=not killed)
    again = cluster.nodes[2]
    assert again.content() == ["x", "y"]
    assert (again.partition().log.log_start_offset, again.partition().log.log_end_offset) == (2, 4)


def test_a_start_inside_a_batch_is_stored_before_a_new_follower_starts_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance = PartitionLog.advance_start
    moved = []

    async def watched(log: PartitionLog, offset: int) -> int:
        path = tmp_path / "n2" / "log-start-offset-checkpoint"
        moved.append((offset, path.read_text() if path.exists() else ""))
        return await advance(log, offset)

    async def story(cluster: Cluster) -> None:
        await cluster.start(1)
        await cluster.create_topic([1, 2])
        cluster.elect(1, isr=[1])
        await cluster.hear()
        assert (await cluster.nodes[1].produce("a", "b", "c")).error is ErrorCode.NONE
        assert await cluster.nodes[1].manager.delete_records(TOPIC, 0, 2) == (ErrorCode.NONE, 2)
        monkeypatch.setattr(PartitionLog, "advance_start", watched)
        await cluster.start(2)
        cluster.elect(1, isr=[1])
        await cluster.hear()
        log = cluster.nodes[2].partition().log
        await until(lambda: (log.log_start_offset, log.log_end_offset) == (2, 3))
        assert moved == [(2, f"0\n1\n{TOPIC} 0 2\n")]

    tell(tmp_path, story)


async def test_no_start_is_written_down_while_the_log_is_being_cut(cluster: Cluster, /) -> None:
    await cluster.start(1, 2)
    await cluster.create_topic([1, 2])
    await cluster.nodes[1].produce("a", "b", "c")
    node = cluster.nodes[2]
    partition = node.partition()
    await until(lambda: partition.high_watermark == 3)
    written = []
    write = node.manager._starts.write

    async def watched(key: tuple[str, int], offset: int) -> None:
        written.append((partition.lock.locked(), offset))
        await write(key, offset)

    node.manager._starts.write = watched  # type: ignore[method-assign]
    async with partition.lock:
        moving = asyncio.create_task(node.manager.move_start(partition, 3))
        await asyncio.sleep(0)
        assert written == []
        await partition.log.truncate_to(0)
        assert isinstance(partition.role, PartitionFollower)
        partition.role.high_watermark = 0
    await moving
    assert written == [], "nothing is left below which anything could go"


@pytest.mark.parametrize("ends_by", ["election", "disk", "lease"])
async def test_a_deposed_leader_does_not_report_a_deletion_of_records(cluster: Cluster, /, ends_by: str) -> None:
    await cluster.start(1, 2)
    await cluster.create_topic([1, 2])
    node = cluster.nodes[1]
    await node.produce("a", "b")
    partition = node.partition()
    async with partition.lock:
        if ends_by == "election":
            cluster.elect(2)
            hearing = asyncio.create_task(cluster.hear(1))
            for _ in range(100):
                await asyncio.sleep(0)  # it waits for the lock
        deleting = asyncio.create_task(node.manager.delete_records(TOPIC, 0, 1))
        await asyncio.sleep(0)
        if ends_by == "disk":
            partition.fail(OSError("gone"))
        node.lease = ends_by != "lease"
    error = ErrorCode.KAFKA_STORAGE_ERROR if ends_by == "disk" else ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await asyncio.wait_for(deleting, 180) == (error, -1)
    if ends_by == "election":
        await hearing

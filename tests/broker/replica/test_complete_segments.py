"""Complete segments at default durability: soon on disk, on leader and followers, and not cut off after that."""

import asyncio
import errno
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker.errors import ErrorCode
from tests.broker.log.making import HeldCommit
from tests.broker.replica.cluster import TOPIC, Cluster, Node, tell, until
from tests.stories import played_by

SEGMENTS: dict[str, Any] = {"log_segment_bytes": 4096, "log_index_interval_bytes": 500}

STORIES = played_by(tell, "tmp_path", **SEGMENTS)
VALUE = "v" * 400
MANY = 60


def point_on_disk(root: Path, node: int) -> int:
    """What a broker's file says of the partition."""
    path = root / f"n{node}" / "recovery-point-offset-checkpoint"
    lines = path.read_text().splitlines() if path.exists() else []
    return next((int(line.split()[2]) for line in lines if line.startswith(f"{TOPIC} 0 ")), 0)


async def with_complete_segments(cluster: Cluster, *replicas: int) -> list[Node]:
    """Brokers with one partition of several segments. All but the last are durable, as their files state."""
    await cluster.start(*replicas)
    await cluster.create_topic(list(replicas))
    nodes = [cluster.nodes[replica] for replica in replicas]
    for _ in range(MANY):
        assert (await nodes[0].produce(VALUE)).error is ErrorCode.NONE
    for node in nodes:
        await until(partial(complete_segments_are_on_disk, node))
    return nodes


def complete_segments_are_on_disk(node: Node) -> bool:
    log = node.partition().log
    is_whole = log.log_end_offset == MANY and len(log.segments) > 4
    point = point_on_disk(Path(node.config.log_dir).parent, node.id)
    return is_whole and log.durable_end_offset == log.complete_end == point


@pytest.mark.conforms("LOG-2")
async def test_the_recovery_point_follows_the_segments_on_leader_and_followers(cluster: Cluster, /) -> None:
    for node in await with_complete_segments(cluster, 1, 2, 3):
        assert 0 < node.partition().log.recovery_point < MANY, "not the segment that grows"


@pytest.mark.conforms("LOG-3")
@pytest.mark.parametrize("uncleanly", [False, True])
@pytest.mark.parametrize("replicas", [1, 3])
async def test_a_flipped_bit_in_an_old_segment_and_a_kill_do_not_truncate_the_log(
    cluster: Cluster, /, tmp_path: Path, replicas: int, uncleanly: bool
) -> None:
    await with_complete_segments(cluster, *range(1, replicas + 1))
    await cluster.kill(1)
    path = tmp_path / "n1" / f"{TOPIC}-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[2000] ^= 1
    path.write_bytes(data)
    await cluster.start(1)
    cluster.elect(1, uncleanly=uncleanly)
    await cluster.hear()
    node = cluster.nodes[1]
    await until(lambda: node.partition().serving is not None or bool(node.disk_failures))
    assert not node.disk_failures
    log = node.partition().log
    assert (log.log_start_offset, log.log_end_offset) == (0, MANY)
    assert not node.traced("log_shortened")
    assert path.read_bytes() == data
    behind = log.segments[1].base_offset
    whole = sum(segment.size for segment in log.segments[1:])
    await until(lambda: node.read(behind).size == whole)  # as the high watermark rises
    assert (await node.produce("later", acks=1)).base_offset == MANY
    assert node.read(0).error is ErrorCode.KAFKA_STORAGE_ERROR, "damaged data is not returned"


@pytest.mark.conforms("LOG-2")
async def test_a_disk_that_fails_to_sync_a_complete_segment_fails_the_replica(
    cluster: Cluster, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.start(1)
    await cluster.create_topic([1])
    node = cluster.nodes[1]

    def fails(fd: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}").endswith(".log"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        patch.setattr(os, "fdatasync", fails)
        for _ in range(MANY):
            await node.produce(VALUE)
        await until(lambda: bool(node.disk_failures))
    assert node.traced("partition_failed")
    assert node.partition().error is ErrorCode.KAFKA_STORAGE_ERROR
    assert (await node.produce(VALUE)).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert node.partition().log.recovery_point == 0
    await cluster.kill(1)


@pytest.mark.conforms("LOG-2")
@pytest.mark.parametrize("deleted", [True, False])
async def test_a_partition_stops_while_a_segment_is_being_flushed(
    cluster: Cluster, /, tmp_path: Path, deleted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.start(1)
    await cluster.create_topic([1])
    node = cluster.nodes[1]
    held = HeldCommit(monkeypatch, f"{TOPIC}-0/{0:020d}.log")
    for _ in range(MANY):
        assert (await node.produce(VALUE)).error is ErrorCode.NONE
    await asyncio.to_thread(held.entered.wait, 60)
    if deleted:
        cluster.delete_topic()
        await cluster.hear()
        assert not (tmp_path / "n1" / f"{TOPIC}-0").exists(), "it does not wait for the disk"
        held.go.set()
    else:
        stopping = asyncio.get_running_loop().create_task(cluster.stop(1))
        await asyncio.sleep(0.01)
        held.go.set()
        await stopping
        assert point_on_disk(tmp_path, 1) == MANY
    assert not node.disk_failures


@pytest.mark.conforms("LOG-2")
async def test_a_truncation_below_the_recovery_point_lowers_it_in_the_file(cluster: Cluster, /, tmp_path: Path) -> None:
    node, _ = await with_complete_segments(cluster, 1, 2)
    assert await node.partition().log.truncate_to(5) == 5
    assert point_on_disk(tmp_path, 1) == 5
    await cluster.kill(1)
    await cluster.start(1)
    assert not cluster.nodes[1].manager.damaged
    log = cluster.nodes[1].manager.partitions[TOPIC, 0].log
    assert log.log_end_offset == 5

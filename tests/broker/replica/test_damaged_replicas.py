"""Replicas with damaged files, and data of unknown topics: the broker keeps and reports them, and fetches again from
other replicas."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from broker import descriptors
from broker.errors import ErrorCode
from broker.ports import File
from broker.protocol.messages.metadata_records import (
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from broker.replica.manager import METADATA_FILE
from tests.broker.replica.cluster import TOPIC, TOPIC_ID, Cluster, tell, until
from tests.stories import played_by

FLUSH: dict[str, Any] = {"log_flush_interval_messages": 1}

STORIES = played_by(tell, "tmp_path", **FLUSH)


def log_file(root: Path, node: int) -> Path:
    (found,) = (root / f"n{node}" / f"{TOPIC}-0").glob("*.log")
    return found


def flip(path: Path, at: int) -> bytes:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    return bytes(data)


async def killed_with_records(cluster: Cluster, victim: int, *values: str) -> None:
    """The values are on every disk, and the victim's recovery point says so."""
    for value in values:
        assert (await cluster.nodes[1].produce(value)).error is ErrorCode.NONE
    node = cluster.nodes[victim]
    await until(lambda: node.partition().log.durable_end_offset == len(values))
    await node.manager._recovery_points.write_durably()
    await cluster.kill(victim)


@pytest.mark.conforms("K595-7")
def test_a_truncated_replica_does_not_count_as_damaged_after_a_crash(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.create_topic([1, 2])
        cluster.cut |= {(1, 2), (2, 1)}
        node = cluster.nodes[1]
        for value in "abc":
            assert (await node.produce(value, acks=1)).error is ErrorCode.NONE
        await node.manager._recovery_points.write_durably()
        cluster.elect(2)
        await cluster.hear()  # before the links are restored: no replica fetches under the old epoch now
        cluster.cut.clear()
        await until(lambda: node.partition().log.log_end_offset == 0)
        await cluster.kill(1)
        await cluster.start(1)
        await cluster.hear()
        assert not cluster.nodes[1].manager.damaged
        await cluster.nodes[2].produce("d")
        await until(lambda: cluster.nodes[1].content() == ["d"])

    rarely: dict[str, Any] = {
        "high_watermark_checkpoint_interval_ms": 60_000,
        "log_flush_offset_checkpoint_interval_ms": 60_000,
    }
    tell(tmp_path, story, **FLUSH, **rarely, replica_lag_time_max_ms=20_000)


async def test_a_damaged_replica_in_the_isr_goes_offline_with_the_reason(cluster: Cluster, /, tmp_path: Path) -> None:
    await cluster.start(1)
    await cluster.create_topic([1])
    await killed_with_records(cluster, 1, "a", "b", "c")
    damaged = flip(log_file(tmp_path, 1), 65)
    await cluster.start(1)
    cluster.elect(1)
    await cluster.hear()
    node = cluster.nodes[1]
    assert (await node.produce("d")).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert node.read().error is ErrorCode.KAFKA_STORAGE_ERROR
    (failed,) = node.traced("partition_failed")
    assert "from offset 0 to 2 were on disk and are not intact" in failed["reason"]
    assert log_file(tmp_path, 1).read_bytes() == damaged
    assert not node.disk_failures
    # Restarted again, it is offline still: the damage is not forgotten.
    await cluster.stop(1)
    await cluster.start(1)
    assert cluster.nodes[1].traced("partition_failed")
    assert log_file(tmp_path, 1).read_bytes() == damaged


async def test_a_damaged_follower_outside_the_isr_starts_empty_and_keeps_its_old_files(
    cluster: Cluster, /, tmp_path: Path
) -> None:
    await cluster.start(1, 2)
    await cluster.create_topic([1, 2])
    await killed_with_records(cluster, 2, "a", "b", "c")
    damaged = flip(log_file(tmp_path, 2), 65)
    cluster.elect(1, [1])
    await cluster.hear()
    await cluster.start(2)
    cluster.elect(1, [1])
    await cluster.hear()
    await until(lambda: cluster.nodes[2].content() == ["a", "b", "c"])
    (aside,) = cluster.nodes[2].traced("partition_set_aside")
    (kept,) = (tmp_path / "n2" / aside["directory"]).glob("*.log")
    assert kept.read_bytes() == damaged


@pytest.mark.parametrize("moved", [False, True], ids=["before it is moved", "behind that"])
async def test_a_broker_killed_while_it_moves_a_damaged_replica_does_not_trust_it_or_its_offsets(
    cluster: Cluster, /, tmp_path: Path, moved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = tmp_path / "n2" / "recovery-point-offset-checkpoint"
    known_at_creation: list[bool] = []
    await cluster.start(1, 2)
    await cluster.create_topic([1, 2])
    await killed_with_records(cluster, 2, "a", "b", "c")
    flip(log_file(tmp_path, 2), 65)
    cluster.elect(1, [1])
    await cluster.hear()
    await cluster.start(2)
    node = cluster.nodes[2]
    rename = node.disk.rename

    def die(source: str, target: str) -> None:
        if moved:
            rename(source, target)
        monkeypatch.setattr(node.disk, "replace_file", refuse)
        raise OSError(errno.EIO, os.strerror(errno.EIO), source)

    async def refuse(path: str, _: bytes) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    monkeypatch.setattr(node.disk, "rename", die)
    cluster.elect(1, [1])
    await cluster.hear()
    await until(lambda: bool(node.disk_failures))
    await cluster.kill(2)

    await cluster.start(2)
    node = cluster.nodes[2]
    assert bool(node.traced("partition_failed")) is not moved
    assert TOPIC in points.read_text()
    replace_file = node.disk.replace_file

    async def noted(path: str, content: bytes) -> None:
        if path.endswith(METADATA_FILE):
            known_at_creation.append(TOPIC in points.read_text())
        await replace_file(path, content)

    monkeypatch.setattr(node.disk, "replace_file", noted)
    cluster.elect(1, [1])
    await cluster.hear()
    await until(lambda: node.content() == ["a", "b", "c"])
    assert known_at_creation == [False]


@pytest.mark.parametrize("heard", ["one by one", "at once"])
async def test_a_damaged_replica_of_a_deleted_topic_does_not_block_the_broker(
    cluster: Cluster, /, tmp_path: Path, heard: str
) -> None:
    await cluster.start(1)
    await cluster.create_topic([1])
    await killed_with_records(cluster, 1, "a", "b", "c")
    damaged = flip(log_file(tmp_path, 1), 65)
    await cluster.start(1)
    await cluster.hear()
    node = cluster.nodes[1]
    assert node.manager.damaged
    cluster.delete_topic()
    if heard == "one by one":
        await cluster.hear()
        assert not node.manager.damaged, "what this broker has otherwise is as good as before"
    cluster.commit(*made(TOPIC, b"another id of it"))
    await cluster.hear()
    assert not node.manager.damaged
    assert (await node.produce("d")).error is ErrorCode.NONE
    assert node.content() == ["d"]
    (kept,) = (tmp_path / "n1" / f"{TOPIC}-0.1-aside").glob("*.log")
    assert kept.read_bytes() == damaged


async def test_a_damaged_replica_that_has_moved_away_is_kept_aside(cluster: Cluster, /, tmp_path: Path) -> None:
    await cluster.start(1)
    await cluster.create_topic([1])
    await killed_with_records(cluster, 1, "a", "b", "c")
    damaged = flip(log_file(tmp_path, 1), 65)
    await cluster.start(1, 2)
    await cluster.hear()
    assert cluster.nodes[1].manager.damaged
    cluster.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, replicas=[2], isr=[2], leader=2))
    await cluster.hear()
    assert not cluster.nodes[1].manager.damaged
    assert cluster.nodes[1].read().error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    (kept,) = (tmp_path / "n1" / f"{TOPIC}-0.1-aside").glob("*.log")
    assert kept.read_bytes() == damaged


@pytest.mark.parametrize("forgotten", [True, False])
@played_by(tell, "tmp_path")
async def test_only_the_data_of_deleted_topics_is_removed(cluster: Cluster, /, tmp_path: Path, forgotten: bool) -> None:
    await cluster.start(1)
    await cluster.create_topic([1])
    await cluster.nodes[1].produce("a")
    data = log_file(tmp_path, 1).read_bytes()
    await cluster.stop(1)
    if forgotten:  # the metadata log has lost the topic; a client creates a topic of the same name
        cluster.records.clear()
        cluster.committed = type(cluster.committed)()
    else:
        cluster.delete_topic()
    await cluster.start(1)
    await cluster.hear()
    directory = tmp_path / "n1" / f"{TOPIC}-0"
    assert directory.exists() is forgotten
    name, topic_id = TOPIC, b"another id of it"
    assert topic_id != TOPIC_ID
    cluster.commit(*made(name, topic_id))
    await cluster.hear()
    assert cluster.nodes[1].partition().log.log_end_offset == 0
    kept = sorted((tmp_path / "n1").glob(f"{TOPIC}-0.*-aside/*.log"))
    assert [path.read_bytes() for path in kept] == ([data] if forgotten else [])
    assert bool(cluster.nodes[1].traced("partition_removed")) is not forgotten


def test_a_new_topic_starts_empty_when_moving_the_old_one_lacked_a_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[str] = []

    async def story(cluster: Cluster) -> None:
        await cluster.start(1)
        await cluster.create_topic([1])
        await cluster.nodes[1].produce("a")
        await cluster.kill(1)
        data = log_file(tmp_path, 1).read_bytes()
        cluster.records.clear()  # the metadata log has lost the topic; a client creates a topic of the same name
        cluster.committed = type(cluster.committed)()
        await cluster.start(1)
        node = cluster.nodes[1]
        open_ = node.disk.open

        def refuse_once(path: str, *, create: bool = False) -> File:
            if path.endswith(".snapshot") and path not in refused:
                refused.append(path)
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
            return open_(path, create=create)

        monkeypatch.setattr(node.disk, "open", refuse_once)
        cluster.commit(*made(TOPIC, b"another id of it"))
        await cluster.hear()
        assert refused
        assert not node.disk_failures
        assert node.content() == []
        (kept,) = (tmp_path / "n1" / f"{TOPIC}-0.1-aside").glob("*.log")
        assert kept.read_bytes() == data
        assert len(node.traced("partition_set_aside")) == 1

    monkeypatch.setattr(descriptors, "PAUSE_S", 0.0)
    tell(tmp_path, story)


def made(name: str, topic_id: bytes) -> list[MetadataRecord]:
    return [
        TopicRecord(name, topic_id),
        PartitionRecord(
            partition_id=0, topic_id=topic_id, replicas=[1], isr=[1], leader=1, leader_epoch=0, partition_epoch=0
        ),
    ]

"""When a coordinator answers: while it leads the partition, once it has read what is committed there."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.coordinator.led_partition import LedPartition
from broker.errors import ErrorCode, ProtocolError
from broker.groups.group_settings import GroupSettings
from broker.groups.shard import Shard
from broker.protocol.messages.group_records import OffsetCommitKey, OffsetCommitValue, record
from broker.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from broker.protocol.records import Record, build_batch
from broker.replica.background import Background
from tests.broker.replica.cluster import TOPIC, Cluster, Node, until


def coordinator(
    node: Node, *, shard: Shard | None = None, reading: asyncio.Lock | None = None, defects: list[str] | None = None
) -> LedPartition:
    """That of the partition that a broker leads."""
    return LedPartition(
        node.partition(),
        node.leader,
        shard or Shard(GroupSettings(), random.Random(1), lambda: 0, lambda *_: True),
        lease_valid=lambda: True,
        wall_ms=lambda: 0,
        commit_timeout_s=5.0,
        max_batch_bytes=1 << 20,
        background=Background(None if defects is None else lambda text, _: defects.append(text)),
        reading=reading or asyncio.Lock(),
        acknowledges_early=False,
    )


def refusal(led: LedPartition) -> ErrorCode:
    with pytest.raises(ProtocolError) as refused:
        led.check()
    return refused.value.code


@pytest.mark.conforms("CG-4")
def test_a_coordinator_answers_from_what_is_committed_and_only_while_it_leads(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, replica_fetch_wait_max_ms=60_000, replica_lag_time_max_ms=60_000) as cluster:
            await cluster.start(1, 2)
            await cluster.create_topic([1, 2])
            key, value = record(OffsetCommitKey("g", "t", 0), OffsetCommitValue(7, -1, "", 0))
            batch = bytearray(build_batch([Record(0, 0, key, value)]))
            assert (await cluster.nodes[1].manager.produce(TOPIC, 0, batch, -1, 5.0)).error is ErrorCode.NONE
            cluster.cut.add((1, 2))
            cluster.elect(2)
            await cluster.hear()
            led = coordinator(cluster.nodes[2])
            assert refusal(led) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, (
                "it has not heard that the record is committed"
            )
            cluster.cut.clear()
            await until(lambda: led.loaded)
            led.check()
            asked = OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("t", [0])])
            assert led.shard.fetch(asked).topics[0].partitions[0].committed_offset == 7
            cluster.elect(1)
            await cluster.hear()
            assert refusal(led) is ErrorCode.NOT_COORDINATOR
            led.close()

    asyncio.run(story())


def an_offset(group: str, offset: int) -> bytearray:
    """A batch with one offset of partition 0 of topic t."""
    key, value = record(OffsetCommitKey(group, "t", 0), OffsetCommitValue(offset, -1, "", 0))
    return bytearray(build_batch([Record(0, 0, key, value)]))


class Heard(Shard):
    """Tells of every record that it takes in."""

    def __init__(self, heard: Callable[[], None]) -> None:
        super().__init__(GroupSettings(), random.Random(1), lambda: 0, lambda *_: True)
        self._heard = heard

    def replay(self, key: bytes, value: bytes | None) -> None:
        super().replay(key, value)
        self._heard()


def test_of_those_that_load_one_reads_in_a_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.coordinator.led_partition.LOAD_BYTES", 1)  # a batch in a turn
    reads: list[tuple[int, int]] = []
    turn = 0

    async def story() -> None:
        def begin_turn() -> None:
            nonlocal turn
            turn += 1
            asyncio.get_running_loop().call_soon(begin_turn)

        async with Cluster(tmp_path) as cluster:
            await cluster.start(1)
            await cluster.create_topic([1])
            for number in range(3):
                assert (
                    await cluster.nodes[1].manager.produce(TOPIC, 0, an_offset(f"g{number}", 7), -1, 5.0)
                ).error is (ErrorCode.NONE)
            cluster.elect(1)
            await cluster.hear()
            begin_turn()
            reading = asyncio.Lock()
            several = [
                coordinator(cluster.nodes[1], shard=Heard(lambda its=its: reads.append((turn, its))), reading=reading)
                for its in range(4)
            ]
            await until(lambda: all(led.loaded for led in several))
            for led in several:
                led.close()

    asyncio.run(story())
    assert len(reads) == 12
    assert len({turn for turn, _ in reads}) == 12, "each has a turn for itself"
    assert [its for _, its in reads[:4]] == [0, 1, 2, 3], "nobody waits until another has read all"


def test_a_partition_that_is_taken_away_while_it_is_loaded_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.coordinator.led_partition.LOAD_BYTES", 1)  # a batch in a turn
    records: list[None] = []
    defects: list[str] = []

    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            await cluster.start(1)
            await cluster.create_topic([1])
            for number in range(3):
                batch = an_offset(f"g{number}", 7)
                assert (await cluster.nodes[1].manager.produce(TOPIC, 0, batch, -1, 5.0)).error is ErrorCode.NONE
            cluster.elect(1)
            await cluster.hear()
            reading = asyncio.Lock()
            shard = Heard(lambda: records.append(None))
            async with reading:
                led = coordinator(cluster.nodes[1], shard=shard, reading=reading, defects=defects)
                await asyncio.sleep(0)
            (loading,) = (task for task in asyncio.all_tasks() if task.get_name().startswith("loading"))
            async with reading:
                assert len(records) == 1
                cluster.delete_topic()
                await cluster.hear()  # the replica is gone; the group coordinator hears of it only after that
            await asyncio.wait([loading])
            assert not led.loaded
            led.close()

    asyncio.run(story())
    assert len(records) == 1
    assert defects == []

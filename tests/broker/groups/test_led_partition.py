"""When a coordinator answers: while it leads the partition, once it has read what is committed there."""

from __future__ import annotations

import asyncio
import random
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


def coordinator(node: Node) -> LedPartition:
    """That of the partition that a broker leads."""
    return LedPartition(
        node.partition(),
        node.leader,
        Shard(GroupSettings(), random.Random(1), lambda: 0, lambda *_: True),
        lease_valid=lambda: True,
        wall_ms=lambda: 0,
        commit_timeout_s=5.0,
        max_batch_bytes=1 << 20,
        background=Background(),
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

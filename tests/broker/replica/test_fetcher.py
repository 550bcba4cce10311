"""What a follower does with a leader that refuses it, in virtual time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.errors import ErrorCode
from broker.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from broker.protocol.schema import Message
from broker.replica.background import Background
from broker.replica.fetcher import BACKOFF_MIN, LeaderFetcher
from broker.replica.follower import PartitionFollower
from broker.replica.partition import Partition
from simulator.loop import new_loop
from tests.broker.controller.world import configuration
from tests.broker.replica.story import MemoryEpochs, MemoryLog


class RecoveringLeader:
    """Answers as a leader does that was elected uncleanly and still recovers (K704-5)."""

    def __init__(self) -> None:
        self.asked_at: list[float] = []

    async def request(self, node_id: int, message: Message, version: int, timeout: float) -> Message:  # noqa: ARG002
        self.asked_at.append(asyncio.get_running_loop().time())
        refused = [
            OffsetForLeaderTopicResult(
                topic.topic,
                [EpochEndOffset(ErrorCode.NOT_LEADER_OR_FOLLOWER, asked.partition) for asked in topic.partitions],
            )
            for topic in cast(OffsetForLeaderEpochRequest, message).topics
        ]
        return OffsetForLeaderEpochResponse(topics=refused)


async def never_moves(_partition: Partition, _start: int) -> None:
    raise AssertionError("nothing was fetched")


def followed() -> tuple[Any, PartitionFollower]:
    """A partition with one record, which follows a leader of a later epoch."""
    follower = PartitionFollower(leader_id=2, leader_epoch=1, partition_epoch=1, high_watermark=0)
    log = MemoryLog([(0, "a")], MemoryEpochs([(0, 0)]))
    return SimpleNamespace(key=("t", 0), topic="t", index=0, role=follower, log=log), follower


@pytest.mark.conforms("K704-10")
def test_a_follower_that_is_refused_stands_back_up_to_the_backoff_that_is_set() -> None:
    leader, loop = RecoveringLeader(), new_loop()

    async def story() -> None:
        fetcher = LeaderFetcher(
            2,
            config=configuration(replica_fetch_backoff_ms=100),
            peers=leader,
            broker_epoch=lambda: 1,
            background=Background(),
            move_start=never_moves,
        )
        fetcher.add(*followed())
        await asyncio.sleep(60)
        await fetcher.stop()

    loop.run_until_complete(story())
    pauses = [round(after - before, 6) for before, after in zip(leader.asked_at, leader.asked_at[1:], strict=False)]
    assert pauses[:4] == [BACKOFF_MIN, 2 * BACKOFF_MIN, 4 * BACKOFF_MIN, 8 * BACKOFF_MIN]
    assert set(pauses[4:]) == {0.1}
    assert len(pauses) > 500, "it never gives up"

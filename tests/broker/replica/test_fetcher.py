"""A follower of a leader that refuses it, or has another log, in virtual time."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.errors import ErrorCode
from broker.mutants import Mutants
from broker.protocol.messages import fetch
from broker.protocol.messages.offset_apis import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from broker.replica.background import Background
from broker.replica.fetcher import BACKOFF_MIN, LeaderFetcher
from broker.replica.follower import PartitionFollower
from broker.replica.partition import Partition
from broker.replica.partition_work import PartitionWork
from broker.replica.tiered_start import TieredStart
from simulator.loop import new_loop
from tests.broker.controller.world import configuration
from tests.broker.replica.story import MemoryEpochs, MemoryLog

TOPIC_ID = bytes(range(16))


class RecoveringLeader:
    """Answers as a leader does that was elected uncleanly and still recovers (K704-5)."""

    def __init__(self) -> None:
        self.asked_at: list[float] = []

    async def request(self, node_id: int, message: Any, timeout: float, version: int | None = None) -> Any:  # noqa: ARG002
        self.asked_at.append(asyncio.get_running_loop().time())
        refused = [
            OffsetForLeaderTopicResult(
                topic.topic,
                [EpochEndOffset(ErrorCode.NOT_LEADER_OR_FOLLOWER, asked.partition) for asked in topic.partitions],
            )
            for topic in cast(OffsetForLeaderEpochRequest, message).topics
        ]
        return OffsetForLeaderEpochResponse(topics=refused)


class PartingLeader:
    """A leader whose epoch 0 ends at offset 2 in its first answer and at 1 in later ones: it leads with another log
    than in its first answer. It does not answer a fetch that agrees with that log."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        """Of a question the epoch, of a fetch the offset."""

    async def request(self, node_id: int, message: Any, timeout: float, version: int | None = None) -> Any:  # noqa: ARG002
        if isinstance(message, OffsetForLeaderEpochRequest):
            ((question,),) = (topic.partitions for topic in message.topics)
            end = 1 if self.asked else 2
            self.asked.append(("epoch", question.leader_epoch))
            its = EpochEndOffset(partition=0, leader_epoch=question.leader_epoch, end_offset=end)
            return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult("t", [its])])
        ((position,),) = (topic.partitions for topic in cast(fetch.FetchRequest, message).topics)
        self.asked.append(("offset", position.fetch_offset))
        if position.fetch_offset == 1:
            await asyncio.Event().wait()
        parted = fetch.PartitionData(high_watermark=2, diverging_epoch=fetch.EpochEndOffset(0, 1))
        return fetch.FetchResponse(responses=[fetch.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[parted])])


class CutLog(MemoryLog):
    """A log that is cut as the real one is."""

    async def truncate_to(self, offset: int) -> None:
        self.truncate(offset)


async def never_moves(_partition: Partition, _start: int) -> None:
    raise AssertionError("nothing was fetched")


def followed(*values: str) -> tuple[Any, PartitionFollower]:
    """A partition with records of epoch 0, which follows a leader of a later epoch."""
    follower = PartitionFollower(leader_id=2, leader_epoch=1, partition_epoch=1, high_watermark=0)
    partition = SimpleNamespace(
        key=("t", 0),
        topic="t",
        topic_id=TOPIC_ID,
        index=0,
        role=follower,
        log=CutLog([(0, value) for value in values], MemoryEpochs([(0, 0)])),
        lock=asyncio.Lock(),
        flush_before_commit=False,
        trace=lambda event, **fields: None,  # noqa: ARG005
    )
    return partition, follower


async def follow_for(seconds: float, leader: Any, partition: Any, follower: PartitionFollower) -> None:
    config = configuration(replica_fetch_backoff_ms=100)
    fetcher = LeaderFetcher(
        2,
        config=config,
        peers=leader,
        broker_epoch=lambda: 1,
        background=Background(),
        move_start=never_moves,
        tiered_start=TieredStart(config, leader, lambda: None, dict, Mutants()),
        work=PartitionWork(),
    )
    fetcher.add(partition, follower)
    await asyncio.sleep(seconds)
    await fetcher.stop()


@pytest.mark.conforms("K704-10")
def test_a_refused_follower_waits_up_to_the_configured_backoff() -> None:
    leader, loop = RecoveringLeader(), new_loop()

    loop.run_until_complete(follow_for(60, leader, *followed("a")))
    pauses = [round(after - before, 6) for before, after in zip(leader.asked_at, leader.asked_at[1:], strict=False)]
    assert pauses[:4] == [BACKOFF_MIN, 2 * BACKOFF_MIN, 4 * BACKOFF_MIN, 8 * BACKOFF_MIN]
    assert set(pauses[4:]) == {0.1}
    assert len(pauses) > 500, "it never gives up"


@pytest.mark.conforms("H7", "K101-7")
def test_a_diverging_follower_queries_again_and_truncates_before_it_fetches() -> None:
    leader = PartingLeader()
    partition, follower = followed("a", "b")
    new_loop().run_until_complete(follow_for(60, leader, partition, follower))
    assert leader.asked == [("epoch", 0), ("offset", 2), ("epoch", 0), ("offset", 1)]
    assert partition.log.records == [(0, "a")]
    assert follower.high_watermark == 0, "that of another log is not taken"

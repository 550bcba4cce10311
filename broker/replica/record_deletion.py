"""DeleteRecords (KIP-107): moves the start of a partition's log, and answers once no replica can take that back.

The leader moves its own log's start, and followers move theirs when they learn it with their next fetch. The request is
answered when the low watermark has reached the offset: the lowest log start of the live replicas, of the members of the
ISR, and of the replicas that may be elected without joining it again (KIP-966). A follower may join the ISR only when
its log starts where the leader's does. So the log starts at the answered offset or later at every later leader that was
elected cleanly.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from broker.controller.image import MetadataImage
from broker.errors import ErrorCode
from broker.mutants import Mutants
from broker.replica.leader import PartitionLeader
from broker.replica.partition import Partition

HIGH_WATERMARK = -1
"""As an offset: everything committed."""


@dataclass
class PendingDeletion:
    """The state of a deletion. Without `done` the answer is final: `error`. `offset`: the low watermark
    of the answer."""

    error: ErrorCode
    offset: int = -1
    done: asyncio.Future[ErrorCode] | None = None
    partition: Partition | None = None
    low_watermark: Callable[[], int] = field(default=lambda: -1)
    leader_epoch: int = -1

    async def answer(self) -> tuple[ErrorCode, int]:
        """Error and low watermark, -1 for errors.."""
        error = self.error if self.done is None else await self.done
        if error is not ErrorCode.NONE or self.partition is None:
            return error, -1
        reached = max(self.offset, self.low_watermark())
        self.partition.trace("records_deleted", low_watermark=reached, leader_epoch=self.leader_epoch)
        return error, reached


class RecordDeletion:
    """The deletions of one broker."""

    def __init__(
        self,
        find: Callable[[str, int], Partition | ErrorCode],
        lease_valid: Callable[[], bool],
        image: Callable[[], MetadataImage],
        move_start: Callable[[Partition, int], Awaitable[None]],
        mutants: Mutants,
    ) -> None:
        self._find = find
        self._lease_valid = lease_valid
        self._image = image
        self._move_start = move_start
        self._answers_early = mutants.active("delete_answered_early")

    async def start(self, topic: str, index: int, offset: int, timeout_s: float) -> PendingDeletion:
        """Move the leader's start to `offset`, `HIGH_WATERMARK` or an offset up to it. The answer is REQUEST_TIMED_OUT
        if the low watermark has not reached it after `timeout_s`; the start stays moved."""
        partition = self._find(topic, index)
        if isinstance(partition, ErrorCode):
            return PendingDeletion(partition)
        leader = partition.serving
        if leader is None or not self._lease_valid():
            return PendingDeletion(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if offset == HIGH_WATERMARK:
            offset = partition.high_watermark
        if not 0 <= offset <= partition.high_watermark:
            return PendingDeletion(ErrorCode.OFFSET_OUT_OF_RANGE)
        if offset > partition.log.log_start_offset:
            await self._move_start(partition, offset)
        # Again, after the waits. A leader of a later epoch may have truncated the log meanwhile.
        if partition.serving is not leader or not self._lease_valid() or partition.log.log_start_offset < offset:
            failed = partition.error is ErrorCode.KAFKA_STORAGE_ERROR
            return PendingDeletion(partition.error if failed else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        low_watermark = partial(self._low_watermark, partition, leader)
        done = None if low_watermark() >= offset else partition.deletions.wait(offset, timeout_s)
        return PendingDeletion(ErrorCode.NONE, offset, done, partition, low_watermark, leader.leader_epoch)

    def progressed(self, partition: Partition) -> None:
        """A follower has fetched, or the set of replicas that count has changed."""
        leader = partition.serving
        if leader is not None and len(partition.deletions):
            partition.deletions.reached(self._low_watermark(partition, leader))

    def _low_watermark(self, partition: Partition, leader: PartitionLeader) -> int:
        start = partition.log.log_start_offset
        if self._answers_early:
            return start
        image = self._image()
        state = image.partition(*partition.key)
        unfenced = {broker.id for broker in image.brokers.values() if not broker.fenced}
        members = () if state is None else [peer for peer in state.replicas if peer in unfenced or peer in state.elr]
        return min(start, leader.low_watermark(members))

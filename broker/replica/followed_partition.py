"""A partition that follows its leader in one leader epoch: executes the decisions of the pure follower on the log.

Responses of the leader may arrive late. So each action first checks that the partition still has the role and the
position for which the request was sent; otherwise the response is dropped.
"""

from dataclasses import dataclass

from broker.errors import is_out_of_descriptors
from broker.log.append_validation import UnpreparedEpochError
from broker.log.remote_start import StateBelow
from broker.ports import Buffer
from broker.protocol.records import iter_batches
from broker.replica.follower import AskEpochEnd, PartitionFollower, Phase, Truncate
from broker.replica.partition import Partition


@dataclass(eq=False)
class FollowedPartition:
    """A partition in the role of a follower. `not_before`: when it may send its next request, in loop time.

    `starting`: its start from remote storage is in progress, so it sends no fetch. `unknown_since`: since when its
    leader has not known what is tiered. `reason`: why it did not start last time.
    """

    partition: Partition
    follower: PartitionFollower
    not_before: float = 0.0
    failures: int = 0
    fetch_offset: int = -1
    starting: bool = False
    unknown_since: float | None = None
    reason: str | None = None

    @property
    def current(self) -> bool:
        """Whether the partition still has this role."""
        return self.partition.role is self.follower

    @property
    def sends(self) -> bool:
        """Whether the partition may send requests of the fetch loop."""
        return self.current and not self.starting

    async def next_question(self) -> AskEpochEnd | None:
        """Execute the steps of the dialogue that need no response; returns the next question, if there is one."""
        while self.current and self.follower.phase is Phase.TRUNCATING:
            step = self.follower.next_step(self.partition.log)
            if isinstance(step, AskEpochEnd):
                return step
            await self._take_step(step)
        return None

    async def epoch_end_answered(self, epoch: int, end_offset: int) -> None:
        """The leader's answer to `next_question`."""
        if not self.current or self.follower.phase is not Phase.TRUNCATING:
            return
        await self._take_step(self.follower.epoch_end_answered(self.partition.log, epoch, end_offset))

    async def in_range(self, leader_log_start: int) -> None:
        """The leader has the offset. The log restarts at the leader's start if its records may be others."""
        if self._continues():
            step = self.follower.in_range(self.partition.log, leader_log_start)
            if step is not None:
                await self._take_step(step)

    async def out_of_range(self, leader_log_start: int) -> bool:
        """The leader does not have this offset. True: the log restarts at the leader's start; False: the dialogue
        does."""
        step = self.follower.out_of_range(self.partition.log, leader_log_start)
        if step is None:
            return False
        await self._take_step(step)
        return True

    def waits_for(self, reason: str) -> None:
        """The partition cannot start yet. Traced when the reason changes, not at every try, and not after the role has
        ended: the partition may have reported a later epoch."""
        if self.current and reason != self.reason:
            self.reason = reason
            self.partition.trace("bootstrap_waits", leader_epoch=self.follower.leader_epoch, reason=reason)

    async def start_at(self, offset: int) -> None:
        """Drop the log and start it at the leader's log start."""
        await self._take_step(Truncate(offset, "leader-start", restart=True))

    async def start_above(self, offset: int, below: StateBelow) -> None:
        """Drop the log and start it at `offset`, above records that are in remote storage."""
        async with self.partition.lock:
            if self.current:
                await self._start_above(offset, below)

    async def _start_above(self, offset: int, below: StateBelow) -> None:
        partition, log = self.partition, self.partition.log
        before = log.log_end_offset
        try:
            await log.start_above(offset, below)
        except OSError as error:
            partition.fail(error)
            return
        self.follower.truncated(Truncate(offset, "remote-start", restart=True), log)
        partition.trace(
            "bootstrapped",
            from_offset=before,
            log_start_offset=log.log_start_offset,
            local_start_offset=log.local_start_offset,
            latest_epoch=log.epochs.latest_epoch,
            leader_epoch=self.follower.leader_epoch,
        )

    async def append(self, records: Buffer, high_watermark: int) -> None:
        """Append the records that the leader sent for `fetch_offset`, then adopt its high watermark (H7).

        Batches of a leader epoch that this follower does not know yet are skipped (H11). Raises `ValueError` when the
        first batch is corrupt or does not continue the log, or when no file descriptor is free.
        """
        if not self._continues():
            return
        try:
            if records and not await self._append(records):
                return
        except OSError as error:
            if is_out_of_descriptors(error):
                raise ValueError(str(error)) from error
            self.partition.fail(error)
            return
        self.follower.high_watermark_reported(high_watermark, self.partition.log.log_end_offset)

    async def _append(self, records: Buffer) -> bool:
        log, epoch = self.partition.log, self.follower.leader_epoch
        if log.log_end_offset == log.log_start_offset and await self._begins_inside(records):
            return self.current
        try:
            log.append_as_follower(records, epoch)
        except UnpreparedEpochError:
            # The batches start an epoch, which must be durable first (K101-8). No role change may happen in between.
            async with self.partition.lock:
                if not self._continues():
                    return False
                await log.replicate(records, epoch)
        return True

    async def _begins_inside(self, records: Buffer) -> bool:
        """Whether the leader's log starts inside a batch, which is sent whole. This log then starts with that batch."""
        log = self.partition.log
        header = next((header for _, header in iter_batches(records)), None)
        start = log.log_end_offset
        if header is None or not header.base_offset < start < header.next_offset:
            return False
        async with self.partition.lock:
            if self._continues():
                await log.truncate_fully_and_start_at(header.base_offset)
                await log.replicate(records, self.follower.leader_epoch)
        return True

    def _continues(self) -> bool:
        return (
            self.current
            and self.follower.phase is Phase.FETCHING
            and self.fetch_offset == self.partition.log.log_end_offset
        )

    async def _take_step(self, step: Truncate) -> None:
        """Truncate as the dialogue decided: first the epoch file, then the log; only then fetching may start
        (K101-7)."""
        partition, log = self.partition, self.partition.log
        async with partition.lock:
            if not self.current:
                return
            before = log.log_end_offset
            try:
                if step.restart:
                    await log.truncate_fully_and_start_at(step.to_offset)
                else:
                    await log.truncate_to(step.to_offset)
            except OSError as error:
                partition.fail(error)
                return
            # Batches are never split: the log may end lower than the step says.
            self.follower.truncated(step, log)
            partition.trace(
                "truncated",
                from_offset=before,
                to_offset=log.log_end_offset,
                rule=step.rule,
                lossy=step.lossy,
                leader_epoch=self.follower.leader_epoch,
            )

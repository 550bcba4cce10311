"""One partition on this broker: its log, its role in the current leader epoch, and the requests that wait for it.

The roles decide; this class appends, truncates, flushes and wakes. Only `lead`, `follow`, `stop` and `fail` change the
role. They and every truncation hold `lock`, so that a truncation never overlaps with a new role.

Retention, by age and by the log's size, removes only whole segments, from the oldest on and without a gap, and only
committed ones: nothing at or past the high watermark. The last segment is removed too once all of it has expired; the
log starts a new one before.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from broker.config import BrokerConfig
from broker.controller.image import PartitionImage
from broker.errors import ErrorCode, ProtocolError, is_out_of_descriptors
from broker.log.append_validation import Admit, TimestampLimits
from broker.log.log import PartitionLog
from broker.log.segment import Segment
from broker.log.timestamps import TimedOffset
from broker.log.validation import admit, admit_keyed
from broker.mutants import Mutants
from broker.ports import Buffer
from broker.protocol.records import NO_TIMESTAMP, CorruptBatch
from broker.replica.background import Background, end
from broker.replica.follower import PartitionFollower
from broker.replica.leader import IsrProposal, PartitionLeader
from broker.replica.purgatory import FetchWaiters, OffsetWaiters
from broker.tiered.manifest import TieredOffset
from broker.topic_settings import COMPACT, DELETE, TopicSettings
from broker.trace import Tracer, Value

NO_LIMIT = -1


class RetainedSegment(Protocol):
    """The properties that matter: bytes, the offset behind its last record, its largest timestamp (ms, -1: none)."""

    @property
    def size(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...


def expired_below(
    segments: Sequence[RetainedSegment], high_watermark: int, now_ms: int, *, retention_ms: int, retention_bytes: int
) -> int | None:
    """The offset below which everything has expired; None if nothing has. `now_ms` -1: unknown time."""
    surplus = sum(segment.size for segment in segments) - retention_bytes if retention_bytes != NO_LIMIT else 0
    expired_end: int | None = None
    for segment in segments:
        is_last = segment is segments[-1]
        old = (
            retention_ms != NO_LIMIT
            and now_ms >= 0
            and segment.max_timestamp >= 0
            and now_ms - segment.max_timestamp > retention_ms
        )
        large = not is_last and 0 < segment.size <= surplus
        if not segment.size or segment.next_offset > high_watermark or not (old or large):
            break
        surplus -= segment.size
        expired_end = segment.next_offset
    return expired_end


# ---- The part of a log's remote storage that its replica uses.


class RemoteView(Protocol):
    """What remote storage has of one replica's log."""

    @property
    def ready(self) -> bool:
        """Whether all events were read that were committed before the replica took its current role."""
        ...

    @property
    def is_read(self) -> bool:
        """Whether the events of the log were read to their end since this process started."""
        ...

    def highest_tiered(self) -> TieredOffset | None:
        """The last record of the log in remote storage; None without one."""
        ...

    def covered_to(self, offset: int) -> int:
        """Remote storage has all committed records from `offset` to before the result."""
        ...

    def read(self, offset: int, max_bytes: int, *, min_one: bool) -> Sequence[Buffer] | ErrorCode | None:
        """Whole batches from the one that contains `offset`, which is only remote, as parts to be concatenated; None:
        they are being loaded, and `consumer_fetches` will be woken."""
        ...

    def first_not_before(self, timestamp: int) -> TimedOffset | ErrorCode | None:
        """The first record that is only remote and not earlier than `timestamp` (ms); None without one. An error: ask
        again later."""
        ...

    def retained(self, start: int, end: int) -> Sequence[RetainedSegment]:
        """The remote segments with the records from `start` to before `end`, for retention."""
        ...


ALL = -1


@dataclass(slots=True)
class PendingAppend:
    """The state of a produce. `done` is None if the answer is known at once; otherwise it gets the error, or NONE."""

    base_offset: int
    log_start_offset: int
    done: asyncio.Future[ErrorCode] | None = None


class Partition:
    """A replica of a partition. Without a role it serves no requests."""

    def __init__(
        self,
        *,
        topic: str,
        index: int,
        topic_id: bytes,
        log: PartitionLog,
        high_watermark: int,
        config: BrokerConfig,
        tracer: Tracer,
        background: Background,
        on_disk_failure: Callable[[OSError], None],
        mutants: Mutants | None = None,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        """`now_ms` returns the wall clock in ms, -1 for an unknown time. Without a time, timestamps have no limits."""
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.role: PartitionLeader | PartitionFollower | None = None
        self.lock = asyncio.Lock()
        self.commits = OffsetWaiters()
        self.flushes = OffsetWaiters()
        self.deletions = OffsetWaiters()
        self.replica_fetches = FetchWaiters()
        self.consumer_fetches = FetchWaiters()
        self.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self._high_watermark = max(min(high_watermark, log.log_end_offset), log.log_start_offset)
        self._config = config
        self._now_ms = now_ms or (lambda: NO_TIMESTAMP)
        self._use(TopicSettings.of({}, config))
        self._tracer = tracer
        self._background = background
        self._on_disk_failure = on_disk_failure
        self._mutants = mutants or Mutants()
        self._serves_while_recovering = self._mutants.active("serve_while_recovering")
        self.skips_an_upload = int(self._mutants.active("epuo_off_by_one"))
        self.tiers_above_high_watermark = self._mutants.active("tier_above_hw")
        self.tiers_ignore_lineage = self._mutants.active("remote_ignores_lineage")
        self.clamps_pending_upload = not self._mutants.active("epuo_no_clamp")
        self.uploads_only_records = self._mutants.active("auxiliary_not_uploaded")
        self.removes_unknown_objects = self._mutants.active("sweep_by_manifest")
        self.looks_up_locally = self._mutants.active("lookup_ignores_remote")
        self._acknowledges_early = self._mutants.active("ack_before_hw")
        self._flushing: asyncio.Task[None] | None = None
        self._flushing_segments: asyncio.Task[None] | None = None
        log.after_roll = self._flush_segments_soon
        self._unlinking: asyncio.Task[None] | None = None
        log.deleted.added = self._unlink_later
        self._traced: tuple[int, int, int] | None = None
        self._traced_starts: dict[str, int] = {}
        self.jumped_to: int | None = None
        """Where the log started locally after the last tiered offset (KIP-1023), in this process."""
        self.remote: RemoteView | None = None
        """What remote storage has of the log; None without tiered storage."""

    @property
    def key(self) -> tuple[str, int]:
        return (self.topic, self.index)

    @property
    def high_watermark(self) -> int:
        return self._high_watermark if self.role is None else self.role.high_watermark

    @property
    def leader_epoch(self) -> int:
        """The epoch of the current role; -1 without one."""
        return -1 if self.role is None else self.role.leader_epoch

    @property
    def serving(self) -> PartitionLeader | None:
        """The leader's role; None if this broker does not lead, or recovers from an unclean election (K704-5).

        While it is None, requests are answered with `error`.
        """
        role = self.role
        if isinstance(role, PartitionLeader) and (not role.recovering or self._serves_while_recovering):
            return role
        return None

    @property
    def _is_read_again(self) -> bool:
        """Whether a recovering leader is reading the log: its segments do not change until that is over."""
        return isinstance(self.role, PartitionLeader) and self.role.recovering

    @property
    def leader(self) -> PartitionLeader:
        """`serving`. Raises `ProtocolError` if this broker does not serve the partition (or its disk failed)."""
        role = self.serving
        if role is not None:
            return role
        raise ProtocolError(self.error, f"{self.topic}-{self.index}: this broker does not lead, or not yet")

    def configure(self, settings: TopicSettings) -> None:
        """Apply the topic's committed configuration."""
        self._use(settings)
        changed = partial(
            replace,
            segment_bytes=settings.segment_bytes,
            index_interval_bytes=settings.index_interval_bytes,
            segment_ms=settings.segment_ms,
            file_delete_delay_ms=settings.file_delete_delay_ms,
        )
        self.log.configure(changed)

    def _use(self, settings: TopicSettings) -> None:
        """Derive from the settings once what each append needs."""
        self._settings = settings
        self.flush_before_commit = settings.flush_before_commit
        """Whether a record must be on disk before it counts for the ISR (`flush.messages` = 1)."""
        self._admit: Admit = admit_keyed if COMPACT in settings.cleanup else admit
        before_max_ms, after_max_ms = settings.timestamp_before_max_ms, settings.timestamp_after_max_ms
        self._check_timestamps = TimestampLimits(before_max_ms, after_max_ms, self._now_ms).check

    @property
    def settings(self) -> TopicSettings:
        """The topic's settings, as last applied."""
        return self._settings

    @property
    def has_few_local_records(self) -> bool:
        """Whether the replica started after the last tiered offset, and has not reached its local retention since."""
        return self.jumped_to is not None and self.log.log_start_offset < self.log.local_start_offset <= self.jumped_to

    # -- roles --------------------------------------------------------------------------------------------------

    async def lead(self, state: PartitionImage, min_insync_replicas: int) -> None:
        """Become leader of a new epoch. The epoch file has the epoch, durably, before anything is served (K101-3)."""
        async with self.lock:
            still_leads = isinstance(self.role, PartitionLeader)
            self._leave_role(keep_producers=still_leads)
            try:
                await self.log.start_leader_epoch(state.leader_epoch)
                if self.flush_before_commit:
                    await self.log.flush()
            except OSError as error:
                self.fail(error)
                return
            self.role = PartitionLeader(
                node_id=self._config.node_id,
                replicas=state.replicas,
                isr=state.isr,
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch,
                epoch_start_offset=self.log.log_end_offset,
                log_start_offset=self.log.log_start_offset,
                committable_end=self.log.log_end_offset,
                high_watermark=self._high_watermark,
                min_insync_replicas=min_insync_replicas,
                lag_time_max=self._config.replica_lag_time_max_ms / 1000,
                now=asyncio.get_running_loop().time(),
                recovering=state.recovering,
                mutants=self._mutants,
            )
            self._trace_role("leader", state)
            self.flushes.reached(self.log.log_end_offset)
            self._high_watermark_rose()
            self._give_up_commits_below_min_isr(self.role)

    async def follow(self, state: PartitionImage) -> PartitionFollower:
        """Become a follower in a new epoch; a leader of -1 means that the partition has no leader yet."""
        async with self.lock:
            self._leave_role()
            follower = PartitionFollower(
                leader_id=state.leader,
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch,
                high_watermark=self._high_watermark,
                in_sync=self._config.node_id in state.isr,
                mutants=self._mutants,
            )
            self.role = follower
            self._trace_role("follower", state)
            return follower

    async def stop(self) -> None:
        """Give up the role and fail all waiting requests. The log stays open."""
        async with self.lock:
            self._leave_role()
        await end(self._flushing_segments)  # closing or deleting the log does the rest
        await end(self._unlinking)  # the next start unlinks the rest
        if self._flushing is not None:
            await asyncio.gather(self._flushing, return_exceptions=True)

    def fail(self, error: OSError) -> None:
        """The disk failed: the content of the log is unknown, so nothing of it is served or counted any more."""
        self.error = ErrorCode.KAFKA_STORAGE_ERROR
        self._leave_role()
        self.trace("partition_failed", reason=str(error))
        self._on_disk_failure(error)

    def _leave_role(self, *, keep_producers: bool = False) -> None:
        """`keep_producers`: waiting producers continue to wait, because the same log continues in a new epoch.

        Their batches have been appended and may still be committed. After an error that means "refused", such as
        NOT_LEADER_OR_FOLLOWER, librdkafka sends them again, even without retries, and the log would have them twice.
        """
        if self.role is not None:
            self._high_watermark = self.role.high_watermark
            self.role = None
        if not keep_producers:
            self.commits.fail(ErrorCode.REQUEST_TIMED_OUT)
            self.flushes.fail(ErrorCode.REQUEST_TIMED_OUT)
        self.deletions.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        # A parked fetch is checked again and gets the error now, instead of at its timeout (H24).
        self.replica_fetches.wake()
        self.consumer_fetches.wake()

    def isr_committed(
        self, leader_epoch: int, isr: Iterable[int], partition_epoch: int, *, recovering: bool = False
    ) -> bool:
        """The controller's ISR for the epoch that this broker leads. True: it is news."""
        role = self.role
        if not isinstance(role, PartitionLeader) or role.leader_epoch != leader_epoch:
            return False
        before, recovered = role.high_watermark, role.recovering and not recovering
        now = asyncio.get_running_loop().time()
        if not role.isr_committed(isr, partition_epoch, now, recovering=recovering):
            return False
        if recovered:
            self.trace("leader_recovered", leader_epoch=leader_epoch, log_end_offset=self.log.log_end_offset)
        self.trace("isr_changed", isr=list(role.isr), partition_epoch=role.partition_epoch)
        if role.high_watermark > before:
            self._high_watermark_rose()
        self._give_up_commits_below_min_isr(role)
        return True

    def updated(self, state: PartitionImage, min_insync_replicas: int) -> None:
        """Newer metadata within the leader epoch of this replica: further replicas, another ISR, other settings."""
        if isinstance(self.role, PartitionFollower):
            self.role.partition_epoch = state.partition_epoch
        elif self.role is not None:
            self.role.set_replicas(state.replicas)
            if self.role.set_min_insync_replicas(min_insync_replicas):
                self._high_watermark_rose()
            epoch, isr = state.leader_epoch, state.isr
            if not self.isr_committed(epoch, isr, state.partition_epoch, recovering=state.recovering):
                self._give_up_commits_below_min_isr(self.role)

    def proposal_refused(self, proposal: IsrProposal) -> None:
        """The controller has not applied a proposal. Without the proposed replica, more may be committed."""
        if isinstance(self.role, PartitionLeader):
            self.role.proposal_refused(proposal)
            self._high_watermark_rose()

    def _give_up_commits_below_min_isr(self, leader: PartitionLeader) -> None:
        # The waiting records were appended while the ISR was large enough; now nothing is committed (H16).
        if not leader.enough_in_sync:
            self.commits.fail(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

    # -- the leader's log ---------------------------------------------------------------------------------------

    def append(self, records: bytearray | memoryview, acks: int, timeout: float) -> PendingAppend:
        """Append a producer's batches; the answer may have to wait. Raises `ProtocolError`; nothing is appended.

        A batch that an idempotent producer repeats waits for the same offset as the first time.
        """
        leader = self.leader
        if acks == ALL and not leader.enough_in_sync:
            raise ProtocolError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic}-{self.index}: the ISR {list(leader.isr)} is smaller than {leader.min_insync_replicas}",
            )
        if len(records) > self._settings.max_message_bytes:
            limit = f"{len(records)} bytes exceed max.message.bytes={self._settings.max_message_bytes}"
            raise ProtocolError(ErrorCode.MESSAGE_TOO_LARGE, limit)
        try:
            info = self.log.append_as_leader(
                records, leader.leader_epoch, admit=self._admit, check=self._check_timestamps
            )
        except CorruptBatch as error:
            raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        except OSError as error:
            if not is_out_of_descriptors(error):  # descriptors may become free; nothing was written
                self.fail(error)
            raise ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        if info.bytes:
            self._log_grew(leader)
        return PendingAppend(
            info.base_offset, self.log.log_start_offset, self._answer(leader, info.last_offset + 1, acks, timeout)
        )

    def _log_grew(self, leader: PartitionLeader) -> None:
        if self.flush_before_commit:
            self._flush_soon()
        elif leader.log_grew(self.log.log_end_offset):
            self._high_watermark_rose()
        self.replica_fetches.wake()

    def _answer(self, leader: PartitionLeader, end: int, acks: int, timeout: float) -> asyncio.Future[ErrorCode] | None:
        if acks == ALL and leader.high_watermark < end and not self._acknowledges_early:
            return self.commits.wait(end, timeout)
        if acks == 1 and self.flush_before_commit and self.log.durable_end_offset < end:
            return self.flushes.wait(end, timeout)
        return None

    def replica_fetched(self, replica: int, broker_epoch: int, fetch_offset: int, log_start_offset: int) -> None:
        """Count a follower's fetch. The caller has checked that it is valid for this epoch and does not diverge
        (H6)."""
        rose = self.leader.follower_fetched(
            replica,
            broker_epoch=broker_epoch,
            fetch_offset=fetch_offset,
            log_start_offset=log_start_offset,
            leader_end=self.log.log_end_offset,
            now=asyncio.get_running_loop().time(),
        )
        if rose:
            self._high_watermark_rose()

    def _high_watermark_rose(self) -> None:
        # Parked fetches of replicas stay parked: they get the new high watermark with their next answer, as in Kafka.
        self.commits.reached(self.high_watermark)
        self.consumer_fetches.wake()

    # -- the log's start ------------------------------------------------------------------------------------------

    def expired(self, now_ms: int) -> int | None:
        """The offset below which the topic's retention removes everything; None without expired records. `now_ms` -1:
        unknown time."""
        if self.role is None or self._is_read_again or DELETE not in self._settings.cleanup:
            return None
        if self.lock.locked():
            return None  # the log may be being cut, when no new segment may start: the next turn checks again
        segments: Sequence[RetainedSegment] = self.log.segments
        if self._settings.remote_storage:
            # The leader alone decides, because only its manifest is complete; followers move their starts with it.
            if self.remote is None or not self.remote.ready or self.serving is None:
                return None
            start, local = self.log.log_start_offset, self.log.local_start_offset
            segments = [*self.remote.retained(start, local), *segments]
        expired = expired_below(
            segments,
            self.high_watermark,
            now_ms,
            retention_ms=self._settings.retention_ms,
            retention_bytes=self._settings.retention_bytes,
        )
        if expired == self.log.log_end_offset:
            self.log.roll()
        return expired

    async def remove_below(self, offset: int, write_down: Callable[[int], Awaitable[None]]) -> None:
        """Move the log's start to `offset`, at most to what is committed, after `write_down` has stored it durably.

        Both under the lock: an offset that is stored before a truncation would be trusted after it.
        """
        async with self.lock:
            before = self.log.log_start_offset
            offset = min(offset, self.high_watermark)
            if self.role is None or self._is_read_again or offset <= before:
                return
            try:
                await write_down(offset)
                after = await self.log.advance_start(offset)
            except OSError as error:
                self.fail(error)
                return
        if after > before:
            if isinstance(self.role, PartitionLeader):
                self.role.log_start_offset = after
            self.trace("log_start_moved", log_start_offset=after)
            self.replica_fetches.wake()  # the followers move their starts

    def _local_copies_expired(self, now_ms: int) -> int | None:
        """The offset below which all records are in remote storage, and the local retention removes their copies."""
        if self.role is None or self._is_read_again or self.remote is None or not self._settings.remote_storage:
            return None
        return expired_below(
            self.log.segments,
            min(self.high_watermark, self.remote.covered_to(self.log.local_start_offset)),
            now_ms,
            retention_ms=self._settings.local_retention_ms,
            retention_bytes=self._settings.local_retention_bytes,
        )

    async def remove_local_copies(self, now_ms: int) -> None:
        """Remove local segments that remote storage has and that local retention does not keep. `now_ms` -1: unknown
        time."""
        if self._local_copies_expired(now_ms) is None:
            return
        async with self.lock:
            below = self._local_copies_expired(now_ms)  # again: the log may have been cut meanwhile
            if below is None:
                return
            try:
                await self.log.delete_segments_before(below, keeps_start=True)
            except OSError as error:
                self.fail(error)

    # -- compaction -----------------------------------------------------------------------------------------------

    @property
    def compaction(self) -> TopicSettings | None:
        """The settings for the compaction of this replica's log; None if it is not compacted."""
        if self.role is None or self._is_read_again or COMPACT not in self._settings.cleanup:
            return None
        return self._settings

    async def replace_segments(self, old: Sequence[Segment], cleaned: Segment, truncations: int) -> bool:
        """As `PartitionLog.replace_segments`, under the lock; once started, it completes. False also if this log is not
        to be compacted any more."""
        replaced = False

        async def replace() -> None:
            nonlocal replaced
            async with self.lock:
                try:
                    wanted = self.compaction is not None
                    replaced = wanted and await self.log.replace_segments(old, cleaned, truncations)
                except OSError as error:
                    self.fail(error)

        task = self._background.run(replace(), f"replacing segments of {self.topic}-{self.index}")
        await asyncio.shield(task)
        return replaced

    @property
    def durable(self) -> bool:
        """Whether all of the log is on disk."""
        return self.log.durable_end_offset >= self.log.log_end_offset

    async def make_durable(self) -> None:
        """Flush what a follower has appended."""
        try:
            await self.log.flush()
        except OSError as error:
            self.fail(error)

    def _flush_soon(self) -> None:
        # One flush runs at a time; records that are appended meanwhile are covered by the next one (group commit).
        if self._flushing is None:
            self._flushing = self._background.run(self._flush_all(), f"flush of {self.topic}-{self.index}")

    async def _flush_all(self) -> None:
        try:
            while (role := self.role) is not None and not self.durable:
                durable = await self.log.flush()
                if role is not self.role or not isinstance(role, PartitionLeader):
                    continue
                self.flushes.reached(durable)
                if role.log_grew(durable):
                    self._high_watermark_rose()
        except OSError as error:
            self.fail(error)
        finally:
            self._flushing = None

    def _flush_segments_soon(self) -> None:
        """A segment is complete: sync it soon, so that recovery after a crash need not read it (LOG-2)."""
        if self._flushing_segments is None and not self.flush_before_commit:
            name = f"flush of complete segments of {self.topic}-{self.index}"
            self._flushing_segments = self._background.run(self._flush_segments(), name)

    async def _flush_segments(self) -> None:
        try:
            while self.log.durable_end_offset < self.log.complete_end:
                await self.log.flush(complete_only=True)
        except OSError as error:
            self.fail(error)
        finally:
            self._flushing_segments = None

    def _unlink_later(self) -> None:
        """Files of removed segments are to be unlinked after `file.delete.delay.ms`."""
        if self._unlinking is None:
            name = f"unlinking files of {self.topic}-{self.index}"
            self._unlinking = self._background.run(self._unlink_deleted(), name)

    async def _unlink_deleted(self) -> None:
        try:
            while (due := self.log.deleted.next_due) is not None:
                await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
                self.log.deleted.unlink_due()
        except OSError as error:
            self.fail(error)
        finally:
            self._unlinking = None

    # -- traces -------------------------------------------------------------------------------------------------

    def trace(self, event: str, **fields: Value) -> None:
        """Emit an event of this partition."""
        self._tracer.emit(event, topic=self.topic, partition=self.index, **fields)

    def _trace_role(self, role: str, state: PartitionImage) -> None:
        self.trace(
            "partition_role",
            role=role,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            partition_epoch=state.partition_epoch,
        )
        self.trace_progress()

    def trace_progress(self) -> None:
        """Emit the progress of this replica if it has changed since the last time."""
        progress = (self.log.log_end_offset, self.high_watermark, self.leader_epoch)
        if progress == self._traced or self.role is None:
            return
        self._traced = progress
        end, high_watermark, epoch = progress
        self.trace("replica_progress", log_end_offset=end, high_watermark=high_watermark, leader_epoch=epoch)

    def trace_starts(self) -> None:
        """Emit the borders of this replica's log (KIP-405), if they have changed and are known: after a restart the
        metadata are not read yet, and the high watermark is below the local start until the leader sends it. While the
        lock is held, a truncation may be in progress, and the borders do not belong together."""
        if self.remote is None or self.role is None or self.lock.locked():
            return
        if not self.remote.is_read or self.high_watermark < self.log.local_start_offset:
            return
        tiered = self.remote.highest_tiered()
        starts = {
            "log_start_offset": self.log.log_start_offset,
            "local_start_offset": self.log.local_start_offset,
            "last_tiered_offset": -1 if tiered is None else tiered.offset,
            "high_watermark": self.high_watermark,
            "log_end_offset": self.log.log_end_offset,
        }
        if starts != self._traced_starts:
            self._traced_starts = starts
            self.trace("replica_starts", **starts)

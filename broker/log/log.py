"""The log of one partition replica: record batches by offset, stored as they were received.

Invariants:
- offsets are contiguous, except where compaction has removed records, and leader epochs never decrease;
- the epoch cache knows every epoch of the log, and the file has an epoch durably before its first batch (K101-3,
K101-8);
- a truncation removes epochs from the epoch file first, durably, then records from the log (K101-7);
- the state of producers is what the batches of the log contain, and no snapshot of it is past the log's end;
- records below `local_start_offset` are only in remote storage; the epoch cache knows their epochs, too;
- appends reach the page cache only; `flush` returns the offset up to which the log is on disk.

The part of a log that is not on disk yet, and its syncs.

Content and names are synced separately: a segment's file, its index and the producer snapshots by syncs of files, all
names by a sync of the directory. A complete segment is synced once, with its index; the growing one at every flush. The
log may change between two syncs. Files that were removed meanwhile are skipped, and a segment that grows again after a
truncation stays unsynced.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence

from broker.descriptors import opening, with_descriptors
from broker.log.append_validation import (
    TRIES,
    Admit,
    AppendInfo,
    Batch,
    CheckAccepted,
    OutOfOrderError,
    UnpreparedEpochError,
    fetched_alike,
    is_plain_single,
    record_producers,
    stamp_batches,
)
from broker.log.deleted_files import DeletedFiles, remove_log
from broker.log.epochs import UNDEFINED, EpochEntry, LeaderEpochCache
from broker.log.identical_batches import FEWEST, LetIn
from broker.log.log_config import LogConfig
from broker.log.producer_snapshots import ProducerSnapshots
from broker.log.reading import OffsetOutOfRangeError, SegmentReader, Slice, segment_of
from broker.log.recovery import Recovered, read_again, recover, recover_producers, scan_again
from broker.log.remote_start import RemoteStart, StateBelow, remote_start_of
from broker.log.segment import Segment
from broker.log.segment_swap import swap_in
from broker.log.timestamps import TimedOffset, first_not_before, latest_below
from broker.ports import Buffer, Disk, parent
from broker.producers.producer_state import MAX_ID, NO_ID, ProducerState
from broker.protocol.records import BatchHeader, CorruptBatch, validate_batch


class Unsynced:
    """The segments of one log that are not on disk, and whether names in its directory have changed."""

    def __init__(self, disk: Disk, directory: str, snapshots: ProducerSnapshots, active: Callable[[], Segment]) -> None:
        """`active`: returns the growing segment."""
        self.segments: list[Segment] = [active()]
        self._disk = disk
        self._directory = directory
        self._snapshots = snapshots
        self._active = active
        self._names = 0
        self._names_durable = 0

    def add(self, segment: Segment) -> None:
        """A segment grows from now on."""
        if segment not in self.segments:
            self.segments.append(segment)

    def forget(self, segment: Segment) -> None:
        """The log has dropped a segment, or it was replaced by one that is on disk."""
        if segment in self.segments:
            self.segments.remove(segment)

    def names_changed(self, count: int = 1) -> None:
        """`count` files were created, renamed or removed."""
        self._names += count

    async def sync(self, *, complete_only: bool = False) -> None:
        """Bring what was appended before the call to disk. `complete_only`: only segments that no longer grow, by syncs
        that no other sync waits for. Raises `OSError`."""
        names, active = self._names, self._active()
        chosen = [segment for segment in self.segments if segment is not active or not complete_only]
        for segment in chosen:
            # During the syncs of others, this segment may have been removed and its file closed; its content then is
            # not part of the log any more. Another flush may have synced it.
            if segment in self.segments:
                await segment.file.sync(in_background=complete_only)
            if segment in self.segments and segment is not active:
                await segment.index.sync(in_background=complete_only)
        await self._snapshots.sync(in_background=complete_only)
        if names != self._names_durable:
            await self._disk.sync_directory(self._directory)
            self._names_durable = max(self._names_durable, names)
        for segment in chosen:
            # Only a segment that was complete when the sync started and still is: a growing one has more content now.
            if segment is not active and segment is not self._active():
                self.forget(segment)


class PartitionLog:
    """Created by `open`. One task at a time may append or truncate; any task may read."""

    def __init__(self, disk: Disk, directory: str, config: LogConfig, recovered: Recovered) -> None:
        self.directory = directory
        self.epochs: LeaderEpochCache = recovered.epochs
        self.epochs.mutate(unsynced=config.epoch_file_unsynced, drops_live=config.trim_drops_live_epoch)
        self.producers = recovered.producers
        self.recovered = recovered
        self._snapshots = recovered.snapshots
        self._disk = disk
        self._config = config
        self._segments = recovered.segments
        self._active = self._segments[-1]
        self._end = self._durable = self._active.next_offset
        self._remote_start = RemoteStart(disk, directory)
        self._start = self._segments[0].base_offset
        self._truncations = 0
        self._about_to_cut_to: int | None = None
        self._is_deleted = False
        self.before_cut: Callable[[int], Awaitable[None]] | None = None
        """Awaited before the log is cut to an offset; `recovery_point` and `cleaned_to` show that offset already."""
        self.after_roll: Callable[[], None] | None = None
        """Called when a segment is complete, but not on disk yet."""
        self._unsynced = Unsynced(disk, directory, recovered.snapshots, lambda: self._active)
        self._cleaned_to = 0
        self.deleted = DeletedFiles(disk, config.file_delete_delay_ms)
        self._let_in: dict[Admit, LetIn] = {}  # see `stamp_batches`

    @classmethod
    async def open(
        cls,
        disk: Disk,
        directory: str,
        config: LogConfig,
        *,
        clean_shutdown: bool,
        recovery_point: int = 0,
        start_offset: int = 0,
        remote_start: int | None = None,
    ) -> "PartitionLog":
        """Open or create the log of a directory. `recovered` has the result of recovery.

        `start_offset`: the log's start as last stored. It may be inside the first segment. `remote_start`: the log
        starts there or later, in remote storage; None: the directory's own file says where.
        Raises `DamagedLogError` when something below `recovery_point` is missing; nothing was changed then.
        """
        if not disk.exists(directory):
            disk.make_directory(directory)
            await disk.sync_directory(parent(directory))
        remote_start = remote_start_of(disk, directory, remote_start)
        recovered = await recover(
            disk,
            directory,
            config.index_interval_bytes,
            clean_shutdown=clean_shutdown,
            recovery_point=recovery_point,
            start_offset=start_offset,
            compacted=config.compacted,
            forgets_producers=config.forgets_producers,
            doubts_producers=config.doubts_producers,
            keeps_epochs=config.keep_epochs_past_leo,
            remote_start=remote_start,
        )
        log = cls(disk, directory, config, recovered)
        if start_offset > log._end:
            # The records above the start are lost. Offsets below it were deleted and are not assigned again.
            await log.truncate_fully_and_start_at(start_offset)
        await log._find_start(start_offset, remote_start)
        log.epochs.truncate_from_start(log._start)
        return log

    async def _find_start(self, stored: int, remote: int | None) -> None:
        """Set the log's start. `stored`: as last stored; `remote`: the log has records from there in remote storage."""
        if remote is None:
            await self._remote_start.remove()  # of an interrupted bootstrap
        elif self.epochs.epoch_at(max(stored, remote)) == UNDEFINED:
            await self.truncate_fully_and_start_at(0)  # this was interrupted: the epochs go first
            return
        self._start = max(stored, self._start if remote is None else remote)

    def configure(self, changed: Callable[[LogConfig], LogConfig]) -> None:
        """Change the configuration; existing segments stay as they are."""
        self._config = changed(self._config)
        self.deleted.delay_ms = self._config.file_delete_delay_ms

    @property
    def log_start_offset(self) -> int:
        """The first offset that is served. The first segment may still hold records below it."""
        return self._start

    @property
    def local_start_offset(self) -> int:
        """The first offset that is served from this disk; higher than `log_start_offset` if records are only remote."""
        return max(self._start, self._segments[0].base_offset) if self._segments else self._start

    @property
    def segments(self) -> Sequence[Segment]:
        """All segments, oldest first; the last one grows."""
        return tuple(self._segments)

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self._end

    @property
    def durable_end_offset(self) -> int:
        """Everything below is on disk. Rises by `flush`, falls by truncation."""
        return self._durable

    @property
    def complete_end(self) -> int:
        """The base offset of the growing segment."""
        return self._active.base_offset

    @property
    def is_being_cut(self) -> bool:
        """Whether a truncation has started that has not ended: the state of producers is that of the records before it.
        A process that ends at once, because its disk failed, ends no truncation."""
        return self._about_to_cut_to is not None

    @property
    def recovery_point(self) -> int:
        """Everything below is on disk, and no truncation in progress will remove it."""
        return self._durable if self._about_to_cut_to is None else min(self._durable, self._about_to_cut_to)

    @property
    def kept_end(self) -> int:
        """No truncation in progress will remove anything below: the log's end, or its end after the truncation."""
        return self._end if self._about_to_cut_to is None else min(self._end, self._about_to_cut_to)

    @property
    def cleaned_to(self) -> int:
        """Everything below has been compacted and stays. Compaction raises it, truncation lowers it."""
        return self._cleaned_to if self._about_to_cut_to is None else min(self._cleaned_to, self._about_to_cut_to)

    @cleaned_to.setter
    def cleaned_to(self, offset: int) -> None:
        self._cleaned_to = offset

    @property
    def truncations(self) -> int:
        """The number of truncations: what was read before one may be outdated."""
        return self._truncations

    @property
    def last_epoch(self) -> int:
        """The latest leader epoch; -1 without one."""
        return self.epochs.latest_epoch

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self._segments)

    # -- appending ----------------------------------------------------------------------------------------------

    async def start_leader_epoch(self, epoch: int) -> None:
        """Become leader: `epoch` starts at the log's end, durably, even if no record follows (K101-3, H2)."""
        await self.epochs.assign_durably(epoch, self._end)

    def append_as_leader(
        self, buf: bytearray | memoryview, epoch: int, *, admit: Admit | None = None, check: CheckAccepted | None = None
    ) -> AppendInfo:
        """Give batches their offsets and epoch, in place, and write them to the page cache.

        `admit` and `check` first check batches that are not this broker's own. A batch that its idempotent producer has
        sent before is not written again. Raises `CorruptBatch`, what `admit` and `check` raise, and `ProtocolError` for
        an invalid sequence of such a producer (nothing is written); `ValueError` when `epoch` was not started;
        `OSError` of the disk.
        """
        if epoch != self.last_epoch:
            raise ValueError(f"{self.directory}: epoch {epoch} was not started, the latest is {self.last_epoch}")
        batches = stamp_batches(buf, self._end, epoch, admit, self._let_in, check)
        sequenced = [batch.sequenced for batch in batches if batch.sequenced is not None]
        if sequenced and not self._config.sequences_unchecked:
            written = self.producers.check(sequenced, any_first=self._config.any_first_sequence)
            if written is not None:
                return AppendInfo(written.first_offset, written.last_offset, 0)
        self._append(buf, batches, has_producers=bool(sequenced))
        return AppendInfo(batches[0].offset, self._end - 1, len(buf))

    def append_as_follower(self, buf: Buffer, limit_epoch: int) -> AppendInfo:
        """Write fetched batches to the page cache unchanged.

        Stops before the first batch that is not intact, does not continue the log, or is newer than `limit_epoch`, the
        leader epoch that this follower knows (H11). Raises `OSError`, `CorruptBatch` or `OutOfOrderError` if the first
        batch is not acceptable, `UnpreparedEpochError` if a batch starts an epoch that is not in the file (K101-8).
        """
        base = self._end
        batches: list[Batch] = []
        size = 0
        for header, following_batches in self._acceptable(buf, limit_epoch):
            if not self._is_prepared(header):
                raise UnpreparedEpochError(f"{self.directory}: epoch {header.leader_epoch} from {header.base_offset}")
            batches.append(Batch.of(header))
            batches += following_batches
            size += header.size * (1 + len(following_batches))
        if batches:
            with memoryview(buf) as view, view[:size] as accepted:
                self._append(accepted, batches, has_producers=True)
        return AppendInfo(base, self._end - 1, size)

    async def prepare_epochs(self, buf: Buffer, limit_epoch: int) -> None:
        """Store the start offsets of the epochs in fetched batches, durably (K101-8). Raises as `append_as_follower`
        does."""
        changed = False
        for header, _ in self._acceptable(buf, limit_epoch):
            if not self._is_prepared(header):
                changed = self.epochs.assign(header.leader_epoch, header.base_offset)
        if changed and not self._config.epoch_after_data:
            await self.epochs.write_durably()

    async def replicate(self, buf: Buffer, limit_epoch: int) -> AppendInfo:
        """`append_as_follower`, preceded by `prepare_epochs` when the batches start an epoch."""
        try:
            return self.append_as_follower(buf, limit_epoch)
        except UnpreparedEpochError:
            await self.prepare_epochs(buf, limit_epoch)
            added = self.append_as_follower(buf, limit_epoch)
            if self._config.epoch_after_data:
                await self.epochs.write_durably()
            return added

    def _acceptable(self, buf: Buffer, limit_epoch: int) -> Iterator[tuple[BatchHeader, list[Batch]]]:
        """The checked headers of batches that a follower may append, each with the identical batches after it."""
        end, epoch = self._end, self.epochs.epoch_at(self._end - 1)
        position, length, tries = 0, len(buf), TRIES
        while position < length:
            try:
                header = validate_batch(buf, position, compacted=self._config.compacted)
                if header.leader_epoch > limit_epoch:
                    return
                skips = header.base_offset > end and not self._config.compacted
                if header.base_offset < end or skips or header.leader_epoch < max(epoch, 0):
                    came = f"offset {header.base_offset} of epoch {header.leader_epoch}"
                    raise OutOfOrderError(f"{self.directory}: {came} cannot follow offset {end - 1} of epoch {epoch}")
            except (CorruptBatch, OutOfOrderError):
                if not position:
                    raise
                return
            end, epoch = header.next_offset, header.leader_epoch
            following_batches: list[Batch] = []
            has_more = position + header.size < length
            # In the newest epoch no other epoch can start after this batch.
            if has_more and tries and epoch == self.epochs.latest_epoch and is_plain_single(header):
                following_batches = fetched_alike(buf, position, header.size, end)
                tries -= len(following_batches) < FEWEST
            yield header, following_batches
            end += len(following_batches)
            position += header.size * (1 + len(following_batches))

    def _is_prepared(self, header: BatchHeader) -> bool:
        return self.epochs.epoch_at(header.base_offset) == header.leader_epoch

    def _append(self, buf: Buffer, batches: list[Batch], *, has_producers: bool) -> None:
        """`has_producers` False: no batch has an idempotent producer, and no offset is missing."""
        for starts, data, part in self._config.divided(self._active, buf, batches):
            segment = self._roll() if starts else self._active
            segment.file.append([data])
            segment.note(part)
            if has_producers:
                record_producers(self.producers, part, self._end)
            self._end = segment.next_offset

    def _roll(self) -> Segment:
        # The snapshot first: a segment without one only costs time at the next start.
        self._snapshots.write(self._end, self.producers)
        self._active.finish()  # if the new segment cannot be opened, this one continues to grow
        segment = self._empty_segment(self._end)
        self._grow_in(segment)
        if self.after_roll is not None:
            self.after_roll()
        return segment

    def _empty_segment(self, base_offset: int) -> Segment:
        return Segment(self._disk, self.directory, base_offset, self._config.index_interval_bytes)

    def _grow_in(self, segment: Segment) -> None:
        self._segments.append(segment)
        self._active = segment
        self._unsynced.add(segment)
        self._unsynced.names_changed()

    # -- durability ---------------------------------------------------------------------------------------------

    async def flush(self, *, complete_only: bool = False) -> int:
        """Return the durable end offset when everything appended before the call is on disk. Raises `OSError`.

        `complete_only`: all segments except the growing one, by syncs that no other sync waits for. If the log is
        deleted meanwhile, the rest is skipped.
        """
        while not self._is_deleted:
            target, truncations = self.complete_end if complete_only else self._end, self._truncations
            try:
                if not (complete_only and self._config.unflushed_roll):
                    await self._unsynced.sync(complete_only=complete_only)
            except OSError:
                if self._is_deleted:  # its files were closed or removed: not a disk failure
                    break
                raise
            # A truncation in the meantime may have replaced the synced records by others with the same offsets.
            if truncations == self._truncations:
                self._durable = max(self._durable, target)
                break
        return self._durable

    async def rebuild(self, leader_epoch: int, is_wanted: Callable[[], bool]) -> bool:
        """Read the batches again, rebuild the epochs from them and start `leader_epoch`, and flush both (KIP-704).

        Complete segments below the recovery point are not read, as at a start. Returns false once
        `is_wanted` does; nothing was changed then. Raises `CorruptBatch` for a damaged batch, `OSError`.
        """
        compacted = self._config.compacted
        scan = scan_again(self._segments, self.epochs, self.recovery_point, self._start, compacted=compacted)
        scanned = await read_again(self._segments, self._snapshots, is_wanted, scan=scan)
        if scanned is None:
            return False
        scan, producers = scanned
        if scan.next_offset != self._end:
            raise CorruptBatch(f"{self.directory}: the batches end at {scan.next_offset}, the log at {self._end}")
        # No await before the epoch has started: a later role sees either the old state or all of the new one.
        self.epochs.replace(scan.epochs)
        self.epochs.truncate_from_start(self._start)
        if not self._config.forgets_producers:
            producers.forgot_none_from(self.producers.largest_id + 1)
            self.producers = producers
        await self.start_leader_epoch(leader_epoch)
        await self.flush()
        return True

    # -- removing -----------------------------------------------------------------------------------------------

    async def truncate_to(self, offset: int) -> int:
        """Remove the batches that hold offsets >= `offset`, durably; returns the new end of the log.

        The end is lower than `offset` if `offset` is inside a batch: batches are never split. Epochs that start at or
        past the new end are removed first, also when no record is removed (H8).
        """
        if offset < self.local_start_offset:
            return await self._restart_at(offset)
        segment = segment_of(self._segments, offset)
        end, position = segment.batch_start(offset) if offset < self._end else (self._end, segment.size)
        if end < self.log_start_offset:
            return await self._restart_at(end)
        await self._announce_cut(end)
        keeps = end == self._end and self._config.noop_truncate_keeps_cache
        if not keeps and self.epochs.truncate_from_end(end):
            await self.epochs.write_durably()
        if end < self._end:
            while self._active is not segment:
                self._remove_active()
            segment.truncate(end, position, segment.max_timestamp_before(position))
            self._cut(end)
            await self.flush()
            if self.producers.reaches(end) and not self._config.keeps_cut_producers:
                self.producers = await with_descriptors(lambda: self.producers_of(self._segments))
        self._about_to_cut_to = None
        return end

    async def _announce_cut(self, offset: int) -> None:
        """Announce a truncation, so that no other part relies on the records."""
        if offset < self._end:
            self._about_to_cut_to = offset
            if self.before_cut is not None:
                await self.before_cut(offset)

    async def _restart_at(self, offset: int) -> int:
        """Remove all segments, which are above `offset`; what is remote below it stays."""
        kept_entries = (
            [entry for entry in self.epochs.entries if entry.start_offset < offset] if offset > self._start else ()
        )
        await self.truncate_fully_and_start_at(offset, log_start=min(offset, self._start), epochs=kept_entries)
        return offset

    async def truncate_fully_and_start_at(
        self,
        offset: int,
        *,
        log_start: int | None = None,
        epochs: Sequence[EpochEntry] = (),
        producers: ProducerState | None = None,
    ) -> None:
        """Remove everything, epochs included, and start again at `offset`, durably.

        `log_start`, `epochs`, `producers`: of the records below `offset` that are only in remote storage, if there are
        any: the log's start, the leader epochs, and the state of producers at `offset`.
        """
        await self._announce_cut(0)  # in between, the log may have no segment
        if log_start is not None:
            await self._remote_start.write(log_start)
        self.epochs.replace(epochs)
        await self.epochs.write_durably()
        self.producers = ProducerState(NO_ID if not offset else MAX_ID) if producers is None else producers
        if self._snapshots.remove_past(-1):
            await self._disk.sync_directory(self.directory)
        while self._segments:
            self._remove_active()
        self._grow_in(await opening(lambda: self._empty_segment(offset)))
        self._start = offset if log_start is None else log_start
        self._cut(offset)
        if producers is not None:
            self._unsynced.names_changed(self._snapshots.write(offset, producers))
        await self.flush()
        if log_start is None:
            await self._remote_start.remove()
        self._durable = offset
        self._about_to_cut_to = None

    async def start_above(self, offset: int, below: StateBelow) -> None:
        """Remove everything and start again at `offset`, durably, as a log whose records below it are in remote storage
        (K1023-11, K1023-12). Until the last step the log is empty and starts at 0: a crash leaves a new replica."""
        await self.truncate_fully_and_start_at(0)
        await self._remote_start.write(below.log_start)
        self.epochs.replace(below.epochs)
        self.epochs.truncate_from_end(offset)
        self.epochs.truncate_from_start(below.log_start)
        await self.epochs.write_durably()
        self._unsynced.names_changed(await opening(lambda: self._snapshots.write(offset, below.producers)))
        await self.flush()
        segment = await opening(lambda: self._empty_segment(offset))
        await self._disk.sync_directory(self.directory)  # never a moment without a segment
        [empty], self._segments, self._active = self._segments, [segment], segment
        self._unsynced.add(segment)
        self.producers, self._start = below.producers, below.log_start
        self._cut(offset)
        self._forget(empty)
        await self.flush()
        self._durable = offset

    async def replace_segments(self, old: Sequence[Segment], cleaned: Segment, truncations: int) -> bool:
        """Replace consecutive segments by their compacted one, durably. Its content is on disk already. Readers of the
        old files can finish.

        Returns false without a change if the log does not contain one of the old segments any more, or has been
        truncated since it had this number of `truncations`.
        """
        if truncations != self._truncations:
            return False
        first_index = self._segments.index(old[0]) if old[0] in self._segments else 0
        if self._segments[first_index : first_index + len(old)] != list(old) or old[-1] is self._active:
            return False
        await swap_in(self._disk, self.directory, cleaned, old, self.deleted)
        self._segments[first_index : first_index + len(old)] = [cleaned]
        for segment in old:
            self._unsynced.forget(segment)
        self._unsynced.names_changed(self._snapshots.keep([segment.base_offset for segment in self._segments]))
        return True

    def roll(self) -> None:
        """Start a new segment, so that the growing one can be removed. No effect during a truncation: until its end,
        the state of producers may come from removed batches, and the snapshot would keep it."""
        if self._active.size and self._about_to_cut_to is None:
            self._roll()

    async def advance_start(self, offset: int) -> int:
        """Stop serving offsets below `offset`, and remove the segments that are completely below it; returns the start.

        The start never decreases and never passes the end. If it is inside a segment, the caller must have stored it
        before, because a restart would find the older one.
        """
        offset = min(offset, self._end)
        if offset > self._start:
            if self._start < self.local_start_offset:
                await self._remote_start.write(offset)
            self._start = offset
            if self.epochs.truncate_from_start(offset):
                await self.epochs.write_durably()
            await self.delete_segments_before(offset)
        return self._start

    async def delete_segments_before(self, offset: int, *, keeps_start: bool = False) -> int:
        """Remove segments below `offset`, but never the newest; returns the log's new start (K101-11, H27), which stays
        if `keeps_start`: remote storage has the records."""
        count = 0
        while count < len(self._segments) - 1 and self._segments[count].next_offset <= offset:
            count += 1
        if count:
            await with_descriptors(lambda: self._snapshot_behind(self._segments[:count]))
            if keeps_start:
                await self._remote_start.write(self._start)
            removed, self._segments = self._segments[:count], self._segments[count:]
            self._start = self._start if keeps_start else self.local_start_offset
            if self.epochs.truncate_from_start(self._start):
                await self.epochs.write_durably()
            for segment in removed:
                self._forget(segment)
                await self._disk.sync_directory(self.directory)  # one at a time, so that a power cut leaves no gap
            self._snapshots.remove_before(self._segments[0].base_offset)
            await self.flush()
        return self._start

    async def _snapshot_behind(self, segments: list[Segment]) -> None:
        """Store the producers of the log's first segments in an intact snapshot, durably, before their removal."""
        state = await self.producers_of(segments)
        self._unsynced.names_changed(self._snapshots.write(segments[-1].next_offset, state, again=True))
        await self.flush()

    async def producers_of(self, segments: Sequence[Segment]) -> ProducerState:
        """The state of producers at the end of the first `segments`."""
        return await recover_producers(segments, self._snapshots)

    @property
    def is_deleted(self) -> bool:
        """Whether the removal of the log has started."""
        return self._is_deleted

    async def delete(self) -> None:
        """Remove the log and its directory, durably."""
        self._is_deleted = True
        await remove_log(self._disk, self.directory, self._segments)

    async def close(self) -> None:
        """Make everything durable, write the indexes and close the files."""
        is_new = await opening(lambda: self._snapshots.write(self._end, self.producers))
        self._unsynced.names_changed(is_new)
        await self.flush()
        await opening(self._active.finish)
        await self._active.index.sync()
        for segment in self._segments:
            segment.close()

    def _remove_active(self) -> None:
        self._forget(self._segments.pop())
        if self._segments:
            self._active = self._segments[-1]
            self._unsynced.add(self._active)

    def _forget(self, segment: Segment) -> None:
        self._unsynced.forget(segment)
        self.deleted.remove(segment)
        self._unsynced.names_changed()

    def _cut(self, end: int) -> None:
        self._end = end
        self._unsynced.names_changed(self._snapshots.remove_past(end))
        self._durable = min(self._durable, end)
        self._truncations += 1
        self._cleaned_to = min(self._cleaned_to, end)

    # -- reading ------------------------------------------------------------------------------------------------

    def locate(self, offset: int, max_bytes: int, upper_bound_offset: int, *, min_one: bool = True) -> list[Slice]:
        """Whole batches from the one that contains `offset`, below `upper_bound_offset`, at most `max_bytes` together.

        With `min_one`, the first batch is returned even if it is larger. Raises `OffsetOutOfRangeError`, and `OSError`
        (EIO) for damaged bytes: none of them is returned, and the next start reads that whole segment.
        """
        start = self.local_start_offset
        if not start <= offset <= self._end:
            raise OffsetOutOfRangeError(self.directory, offset, start, self._end)
        reader = SegmentReader(self._segments, self.epochs, start, compacted=self._config.compacted)
        return reader.slices(offset, min(upper_bound_offset, self._end), max_bytes, min_one=min_one)

    def read(self, offset: int, max_bytes: int, upper_bound_offset: int) -> bytes:
        """The bytes of the slices that `locate` returns."""
        slices = self.locate(offset, max_bytes, upper_bound_offset)
        return b"".join(file.read(position, length) for file, position, length in slices)

    def offset_for_timestamp(self, timestamp: int) -> TimedOffset | None:
        """As `first_not_before`."""
        return first_not_before(self._segments, self.local_start_offset, timestamp)

    def max_timestamp_below(self, offset: int) -> TimedOffset | None:
        """As `latest_below`."""
        return latest_below(self._segments, self.local_start_offset, offset)

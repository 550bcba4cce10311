"""Recovers a log after a stop, clean or not.

Theory of operation. After a clean stop the indexes describe the segments. After any other stop, every batch from the
recovery point on is read and checked. The log ends before the first bytes that are not an intact batch of the next
offset (a torn tail, a hole of zeros, a wrong CRC). Everything behind that, later segments included, was never
acknowledged as durable and is removed.

Everything below the recovery point was on disk before the crash. If it is missing or damaged now, the crash is not the
cause, and cutting the log there would silently remove records that others rely on. So the log is not opened and not
changed.

The remains of an interrupted compaction are completed or removed before (`segment_swap`).

The state of producers is that of the newest snapshot plus the batches from there to the log's end. Without a snapshot
it comes from the batches alone. That is complete only if the log has every batch since offset 0, which the offsets
show; otherwise the log may have forgotten any producer, and `ProducerState.forgotten_to` says so.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from typing import NamedTuple

from broker.descriptors import with_descriptors
from broker.errors import StartupError
from broker.log.append_validation import Batch
from broker.log.checkpoint import CorruptCheckpointError
from broker.log.epochs import EpochEntry, LeaderEpochCache
from broker.log.producer_snapshots import ProducerSnapshots
from broker.log.segment import SCAN_BYTES, Segment
from broker.log.segment_swap import finish_swaps
from broker.ports import Disk
from broker.producers.producer_state import MAX_ID, NO_ID, ProducerState
from broker.protocol.records import BatchHeader, CorruptBatch

SUFFIX = ".log"
EPOCHS_FILE = "leader-epoch-checkpoint"


class DamagedLogError(StartupError):
    """A log lacks records that were on disk. Nothing was changed. The message names file, place and remedy."""


class _UnwantedError(Exception):
    """The result of the read has become unwanted."""


@dataclass
class Recovered:
    """The result: `reason` says why the log was cut (None: it was intact), `lost_bytes` how many bytes that removed."""

    segments: list[Segment]
    epochs: LeaderEpochCache
    snapshots: ProducerSnapshots
    scanned: bool
    reason: str | None = None
    lost_bytes: int = 0
    producers: ProducerState = field(default_factory=lambda: ProducerState(MAX_ID))
    last_sequenced: int | None = None
    """No idempotent producer has a batch past this offset; None: not determined."""
    is_whole: bool | None = None
    """Whether the log has every batch since offset 0; None: not determined."""


@dataclass
class EpochScan:
    """The state of a read through a log, from its start or from a place up to which its epochs are known."""

    next_offset: int
    epochs: list[EpochEntry] = field(default_factory=list)
    compacted: bool = False
    """Whether offsets may be missing between the batches."""
    last_sequenced: int = field(init=False)
    """No idempotent producer has a batch past it. Batches before the scan may have any."""
    is_whole: bool = field(init=False)
    """Whether the scan has met every batch from offset 0 on: a batch that compaction removed leaves a gap."""

    def __post_init__(self) -> None:
        self.last_sequenced = self.next_offset - 1
        self.is_whole = self.next_offset == 0

    def accept(self, header: BatchHeader) -> None:
        """Raises `CorruptBatch` if an intact batch does not follow the previous one."""
        if header.base_offset < self.next_offset or (header.base_offset > self.next_offset and not self.compacted):
            raise CorruptBatch(f"offset {header.base_offset} follows {self.next_offset - 1}")
        latest = self.epochs[-1].epoch if self.epochs else -1
        if header.leader_epoch < max(latest, 0):
            raise CorruptBatch(f"offset {header.base_offset}: leader epoch {header.leader_epoch} follows {latest}")
        if header.leader_epoch > latest:
            self.epochs.append(EpochEntry(header.leader_epoch, header.base_offset))
        if header.producer_id >= 0:
            self.last_sequenced = header.base_offset
        self.is_whole = self.is_whole and header.base_offset == self.next_offset
        self.next_offset = header.next_offset


def base_offsets(disk: Disk, directory: str) -> list[int]:
    """The base offsets of a directory's segments, in ascending order."""
    names = [name.removesuffix(SUFFIX) for name in disk.list(directory) if name.endswith(SUFFIX)]
    return sorted(int(name) for name in names if len(name) == 20 and name.isdecimal())


async def recover(
    disk: Disk,
    directory: str,
    interval_bytes: int,
    *,
    clean_shutdown: bool,
    recovery_point: int = 0,
    start_offset: int = 0,
    compacted: bool = False,
    forgets_producers: bool = False,
    doubts_producers: bool = False,
    keeps_epochs: bool = False,
    remote_start: int | None = None,
) -> Recovered:
    """Open the segments of a log, at least one, and make log, indexes, epochs and producers consistent, durably.

    Everything below `recovery_point` was durable once. Raises `DamagedLogError` if it is missing; nothing is changed
    then. Epochs of records below `start_offset` may be unknown, because those records are not served. `remote_start`:
    records from there to the first segment may be in remote storage, and their epochs are kept. `compacted`: records
    may be missing between others. `forgets_producers`, `doubts_producers`, `keeps_epochs`: the mutants
    no_producer_snapshot, any_first_after_restart and keep_epochs_past_leo.
    """
    try:
        await finish_swaps(disk, directory, interval_bytes)
    except CorruptBatch as error:
        remedy = "restore the file, or move the directory away if other replicas have these records"
        raise DamagedLogError(f"{error}; {remedy}") from None
    old_entries = LeaderEpochCache.load(disk, f"{directory}/{EPOCHS_FILE}").entries if keeps_epochs else ()
    result = await _find(
        disk,
        directory,
        interval_bytes,
        clean_shutdown=clean_shutdown,
        recovery_point=recovery_point,
        start_offset=start_offset,
        compacted=compacted,
        remote_start=remote_start,
    )
    if old_entries:
        result.epochs.replace(old_entries)
    segments, snapshots = result.segments, result.snapshots
    removed = snapshots.remove_past(segments[-1].next_offset)
    removed |= snapshots.remove_before(segments[0].base_offset)
    removed |= snapshots.keep([segment.base_offset for segment in segments])
    if removed:
        await disk.sync_directory(directory)
    if not forgets_producers:
        result.producers = await recover_producers(
            segments, snapshots, result.last_sequenced, False if doubts_producers else result.is_whole
        )
    return result


async def yield_to_others() -> None:
    """Let other tasks run while a large log is read."""
    await asyncio.sleep(0)


async def recover_producers(
    segments: Sequence[Segment],
    snapshots: ProducerSnapshots,
    last_sequenced: int | None = None,
    is_whole: bool | None = None,
    *,
    pause: Callable[[], Awaitable[None]] = yield_to_others,
) -> ProducerState:
    """The state of a log's producers at its end. No snapshot may be past the end.

    `last_sequenced`: no producer has a batch past this offset, if known, so nothing behind it is read. `is_whole`:
    whether the log has all batches since offset 0, if known. `pause` is awaited repeatedly; the log may change
    meanwhile unless it raises.
    """
    now = asyncio.get_running_loop().time()
    end = segments[-1].next_offset
    newest = snapshots.newest(end, now)
    start, state = newest or (segments[0].base_offset, ProducerState(NO_ID))
    reads_all = newest is None and is_whole is None
    due = 0
    for segment in segments:
        unsequenced = last_sequenced is not None and last_sequenced < max(start, segment.base_offset)
        if segment.next_offset <= start or (unsequenced and not reads_all):
            continue
        pause_at = SCAN_BYTES
        for position, header in segment.walk(segment.position_of(max(start, segment.base_offset))):
            batch = Batch.of(header)
            if batch.sequenced is not None and batch.offset >= start:
                state.record(batch.sequenced, batch.offset, batch.max_timestamp, now)
            reads_all = reads_all and header.base_offset == due
            due = header.next_offset
            if position >= pause_at:
                pause_at = position + SCAN_BYTES
                await pause()
    if newest is None and end and not (is_whole or (reads_all and due == end)):
        state.may_have_forgotten()
    return state


def scan_again(
    segments: Sequence[Segment], epochs: LeaderEpochCache, recovery_point: int, log_start: int, *, compacted: bool
) -> EpochScan:
    """A scan of an open log from the recovery point, or from its first batch if the earlier epochs are unknown."""
    first_segment = next((segment for segment in segments if segment.next_offset > recovery_point), segments[-1])
    known_entries = [entry for entry in epochs.entries if entry.start_offset < first_segment.base_offset]
    if known_entries and known_entries[0].start_offset <= log_start:
        return EpochScan(first_segment.base_offset, known_entries, compacted=compacted)
    # The log's start may be inside its first segment.
    base = segments[0].base_offset
    remote = [entry for entry in known_entries if entry.start_offset < base] if log_start < base else []
    return EpochScan(base, remote, compacted=compacted)


async def read_again(
    segments: Sequence[Segment],
    snapshots: ProducerSnapshots,
    is_wanted: Callable[[], bool],
    *,
    scan: EpochScan,
) -> tuple[EpochScan, ProducerState] | None:
    """Epochs and producers according to the batches of an open log; None once `is_wanted` returns false.

    `scan` names the segment at which the read starts. A change of the log must make `is_wanted` return false, because
    files may be closed and bytes may be others. Raises `CorruptBatch`, `OSError`.
    """

    async def pause() -> None:
        await yield_to_others()
        if not is_wanted():
            raise _UnwantedError

    async def recovered() -> ProducerState:
        if not is_wanted():  # time may have passed
            raise _UnwantedError
        return await recover_producers(segments, snapshots, pause=pause)

    segments = list(segments)
    begin = scan.next_offset
    try:
        for segment in segments:
            if segment.base_offset < begin:
                continue
            pause_at = SCAN_BYTES
            for position, header in segment.intact_batches(compacted=scan.compacted):
                scan.accept(header)
                if position >= pause_at:
                    pause_at = position + SCAN_BYTES
                    await pause()
        producers = await with_descriptors(recovered)
    except _UnwantedError:
        return None
    return (scan, producers) if is_wanted() else None


async def _find(
    disk: Disk,
    directory: str,
    interval_bytes: int,
    *,
    clean_shutdown: bool,
    recovery_point: int,
    start_offset: int,
    compacted: bool,
    remote_start: int | None,
) -> Recovered:
    path = f"{directory}/{EPOCHS_FILE}"
    bases = base_offsets(disk, directory) or [0]
    if remote_start is not None:
        _require_epochs(disk, path)
    if clean_shutdown and (segments := _take_over(disk, directory, interval_bytes, bases)) is not None:
        try:
            epochs = LeaderEpochCache.load(disk, path)
        except CorruptCheckpointError:
            epochs = LeaderEpochCache(disk, path)  # the batches contain their epochs
        epochs.truncate_from_start(bases[0] if remote_start is None else min(bases[0], remote_start))
        is_whole = segments[-1].next_offset >= recovery_point
        if is_whole and (epochs.entries or not any(segment.size for segment in segments)):
            return Recovered(segments, epochs, ProducerSnapshots(disk, directory), scanned=False)
        _close(segments)
    points = _Points(max(bases[0], start_offset), recovery_point, remote_start)
    result = await _scan(disk, directory, interval_bytes, bases, points, compacted=compacted)
    await _make_durable(disk, directory, result, recovery_point)
    return result


def _require_epochs(disk: Disk, path: str) -> None:
    """The epochs of records in remote storage cannot be read from the segments."""
    remedy = "restore the file, or move the directory away if other replicas have these records"
    try:
        LeaderEpochCache.load(disk, path)
    except CorruptCheckpointError as error:
        raise DamagedLogError(f"{error}; {remedy}") from None
    if not disk.exists(path):
        raise DamagedLogError(f"{path} is missing, and the log has records in remote storage; {remedy}")


def _take_over(disk: Disk, directory: str, interval_bytes: int, bases: list[int]) -> list[Segment] | None:
    """The segments as described by their indexes; None if an index is unusable or a segment is missing."""
    segments: list[Segment] = []
    for base in bases:
        fits = not segments or segments[-1].next_offset == base
        segment = Segment(disk, directory, base, interval_bytes)
        segments.append(segment)
        if not (fits and segment.load()):
            _close(segments)
            return None
    return segments


class _Points(NamedTuple):
    """The local log's start offset, the recovery point below which all of it was on disk once, and the start of the
    records in remote storage, None without any."""

    start: int
    recovery: int
    remote: int | None = None


async def _scan(
    disk: Disk, directory: str, interval_bytes: int, bases: list[int], points: _Points, *, compacted: bool
) -> Recovered:
    epochs = LeaderEpochCache(disk, f"{directory}/{EPOCHS_FILE}")
    result = Recovered([], epochs, ProducerSnapshots(disk, directory), scanned=True)
    result.segments, scan = _below_recovery_point(disk, directory, interval_bytes, bases, points)
    scan.compacted = compacted
    remaining = bases[len(result.segments) :]
    for base, following in zip_longest(remaining, remaining[1:]):
        segment = Segment(disk, directory, base, interval_bytes)
        result.segments.append(segment)
        try:
            if base != scan.next_offset:
                raise CorruptBatch(f"{segment.file.path}: the segment follows offset {scan.next_offset - 1}")
            await _read(segment, scan, following)
        except CorruptBatch as error:
            result.reason = str(error)
            break
    if scan.next_offset < points.recovery:
        _close(result.segments)
        raise _damaged(directory, result.reason or "the log ends there", scan.next_offset, points.recovery)
    if result.reason is not None:
        _cut_off(disk, directory, interval_bytes, bases, result, scan)
    # K101-12: an entry at or past the end has no record, and an entry that the batches contradict is a truncation or a
    # new epoch that reached the disk before its data did. The batches are authoritative.
    result.epochs.replace(scan.epochs)
    result.last_sequenced = scan.last_sequenced
    result.is_whole = scan.is_whole if len(remaining) == len(bases) else None
    return result


def _below_recovery_point(
    disk: Disk, directory: str, interval_bytes: int, bases: list[int], points: _Points
) -> tuple[list[Segment], EpochScan]:
    """The segments that are completely below the recovery point, as described by their indexes, and a scan of the rest.

    Fewer segments if an index is unusable; none if the epochs of served records in them are unknown."""
    try:
        known_epochs = LeaderEpochCache.load(disk, f"{directory}/{EPOCHS_FILE}")
    except CorruptCheckpointError:
        return [], EpochScan(bases[0])
    remote = [] if points.remote is None else [entry for entry in known_epochs.entries if entry.start_offset < bases[0]]
    known_epochs.truncate_from_start(bases[0] if points.remote is None else min(bases[0], points.remote))
    segments: list[Segment] = []
    for base, following in pairwise(bases):
        if following > points.recovery:
            break
        segment = Segment(disk, directory, base, interval_bytes)
        if not segment.load() or segment.next_offset != following:
            segment.close()
            break
        segments.append(segment)
    if not segments or not known_epochs.entries or known_epochs.entries[0].start_offset > points.start:
        _close(segments)
        return [], EpochScan(bases[0], remote)
    end = segments[-1].next_offset
    return segments, EpochScan(end, [entry for entry in known_epochs.entries if entry.start_offset < end])


def _cut_off(
    disk: Disk, directory: str, interval_bytes: int, bases: list[int], result: Recovered, scan: EpochScan
) -> None:
    """Remove what follows the last intact batch."""
    last_segment = result.segments[-1]
    if last_segment.base_offset != scan.next_offset and last_segment.size == 0 and len(result.segments) > 1:
        result.segments.pop().close()  # this segment does not continue the log: remove it with the later ones
    else:
        result.lost_bytes += last_segment.file.size() - last_segment.size
        last_segment.truncate(last_segment.next_offset, last_segment.size, last_segment.max_timestamp)
    for base in bases[len(result.segments) :]:
        segment = Segment(disk, directory, base, interval_bytes)
        result.lost_bytes += segment.file.size()
        segment.remove()


def _damaged(directory: str, reason: str, end: int, recovery_point: int) -> DamagedLogError:
    return DamagedLogError(
        f"{directory}: the records from offset {end} to {recovery_point - 1} were on disk and are not intact now: "
        f"{reason}; restore the directory's files, or move the directory away if other replicas have these records"
    )


async def _read(segment: Segment, scan: EpochScan, following: int | None) -> None:
    """Read a segment into the scan. No CRC covers a base offset. If a batch after a gap contradicts the next batch, or
    the `following` segment, then that batch is the wrong one."""
    pause_at = SCAN_BYTES
    behind_gap: BatchHeader | None = None
    try:
        for position, header in segment.intact_batches(compacted=scan.compacted):
            if behind_gap is not None:
                doubted, behind_gap = behind_gap, None
                if header.base_offset < doubted.next_offset:
                    text = f"offset {doubted.base_offset} follows {scan.next_offset - 1}"
                    raise CorruptBatch(f"{text}, and {header.base_offset} follows that")
                _take(segment, scan, doubted)
            if header.base_offset > scan.next_offset and scan.compacted:
                behind_gap = header
            else:
                _take(segment, scan, header)
            if position >= pause_at:
                pause_at = position + SCAN_BYTES
                await yield_to_others()
    finally:
        if behind_gap is not None:
            if following is not None and behind_gap.next_offset > following:
                raise CorruptBatch(f"offset {behind_gap.base_offset} is before a segment that starts at {following}")
            _take(segment, scan, behind_gap)


def _take(segment: Segment, scan: EpochScan, header: BatchHeader) -> None:
    scan.accept(header)
    segment.note([Batch.of(header)])


async def _make_durable(disk: Disk, directory: str, result: Recovered, recovery_point: int) -> None:
    """Sync the recovered log: a killed process may leave pages that are not on disk yet.

    After a failed sync the kernel may regard such pages as clean, and the next sync succeeds without writing them. So
    the part past the recovery point is written again (fsyncgate; PostgreSQL replays its own log for that reason)."""
    *complete, _ = result.segments
    for segment in complete:
        if not segment.was_taken_over:
            segment.finish()
            await segment.index.sync()
    for segment in result.segments:
        if segment.next_offset <= recovery_point:
            await segment.file.sync()
        else:
            doubted = segment.position_of(max(recovery_point, segment.base_offset))
            await segment.file.sync_again(doubted)
    await disk.sync_directory(directory)
    await result.epochs.write_durably()


def _close(segments: list[Segment]) -> None:
    for segment in segments:
        segment.close()

"""What a log holds after a stop, clean or not.

After a clean stop the indexes say what is there. After any other, every batch from the recovery point on is read and
checked: the log ends before the first bytes that are not an intact batch of the next offset - a torn tail, a hole of
zeros, a wrong CRC - and everything behind that, later segments included, was never acknowledged as durable and goes.

What lies below the recovery point was on disk before the crash. If it is missing or damaged now, the crash has not done
that, and cutting the log there would silently remove what others count on: the log is not opened, and stays as it is.

What an interrupted compaction has left is completed or removed before (`swaps`).

What the log knows of its producers is what the newest snapshot says, and the batches from there to the log's end.
Without a snapshot the batches alone say it. They say it completely only where the log holds every record since offset
0: otherwise the log may have forgotten any producer, and says so in `ProducerState.forgotten_to`.
"""

from __future__ import annotations

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
    """A log lacks what had been on disk; nothing of it was changed. The message names file, place and remedy."""


class _UnwantedError(Exception):
    """What is being read is of no use any more."""


@dataclass
class Recovered:
    """What was found: `reason` tells why the log was cut (None: it was whole), `lost_bytes` how much that removed."""

    segments: list[Segment]
    epochs: LeaderEpochCache
    snapshots: ProducerSnapshots
    scanned: bool
    reason: str | None = None
    lost_bytes: int = 0
    producers: ProducerState = field(default_factory=lambda: ProducerState(MAX_ID))
    last_sequenced: int | None = None
    """No batch of an idempotent producer begins past this offset; None: not looked for."""


@dataclass
class EpochScan:
    """The state of reading a log from its start, or from a place up to which its epochs are known."""

    next_offset: int
    epochs: list[EpochEntry] = field(default_factory=list)
    compacted: bool = False
    """Whether offsets may be left out between the batches."""
    last_sequenced: int = field(init=False)
    """No batch of an idempotent producer begins past it: what lies before the scan may hold any."""

    def __post_init__(self) -> None:
        self.last_sequenced = self.next_offset - 1

    def accept(self, header: BatchHeader) -> None:
        """Raises `CorruptBatch` when an intact batch is not the one that must follow."""
        if header.base_offset < self.next_offset or (header.base_offset > self.next_offset and not self.compacted):
            raise CorruptBatch(f"offset {header.base_offset} follows {self.next_offset - 1}")
        latest = self.epochs[-1].epoch if self.epochs else -1
        if header.leader_epoch < max(latest, 0):
            raise CorruptBatch(f"offset {header.base_offset}: leader epoch {header.leader_epoch} follows {latest}")
        if header.leader_epoch > latest:
            self.epochs.append(EpochEntry(header.leader_epoch, header.base_offset))
        if header.producer_id >= 0:
            self.last_sequenced = header.base_offset
        self.next_offset = header.next_offset


def base_offsets(disk: Disk, directory: str) -> list[int]:
    """The base offsets of a directory's segments, in their order."""
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
    keeps_epochs: bool = False,
) -> Recovered:
    """Open the segments of a log, at least one, and bring log, indexes, epochs and producers into agreement, durably.

    Everything below `recovery_point` was durable once. Raises `DamagedLogError` when it is not there, having changed
    nothing. What lies below `start_offset` is served to nobody: its epochs need not be known. `compacted`: records may
    have been removed from between others. `forgets_producers`, `keeps_epochs`: the mutants no_producer_snapshot and
    keep_epochs_past_leo.
    """
    try:
        await finish_swaps(disk, directory, interval_bytes)
    except CorruptBatch as error:
        remedy = "restore the file, or move the directory away if other replicas have these records"
        raise DamagedLogError(f"{error}; {remedy}") from None
    before = LeaderEpochCache.load(disk, f"{directory}/{EPOCHS_FILE}").entries if keeps_epochs else ()
    result = await _find(
        disk,
        directory,
        interval_bytes,
        clean_shutdown=clean_shutdown,
        recovery_point=recovery_point,
        start_offset=start_offset,
        compacted=compacted,
    )
    if before:
        result.epochs.replace(before)
    segments, snapshots = result.segments, result.snapshots
    removed = snapshots.remove_past(segments[-1].next_offset)
    removed |= snapshots.remove_before(segments[0].base_offset)
    removed |= snapshots.keep([segment.base_offset for segment in segments])
    if removed:
        await disk.sync_directory(directory)
    if not forgets_producers:
        result.producers = await recover_producers(segments, snapshots, result.last_sequenced, compacted=compacted)
    return result


async def yield_to_others() -> None:
    """A large log must not keep the loop from everything else."""
    await asyncio.sleep(0)


async def recover_producers(
    segments: Sequence[Segment],
    snapshots: ProducerSnapshots,
    last_sequenced: int | None = None,
    *,
    compacted: bool,
    pause: Callable[[], Awaitable[None]] = yield_to_others,
) -> ProducerState:
    """What a log knows of its producers at its end; no snapshot may lie past that.

    `last_sequenced`: no batch of any begins past this offset, if that is known: there nothing has to be read.
    `compacted`: records may have been removed from between others. `pause` is awaited again and again; the log may
    change meanwhile unless it raises.
    """
    now = asyncio.get_running_loop().time()
    first, end = segments[0].base_offset, segments[-1].next_offset
    start, state = snapshots.newest(end, now) or (first, _without_snapshot(first, end, compacted=compacted))
    for segment in segments:
        if segment.next_offset <= start or (
            last_sequenced is not None and last_sequenced < max(start, segment.base_offset)
        ):
            continue
        pause_at = SCAN_BYTES
        for position, header in segment.walk(segment.position_of(max(start, segment.base_offset))):
            batch = Batch.of(header)
            if batch.sequenced is not None and batch.offset >= start:
                state.record(batch.sequenced, batch.offset, batch.max_timestamp, now)
            if position >= pause_at:
                pause_at = position + SCAN_BYTES
                await pause()
    return state


def _without_snapshot(first: int, end: int, *, compacted: bool) -> ProducerState:
    """The state in front of a log's batches: whether those are all that were ever in it."""
    has_all = not end or (not first and not compacted)
    return ProducerState(NO_ID if has_all else MAX_ID)


async def read_again(
    segments: Sequence[Segment],
    snapshots: ProducerSnapshots,
    wanted: Callable[[], bool],
    *,
    scan: EpochScan,
) -> tuple[EpochScan, ProducerState] | None:
    """Epochs and producers as the batches of an open log have them; None: that was no longer `wanted`.

    `scan` says where a segment begins from which on all are read. Whoever changes the log sees to it that this is not
    wanted then: files may be closed, and bytes be others. Raises `CorruptBatch`, `OSError`.
    """

    async def pause() -> None:
        await yield_to_others()
        if not wanted():
            raise _UnwantedError

    async def recovered() -> ProducerState:
        if not wanted():  # this may be a while later
            raise _UnwantedError
        return await recover_producers(segments, snapshots, compacted=scan.compacted, pause=pause)

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
    return (scan, producers) if wanted() else None


async def _find(
    disk: Disk,
    directory: str,
    interval_bytes: int,
    *,
    clean_shutdown: bool,
    recovery_point: int,
    start_offset: int,
    compacted: bool,
) -> Recovered:
    path = f"{directory}/{EPOCHS_FILE}"
    bases = base_offsets(disk, directory) or [0]
    if clean_shutdown and (segments := _take_over(disk, directory, interval_bytes, bases)) is not None:
        try:
            epochs = LeaderEpochCache.load(disk, path)
        except CorruptCheckpointError:
            epochs = LeaderEpochCache(disk, path)  # the batches know their epochs
        epochs.truncate_from_start(bases[0])
        whole = segments[-1].next_offset >= recovery_point
        if whole and (epochs.entries or not any(segment.size for segment in segments)):
            return Recovered(segments, epochs, ProducerSnapshots(disk, directory), scanned=False)
        _close(segments)
    points = _Points(max(bases[0], start_offset), recovery_point)
    result = await _scan(disk, directory, interval_bytes, bases, points, compacted=compacted)
    await _make_durable(disk, directory, result, recovery_point)
    return result


def _take_over(disk: Disk, directory: str, interval_bytes: int, bases: list[int]) -> list[Segment] | None:
    """The segments as their indexes describe them; None when an index is of no use or a segment is missing."""
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
    """Offsets at which a log begins, and below which all of it was on disk once."""

    start: int
    recovery: int


async def _scan(
    disk: Disk, directory: str, interval_bytes: int, bases: list[int], points: _Points, *, compacted: bool
) -> Recovered:
    epochs = LeaderEpochCache(disk, f"{directory}/{EPOCHS_FILE}")
    result = Recovered([], epochs, ProducerSnapshots(disk, directory), scanned=True)
    result.segments, scan = _below_recovery_point(disk, directory, interval_bytes, bases, points)
    scan.compacted = compacted
    left = bases[len(result.segments) :]
    for base, following in zip_longest(left, left[1:]):
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
    # new epoch that reached the disk before its data did. What the batches say is what holds.
    result.epochs.replace(scan.epochs)
    result.last_sequenced = scan.last_sequenced
    return result


def _below_recovery_point(
    disk: Disk, directory: str, interval_bytes: int, bases: list[int], points: _Points
) -> tuple[list[Segment], EpochScan]:
    """The segments that lie below the recovery point whole, as their indexes describe them, and a scan of what follows.

    Fewer of them where an index is of no use; none where the epochs of what is served of them are not known."""
    try:
        known = LeaderEpochCache.load(disk, f"{directory}/{EPOCHS_FILE}")
    except CorruptCheckpointError:
        return [], EpochScan(bases[0])
    known.truncate_from_start(bases[0])
    segments: list[Segment] = []
    for base, following in pairwise(bases):
        if following > points.recovery:
            break
        segment = Segment(disk, directory, base, interval_bytes)
        if not segment.load() or segment.next_offset != following:
            segment.close()
            break
        segments.append(segment)
    if not segments or not known.entries or known.entries[0].start_offset > points.start:
        _close(segments)
        return [], EpochScan(bases[0])
    end = segments[-1].next_offset
    return segments, EpochScan(end, [entry for entry in known.entries if entry.start_offset < end])


def _cut_off(
    disk: Disk, directory: str, interval_bytes: int, bases: list[int], result: Recovered, scan: EpochScan
) -> None:
    """Remove what follows the last intact batch."""
    last = result.segments[-1]
    if last.base_offset != scan.next_offset and last.size == 0 and len(result.segments) > 1:
        result.segments.pop().close()  # it does not follow: it goes with the others
    else:
        result.lost_bytes += last.file.size() - last.size
        last.truncate(last.next_offset, last.size, last.max_timestamp)
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
    """No CRC covers a base offset: behind a gap, a batch that the next one contradicts is the one that is wrong, or
    that the `following` segment does."""
    pause_at = SCAN_BYTES
    behind_gap: BatchHeader | None = None
    try:
        for position, header in segment.intact_batches(compacted=scan.compacted):
            if behind_gap is not None:
                doubted, behind_gap = behind_gap, None
                if header.base_offset < doubted.next_offset:
                    told = f"offset {doubted.base_offset} follows {scan.next_offset - 1}"
                    raise CorruptBatch(f"{told}, and {header.base_offset} follows that")
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
                raise CorruptBatch(f"offset {behind_gap.base_offset} lies before a segment that begins at {following}")
            _take(segment, scan, behind_gap)


def _take(segment: Segment, scan: EpochScan, header: BatchHeader) -> None:
    scan.accept(header)
    segment.note([Batch.of(header)])


async def _make_durable(disk: Disk, directory: str, result: Recovered, recovery_point: int) -> None:
    """A killed process leaves pages that are not on disk yet: what counts as recovered has to be there.

    Of one that ended because a sync had failed they may be clean, and their next sync good without writing them: what
    lies past the recovery point is written again (fsyncgate; PostgreSQL reads it from its own log for that reason)."""
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

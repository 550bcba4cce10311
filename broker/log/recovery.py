"""What a log holds after a stop, clean or not.

After a clean stop the indexes say what is there. After any other, every batch is read and checked: the log ends
before the first bytes that are not an intact batch of the next offset - a torn tail, a hole of zeros, a wrong CRC -
and everything behind that, later segments included, was never acknowledged as durable and goes.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from broker.log.checkpoint import CorruptCheckpointError
from broker.log.epochs import EpochEntry, LeaderEpochCache
from broker.log.intake import Batch
from broker.log.segment import SCAN_BYTES, Segment
from broker.ports import Disk
from broker.protocol.records import BatchHeader, CorruptBatch

SUFFIX = ".log"
EPOCHS_FILE = "leader-epoch-checkpoint"


@dataclass
class Recovered:
    """What was found: `reason` tells why the log was cut (None: it was whole), `lost_bytes` how much that removed."""

    segments: list[Segment]
    epochs: LeaderEpochCache
    scanned: bool
    reason: str | None = None
    lost_bytes: int = 0


@dataclass
class _Scan:
    """The state of reading a log from its start."""

    next_offset: int
    epochs: list[EpochEntry] = field(default_factory=list)

    def accept(self, header: BatchHeader) -> None:
        """Raises `CorruptBatch` when an intact batch is not the one that must follow."""
        if header.base_offset != self.next_offset:
            raise CorruptBatch(f"offset {header.base_offset} follows {self.next_offset - 1}")
        latest = self.epochs[-1].epoch if self.epochs else -1
        if header.leader_epoch < max(latest, 0):
            raise CorruptBatch(f"offset {header.base_offset}: leader epoch {header.leader_epoch} follows {latest}")
        if header.leader_epoch > latest:
            self.epochs.append(EpochEntry(header.leader_epoch, header.base_offset))
        self.next_offset = header.next_offset


def base_offsets(disk: Disk, directory: str) -> list[int]:
    """The base offsets of a directory's segments, in their order."""
    names = [name.removesuffix(SUFFIX) for name in disk.list(directory) if name.endswith(SUFFIX)]
    return sorted(int(name) for name in names if len(name) == 20 and name.isdecimal())


async def recover(disk: Disk, directory: str, interval_bytes: int, *, clean_shutdown: bool) -> Recovered:
    """Open the segments of a log, at least one, and bring log, indexes and epochs into agreement, durably."""
    path = f"{directory}/{EPOCHS_FILE}"
    bases = base_offsets(disk, directory) or [0]
    if clean_shutdown and (segments := _take_over(disk, directory, interval_bytes, bases)) is not None:
        try:
            epochs = LeaderEpochCache.load(disk, path)
        except CorruptCheckpointError:
            epochs = LeaderEpochCache(disk, path)  # the batches know their epochs
        epochs.truncate_from_start(bases[0])
        if epochs.entries or not any(segment.size for segment in segments):
            return Recovered(segments, epochs, scanned=False)
        _close(segments)
    result = await _scan(disk, directory, interval_bytes, bases)
    await _make_durable(disk, directory, result)
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


async def _scan(disk: Disk, directory: str, interval_bytes: int, bases: list[int]) -> Recovered:
    result = Recovered([], LeaderEpochCache(disk, f"{directory}/{EPOCHS_FILE}"), scanned=True)
    scan = _Scan(bases[0])
    for base in bases:
        segment = Segment(disk, directory, base, interval_bytes)
        if result.reason is not None or base != scan.next_offset:
            result.reason = result.reason or f"{segment.file.path}: the segment follows offset {scan.next_offset - 1}"
            result.lost_bytes += segment.file.size()
            segment.remove()
            continue
        result.segments.append(segment)
        try:
            await _read(segment, scan)
        except CorruptBatch as error:
            result.reason = str(error)
            result.lost_bytes += segment.file.size() - segment.size
            segment.truncate(segment.next_offset, segment.size, segment.max_timestamp)
    # K101-12: an entry at or past the end has no record, and an entry that the batches contradict is a truncation or a
    # new epoch that reached the disk before its data did. What the batches say is what holds.
    result.epochs.replace(scan.epochs)
    return result


async def _read(segment: Segment, scan: _Scan) -> None:
    pause_at = SCAN_BYTES
    for position, header in segment.intact_batches():
        scan.accept(header)
        segment.note(Batch(header.base_offset, header.next_offset, header.size, header.max_timestamp))
        if position >= pause_at:
            pause_at = position + SCAN_BYTES
            await asyncio.sleep(0)  # a large log must not keep the loop from everything else


async def _make_durable(disk: Disk, directory: str, result: Recovered) -> None:
    """A killed process leaves pages that are not on disk yet: what counts as recovered has to be there."""
    for segment in result.segments[:-1]:
        segment.finish()
    for segment in result.segments:
        await segment.file.sync()
    await disk.sync_directory(directory)
    await result.epochs.write_durably()


def _close(segments: list[Segment]) -> None:
    for segment in segments:
        segment.close()

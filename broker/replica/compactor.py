"""Compaction of this broker's replicas: selects the next log, compacts it, and stores up to where.

Every replica compacts its own log, as leader or follower. The dirtiest log comes first; one at a time, in short turns
of the loop. A log that cannot be compacted stays unchanged until the broker restarts, and the trace has the reason.

Theory of operation. The log of a partition is compacted in passes (`Cleaner`). A pass selects segments, rewrites them
and swaps in the results. It changes only what is committed and complete: never the growing segment, nothing at or past
the high watermark, nothing younger than `min.compaction.lag.ms`. So readers at the end of the log see no change.

A pass first finds the latest record of each key in the dirty part. Then it rewrites all segments up to the end of that
part, and merges small ones. The log keeps its end; only records in between are removed.

What stays of a batch is the latest record of each key, at its offset (KIP-354, KIP-534); `Compaction` decides it and is
pure. A batch keeps its offsets, epoch and producer's numbers, whatever records it loses. A batch that loses all records
is removed, unless it shows something else: where its leader epoch starts (K101-11), what its producer wrote last, or
where its segment ends. Then its header stays.

A record without a value, a tombstone, stays for some time, so that readers of the log see the deletion. The first pass
that finds it writes the end of that time into its batch; a later pass removes it.

Long computations are generators that yield after some records, so that other tasks run meanwhile.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Final, NamedTuple, TypeVar

from crc32c import crc32c

from broker.errors import is_out_of_descriptors
from broker.log.append_validation import Batch
from broker.log.checkpoint import Key, OffsetCheckpoint
from broker.log.log import PartitionLog
from broker.log.segment import Segment
from broker.log.segment_swap import CLEANED
from broker.ports import Buffer, Disk
from broker.producers.producer_state import REMEMBERED
from broker.protocol.compression import TooLargeError, compress_records, open_records
from broker.protocol.records import (
    BATCH_HEADER_SIZE,
    COMPRESSION_MASK,
    DELETE_HORIZON_MASK,
    LOG_APPEND_TIME_MASK,
    MAGIC,
    BatchHeader,
    CorruptBatch,
    UnsupportedCompression,
    parse_header,
    read_varint,
    validate_batch,
    varint,
)
from broker.replica.partition import Partition
from broker.replica.partition_work import PartitionWork

RECORDS_PER_TURN: Final = 500
MOST_KEYS: Final = 250_000
"""The limit of keys of one pass: about 40 MB. The next pass continues."""

T = TypeVar("T")
Work = Generator[None, None, T]

_DIGEST_BYTES = 16  # collisions do not happen in practice; Kafka's map has MD5 of the same size
_CHECKED = struct.Struct(">hiqqqhii")
_FRONT = struct.Struct(">qiibI")
_FRONT_BEHIND_LENGTH = 9  # bytes of leader epoch, magic and CRC


class RawRecord(NamedTuple):
    """One record as encoded in its batch; `rest` is its key, value and headers."""

    attributes: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    is_tombstone: bool
    rest: bytes


class LatestOffsets:
    """The latest offset of each key in a part of the log, which grows at `end`."""

    def __init__(self, start: int) -> None:
        self.end = start
        self._offsets: dict[bytes, int] = {}

    @property
    def is_full(self) -> bool:
        return len(self._offsets) >= MOST_KEYS

    def add(self, header: BatchHeader, batch: Buffer) -> Work[None]:
        """Add the next batch. Raises `CorruptBatch`, and `UnsupportedCompression` or `TooLargeError` for a batch that
        cannot be opened."""
        if not header.is_control:
            for number, record in enumerate(raw_records(header, batch)):
                if record.key is not None:
                    self._offsets[_digest(record.key)] = header.base_offset + record.offset_delta
                if number % RECORDS_PER_TURN == RECORDS_PER_TURN - 1:
                    yield
        self.end = header.next_offset

    def supersedes(self, key: bytes, offset: int) -> bool:
        """Whether a later record of the key is known."""
        return self._offsets.get(_digest(key), -1) > offset


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=_DIGEST_BYTES).digest()


class Compaction:
    """One pass over a log. Times in ms; `now_ms` is the wall clock's time, -1 if unknown, which keeps tombstones."""

    def __init__(self, latest: LatestOffsets, *, now_ms: int, delete_retention_ms: int) -> None:
        self._latest = latest
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms

    def compact(self, header: BatchHeader, batch: bytes, *, keep_header: bool) -> Work[bytes]:
        """The remaining part of a batch: all of it, some of it, or nothing. Raises as `LatestOffsets.add`."""
        if header.is_control or header.base_offset >= self._latest.end:
            return batch
        remaining_records: list[RawRecord] = []
        horizon = header.base_timestamp if header.attributes & DELETE_HORIZON_MASK else None
        expired = horizon is not None and self._now_ms >= horizon
        has_tombstone = False
        for number, record in enumerate(raw_records(header, batch)):
            if self._stays(header, record, expired):
                remaining_records.append(record)
                has_tombstone |= record.is_tombstone
            if number % RECORDS_PER_TURN == RECORDS_PER_TURN - 1:
                yield
        if not remaining_records:
            return emptied(header) if keep_header else b""
        if horizon is None and has_tombstone and self._now_ms >= 0:
            horizon = self._now_ms + self._delete_retention_ms
        elif len(remaining_records) == header.records_count:
            return batch
        return rebuilt(header, remaining_records, horizon)

    def _stays(self, header: BatchHeader, record: RawRecord, expired: bool) -> bool:
        if header.base_offset + record.offset_delta >= self._latest.end:
            return True
        # Records without a key are left over from before the topic was compacted.
        if record.key is None or (record.is_tombstone and expired):
            return False
        return not self._latest.supersedes(record.key, header.base_offset + record.offset_delta)


def raw_records(header: BatchHeader, batch: Buffer) -> Iterator[RawRecord]:
    """The records of an intact batch. Raises `CorruptBatch` and what `open_records` raises."""
    data = bytes(batch[BATCH_HEADER_SIZE : header.size])
    if header.compression:
        data = open_records(header.compression, data)
    pos = 0
    try:
        for _ in range(header.records_count):
            length, pos = read_varint(data, pos)
            end = pos + length
            attributes = data[pos]
            timestamp_delta, at = read_varint(data, pos + 1)
            offset_delta, body_start = read_varint(data, at)
            key_length, at = read_varint(data, body_start)
            key = None if key_length < 0 else data[at : at + key_length]
            value_length, at = read_varint(data, at + max(key_length, 0))
            if not at + max(value_length, 0) <= end <= len(data):
                raise CorruptBatch(f"offset {header.base_offset}: a record's fields exceed it")
            yield RawRecord(attributes, timestamp_delta, offset_delta, key, value_length < 0, data[body_start:end])
            pos = end
    except IndexError:
        raise CorruptBatch(f"offset {header.base_offset}: the records do not end within their batch") from None


def rebuilt(header: BatchHeader, records: list[RawRecord], horizon_ms: int | None) -> bytes:
    """A batch with some of its records; `horizon_ms`: the time at which its tombstones may be removed."""
    attributes, base = header.attributes, header.base_timestamp
    times = [base + record.timestamp_delta for record in records]
    if horizon_ms is not None:
        attributes |= DELETE_HORIZON_MASK
        base = horizon_ms
    data = bytearray()
    for record, time in zip(records, times, strict=True):
        body = bytes([record.attributes]) + varint(time - base) + varint(record.offset_delta) + record.rest
        data += varint(len(body)) + body
    if header.compression:
        data = bytearray(compress_records(header.compression, bytes(data)))
    latest = header.max_timestamp if attributes & LOG_APPEND_TIME_MASK else max(times)
    return _batch(header, attributes, base, latest, len(records), bytes(data))


def emptied(header: BatchHeader) -> bytes:
    """A batch without its records; the information of its header stays."""
    attributes = header.attributes & ~COMPRESSION_MASK & ~DELETE_HORIZON_MASK
    return _batch(header, attributes, header.max_timestamp, header.max_timestamp, 0, b"")


def _batch(header: BatchHeader, attributes: int, base: int, latest: int, count: int, data: bytes) -> bytes:
    checked = (
        _CHECKED.pack(
            attributes,
            header.last_offset_delta,
            base,
            latest,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            count,
        )
        + data
    )
    length = _FRONT_BEHIND_LENGTH + len(checked)
    return _FRONT.pack(header.base_offset, length, header.leader_epoch, MAGIC, crc32c(checked)) + checked


REST_S: Final = 0.003
"""The pause between two turns: compaction never occupies the loop."""
COST_PER_TURN: Final = 1 << 18
_COST_OF_RECORD = 200
"""Work is measured in bytes; a record costs as much as this many."""


class UncleanableError(Exception):
    """A log that cannot be compacted because a batch cannot be opened; the message has the reason."""


@dataclass(frozen=True)
class Cleanable:
    """The part that a pass would compact: the offset behind it, and its dirty ratio, 0 if the part is empty."""

    end: int
    ratio: float


def cleanable(
    segments: Sequence[Segment], first_dirty: int, high_watermark: int, now_ms: int, min_lag_ms: int
) -> Cleanable:
    """The cleanable part of segments, the last of which grows. -1 as `now_ms`: the time is unknown, and every
    record counts as too young."""
    clean = dirty = 0
    end = first_dirty
    for segment in segments[:-1]:
        young = min_lag_ms > 0 and (now_ms < 0 or segment.max_timestamp > now_ms - min_lag_ms)
        if segment.next_offset > high_watermark or young:
            break
        if segment.next_offset <= first_dirty:
            clean += segment.size
        else:
            dirty += segment.size
            end = segment.next_offset
    return Cleanable(end, dirty / (clean + dirty) if dirty else 0.0)


class Cleaner:
    """Makes passes over one log. `replace` swaps rewritten segments in, under the partition's lock."""

    def __init__(
        self,
        disk: Disk,
        log: PartitionLog,
        *,
        wanted: Callable[[], bool],
        replace: Callable[[Sequence[Segment], Segment, int], Awaitable[bool]],
        drops_epochs: bool = False,
    ) -> None:
        """`wanted` is called in every turn; once it returns false, the pass ends. `drops_epochs`: the mutant
        compaction_drops_epochs."""
        self._disk = disk
        self._log = log
        self._wanted = wanted
        self._replace = replace
        self._drops_epochs = drops_epochs
        self._cost = 0
        self._truncations = log.truncations
        self._reading: Sequence[Segment] = ()

    async def clean(self, end: int, *, now_ms: int, delete_retention_ms: int, sizes: "SegmentSizes") -> bool:
        """Compact the log up to `end`, the end of a segment, or as far as one pass goes (`log.cleaned_to`).

        Returns false if the pass became unwanted, or the log has changed in that part; the next pass continues.
        Raises `UncleanableError`, and `OSError` of the disk.
        """
        segments = [segment for segment in self._log.segments[:-1] if segment.next_offset <= end]
        try:
            survey = await self._survey(segments)
            work = Compaction(survey.latest, now_ms=now_ms, delete_retention_ms=delete_retention_ms)
            for group in grouped(
                [segment for segment in segments if segment.base_offset < survey.latest.end], sizes.segment
            ):
                if not await self._clean_group(group, work, survey, sizes.index_interval):
                    return False
        except (CorruptBatch, UnsupportedCompression, TooLargeError) as error:
            raise UncleanableError(f"{self._log.directory}: {error}") from error
        except _UnwantedError:
            return False
        self._log.cleaned_to = max(self._log.cleaned_to, survey.latest.end)
        return True

    async def _survey(self, segments: Sequence[Segment]) -> "_Survey":
        """Find the last offset of each key in the dirty part, and the batches that must stay: they show where epochs
        start and what producers wrote last."""
        survey = _Survey(LatestOffsets(self._log.cleaned_to))
        self._reading = segments
        for segment in segments:
            for position, header in self._as_written(segment, segment.walk(0)):
                survey.note(header)
                if header.next_offset > survey.latest.end and not survey.latest.is_full:
                    batch = segment.file.read(position, header.size)
                    validate_batch(batch, compacted=True)
                    await self._in_turns(survey.latest.add(header, batch))
                    await self._spend(header.size + _COST_OF_RECORD * header.records_count)
                else:
                    await self._spend(BATCH_HEADER_SIZE)
        survey.kept |= {
            offset
            for producer_id, offsets in survey.producers.items()
            if self._log.producers.find(producer_id) is not None
            for offset in offsets
        }
        if not self._drops_epochs:
            survey.kept |= survey.epoch_starts
        return survey

    def _as_written(
        self, segment: Segment, batches: Iterator[tuple[int, BatchHeader]]
    ) -> Iterator[tuple[int, BatchHeader]]:
        """The batches of a segment, after a check that their offsets and epochs are those that were written. No CRC
        covers these fields, and a rewritten batch would be trusted. Raises `CorruptBatch`; the next start then reads
        the whole segment."""
        due = segment.base_offset
        try:
            for position, header in batches:
                if header.base_offset < due or header.next_offset > segment.next_offset:
                    limits = f"{due} to {segment.next_offset}"
                    raise CorruptBatch(f"{segment.path}: offset {header.base_offset} stands where {limits} must follow")
                served = header.last_offset >= self._log.log_start_offset
                if served and header.leader_epoch != self._log.epochs.epoch_at(header.last_offset):
                    raise CorruptBatch(f"{segment.path}: offset {header.base_offset}: epoch {header.leader_epoch}")
                due = header.next_offset
                yield position, header
        except CorruptBatch:
            segment.distrust()
            raise

    async def _clean_group(
        self, group: Sequence[Segment], work: Compaction, survey: "_Survey", interval_bytes: int
    ) -> bool:
        """Rewrite some segments as one; false if the log does not contain them any more."""
        self._reading = group
        self._check()  # the directory may have been removed
        base = group[0].base_offset
        cleaned = Segment(self._disk, self._log.directory, base, interval_bytes, suffix=CLEANED)
        try:
            changed = await self._write_anew(group, cleaned, work, survey.kept)
            if len(group) == 1 and not changed:
                _discard(cleaned)
                return True
            cleaned.finish()
            await cleaned.file.sync()
            await cleaned.index.sync()
            if await self._replace(group, cleaned, self._truncations):
                return True
        except Exception:  # but not at the end of the process: the next start removes the file
            _discard(cleaned)
            raise
        _discard(cleaned)
        return False

    async def _write_anew(
        self, group: Sequence[Segment], cleaned: Segment, work: Compaction, kept_offsets: Collection[int]
    ) -> bool:
        """Write the remaining records of some segments to another; returns whether that changes anything."""
        changed = False
        end = group[-1].next_offset
        cleaned.file.truncate(0)  # an earlier process may have left part of a pass
        for segment in group:
            for position, header in self._as_written(segment, segment.intact_batches(compacted=True)):
                batch = segment.file.read(position, header.size)
                keep = header.base_offset in kept_offsets or header.next_offset == end
                compacted_batch = await self._in_turns(work.compact(header, batch, keep_header=keep))
                if compacted_batch:
                    cleaned.file.append([compacted_batch])
                    cleaned.note([Batch.of(parse_header(compacted_batch))])
                changed |= compacted_batch != batch
                await self._spend(header.size + _COST_OF_RECORD * header.records_count)
        return changed

    async def _in_turns(self, work: Work[T]) -> T:
        while True:
            try:
                next(work)
            except StopIteration as done:
                result: T = done.value
                return result
            await self._spend(COST_PER_TURN)

    async def _spend(self, cost: int) -> None:
        self._cost += cost
        if self._cost >= COST_PER_TURN:
            self._cost = 0
            await asyncio.sleep(REST_S)
            self._check()

    def _check(self) -> None:
        """Raise if the log was changed between two turns: files may be closed, and bytes may be others."""
        if (
            not self._wanted()
            or self._truncations != self._log.truncations
            or not set(self._reading) <= set(self._log.segments)
            or any(segment.next_offset > self._log.kept_end for segment in self._reading)
        ):
            raise _UnwantedError


def _discard(cleaned: Segment) -> None:
    """Remove an unused rewritten segment. If its swap has started, the next start completes that instead."""
    if cleaned.path.endswith(CLEANED):
        cleaned.file.close()
        cleaned.retire()


def grouped(segments: Sequence[Segment], segment_bytes: int) -> list[list[Segment]]:
    """Groups of consecutive segments that fit into one segment together."""
    groups: list[list[Segment]] = []
    size = 0
    for segment in segments:
        if not groups or size + segment.size > segment_bytes:
            groups.append([])
            size = 0
        groups[-1].append(segment)
        size += segment.size
    return groups


@dataclass(frozen=True)
class SegmentSizes:
    """Segment sizes of the topic, in bytes."""

    segment: int
    index_interval: int


class _UnwantedError(Exception):
    """The pass has become unwanted."""


@dataclass
class _Survey:
    """`kept`: the base offsets of batches whose headers stay, even without records."""

    latest: LatestOffsets
    kept: set[int] = field(default_factory=set)
    epoch_starts: set[int] = field(default_factory=set)
    producers: dict[int, deque[int]] = field(default_factory=dict)
    last_epoch: int = -1

    def note(self, header: BatchHeader) -> None:
        if header.leader_epoch > self.last_epoch:
            self.last_epoch = header.leader_epoch
            self.epoch_starts.add(header.base_offset)
        if header.producer_id >= 0:
            base_offsets = self.producers.setdefault(header.producer_id, deque(maxlen=REMEMBERED))
            base_offsets.append(header.base_offset)


# ---- The compaction of this broker's replicas.

CHECKPOINT_FILE: Final = "cleaner-offset-checkpoint"


class Compactor:
    """Compacts those logs of `partitions()` whose topics are compacted."""

    def __init__(
        self,
        *,
        disk: Disk,
        partitions: Callable[[], Collection[Partition]],
        now_ms: Callable[[], int],
        work: PartitionWork,
        drops_epochs: bool = False,
    ) -> None:
        """`drops_epochs`: the mutant compaction_drops_epochs."""
        self._disk = disk
        self._partitions = partitions
        self._now_ms = now_ms
        self._work = work
        self._drops_epochs = drops_epochs
        self._checkpoint = OffsetCheckpoint(disk, CHECKPOINT_FILE)
        self._writing = asyncio.Lock()
        self._uncleanable: set[Partition] = set()

    async def start(self) -> None:
        """Read the compacted offsets of the open logs. Parts that the logs have lost since are removed from the
        checkpoint, durably. Raises `CorruptCheckpointError`, `OSError`."""
        written = self._checkpoint.read()
        for partition in self._partitions():
            log = partition.log
            log.cleaned_to = min(written.get(partition.key, 0), log.log_end_offset)
        await self._write()

    async def compact(self) -> None:
        """Compact all logs that are dirty enough. Raises `OSError` of the checkpoint."""
        self._uncleanable &= set(self._partitions())
        while (dirtiest := self._dirtiest()) is not None:
            partition, end = dirtiest
            if not await self._work.attempt("compaction", partition, partial(self._compact, partition, end)):
                break
            await self._write()
        await self._write()

    async def lower(self, key: Key, offset: int) -> None:
        """A log is about to be cut to `offset`, and shows that already; durable on return. Records that are appended
        later have not been compacted, and a deleted key would return. Raises `OSError`."""
        await self._write_if(lambda: self._checkpoint.known.get(key, 0) > offset)

    async def forget(self, key: Key) -> None:
        """A partition's log is about to be removed; a later one of its name starts empty."""
        await self._write_if(lambda: key in self._checkpoint.known)

    def _dirtiest(self) -> tuple[Partition, int] | None:
        best: tuple[float, Partition, int] | None = None
        for partition in self._partitions():
            stretch = self._cleanable(partition)
            if stretch is not None and (best is None or stretch.ratio > best[0]):
                best = (stretch.ratio, partition, stretch.end)
        return None if best is None else best[1:]

    def _cleanable(self, partition: Partition) -> Cleanable | None:
        settings = partition.compaction
        pauses = self._work.pauses("compaction", partition)
        if settings is None or pauses or partition in self._uncleanable or partition.lock.locked():
            return None  # if the lock is held, the log may be about to be cut: the next turn checks again
        log = partition.log
        lag_ms = settings.min_compaction_lag_ms
        stretch = cleanable(log.segments, log.cleaned_to, partition.high_watermark, self._now_ms(), lag_ms)
        return stretch if stretch.ratio > 0 and stretch.ratio >= settings.min_cleanable_dirty_ratio else None

    async def _compact(self, partition: Partition, end: int) -> bool:
        """Make one pass; returns whether another may follow at once."""
        settings = partition.compaction
        assert settings is not None
        size = partition.log.size
        cleaner = Cleaner(
            self._disk,
            partition.log,
            wanted=lambda: partition.compaction is not None and partition in self._partitions(),
            replace=partition.replace_segments,
            drops_epochs=self._drops_epochs,
        )
        sizes = SegmentSizes(settings.segment_bytes, settings.index_interval_bytes)
        try:
            done = await cleaner.clean(
                end, now_ms=self._now_ms(), delete_retention_ms=settings.delete_retention_ms, sizes=sizes
            )
        except UncleanableError as error:
            self._uncleanable.add(partition)
            partition.trace("log_uncleanable", reason=str(error))
            return True
        except OSError as error:
            if not is_out_of_descriptors(error):
                partition.fail(error)
            return False
        if done:
            log = partition.log
            partition.trace("log_compacted", cleaned_to=log.cleaned_to, bytes_before=size, bytes_after=log.size)
        return done

    async def _write(self) -> None:
        await self._write_if(lambda: True)

    async def _write_if(self, wanted: Callable[[], bool]) -> None:
        async with self._writing:  # an earlier write in progress counts as well
            if not wanted():
                return
            offsets = {
                partition.key: partition.log.cleaned_to for partition in self._partitions() if partition.log.cleaned_to
            }
            if not self._checkpoint.holds(offsets):
                await self._checkpoint.write_durably(offsets)

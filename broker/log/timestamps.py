"""Finds records by timestamp, with the help of the indexes.

An index and a batch header have only the largest timestamp of a batch. Only the opened batch shows which record has it.
So compressed batches are opened, too; otherwise the answer would name a record with another timestamp.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from broker.log.segment import Segment
from broker.log.validation import count_examined, decompressed
from broker.protocol.compression import TooLargeError
from broker.protocol.records import (
    BATCH_HEADER_SIZE,
    LOG_APPEND_TIME_MASK,
    BatchHeader,
    CorruptBatch,
    UnsupportedCompression,
    read_varint,
    validate_batch,
)


class TimedOffset(NamedTuple):
    """The offset of a record and its timestamp in ms."""

    offset: int
    timestamp: int


class _Place(NamedTuple):
    """The place of a batch."""

    segment: Segment
    position: int
    header: BatchHeader


def first_not_before(segments: Sequence[Segment], log_start: int, timestamp: int) -> TimedOffset | None:
    """The first record from `log_start` on that is not earlier than `timestamp` (ms); None without one.

    Raises `OSError` (EIO) for a damaged batch.
    """
    for segment in segments:
        if segment.max_timestamp < timestamp or segment.next_offset <= log_start:
            continue
        try:
            timed_offset = _first_of(segment, log_start, timestamp)
        except CorruptBatch as error:
            raise segment.damaged(error) from error
        if timed_offset is not None:
            return timed_offset
    return None


def _first_of(segment: Segment, log_start: int, timestamp: int) -> TimedOffset | None:
    index = segment.index
    for position, header in segment.walk(max(index.before_timestamp(timestamp), index.before_offset(log_start))):
        if header.max_timestamp < timestamp or header.next_offset <= log_start or not header.records_count:
            continue
        for timed_offset in _times(_Place(segment, position, header)):
            if timed_offset.timestamp >= timestamp and timed_offset.offset >= log_start:
                return timed_offset
    return None


def latest_below(segments: Sequence[Segment], log_start: int, offset: int) -> TimedOffset | None:
    """The first record with the largest timestamp (ms) from `log_start` to `offset`, the end of a batch; None without
    records. Raises as `first_not_before` does."""
    best: tuple[int, int, _Place] | None = None
    # The most likely segments first, so that most of the log need not be read.
    for segment in sorted(segments, key=lambda candidate: (-candidate.max_timestamp, candidate.base_offset)):
        if segment.base_offset >= offset or segment.next_offset <= log_start:
            continue
        if best is not None and (segment.max_timestamp, -segment.base_offset) < best[:2]:
            break
        try:
            latest = _latest_of(segment, log_start, offset)
        except CorruptBatch as error:
            raise segment.damaged(error) from error
        if latest is not None and (best is None or (latest[0], -segment.base_offset) > best[:2]):
            best = (latest[0], -segment.base_offset, latest[1])
    if best is None:
        return None
    try:
        return _latest_record(best[2], log_start)
    except CorruptBatch as error:
        raise best[2].segment.damaged(error) from error


def _latest_of(segment: Segment, log_start: int, offset: int) -> tuple[int, _Place] | None:
    """The largest timestamp of a segment's records from `log_start` to `offset`, and the first batch that has it."""
    end = segment.position_of(offset)
    largest = segment.max_timestamp if end == segment.size else segment.max_timestamp_before(end)
    start = segment.index.before_timestamp(largest)
    best = _largest(segment, start, end, log_start, largest)
    if start and (best is None or best[0] < largest):
        # Its record is below the log's start, or compaction has removed it: search all batches.
        count_examined(0, end)
        best = _largest(segment, 0, end, log_start, largest)
    return best


def _largest(segment: Segment, start: int, end: int, log_start: int, limit: int) -> tuple[int, _Place] | None:
    """The largest timestamp of the records between two positions, and the first batch that has it. No record exceeds
    `limit`."""
    best: tuple[int, _Place] | None = None
    for position, header in segment.walk(start):
        if position >= end or (best is not None and best[0] >= limit):
            break
        if not header.records_count or header.next_offset <= log_start:
            continue
        place = _Place(segment, position, header)
        largest = _largest_timestamp(place, log_start)
        if largest is not None and (best is None or largest > best[0]):
            best = largest, place
    return best


def _largest_timestamp(place: _Place, log_start: int) -> int | None:
    """The largest timestamp of a batch's served records. The header also covers those below the log's start."""
    if place.header.base_offset >= log_start:
        return place.header.max_timestamp
    latest = _latest_record(place, log_start)
    return None if latest is None else latest.timestamp


def _latest_record(place: _Place, log_start: int) -> TimedOffset | None:
    """The first record with the largest timestamp among a batch's records from `log_start` on."""
    served = [record for record in _times(place) if record.offset >= log_start]
    return max(served, key=lambda record: record.timestamp, default=None)


def _times(place: _Place) -> Iterator[TimedOffset]:
    """As `times_of`."""
    segment, position, header = place
    return times_of(header, segment.file.read(position, header.size))


def times_of(header: BatchHeader, batch: bytes) -> Iterator[TimedOffset]:
    """Offset and timestamp of each record of a batch, in order. Raises `CorruptBatch`.

    A batch with an unknown codec, which only another leader can have accepted, counts as one record at its first
    offset: a consumer that starts there skips nothing.
    """
    validate_batch(batch, compacted=True)
    try:
        data = _records_of(header, batch)
    except (UnsupportedCompression, TooLargeError):
        return iter([TimedOffset(header.base_offset, header.max_timestamp)])
    return _walk(header, data)


def _records_of(header: BatchHeader, batch: bytes) -> bytes:
    """The records of a batch, decompressed."""
    data = batch[BATCH_HEADER_SIZE:]
    if header.compression:
        data = decompressed(header.compression, data)
    count_examined(header.records_count, BATCH_HEADER_SIZE + len(data))
    return data


def _walk(header: BatchHeader, data: bytes) -> Iterator[TimedOffset]:
    stamped_by_log = header.attributes & LOG_APPEND_TIME_MASK
    position = 0
    try:
        for _ in range(header.records_count):
            length, position = read_varint(data, position)
            time, at = read_varint(data, position + 1)
            offset, _ = read_varint(data, at)
            timestamp = header.max_timestamp if stamped_by_log else header.base_timestamp + time
            yield TimedOffset(header.base_offset + offset, timestamp)
            position += length
    except IndexError:
        raise CorruptBatch(f"offset {header.base_offset}: the records do not end within their batch") from None

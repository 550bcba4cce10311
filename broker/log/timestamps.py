"""Finding records by their time: in segments whose indexes say how far to look."""

from __future__ import annotations

from collections.abc import Sequence

from broker.log.segment import Segment
from broker.log.validation import count_examined
from broker.protocol.records import BatchHeader, Record, UnsupportedCompression, read_records


def first_not_before(segments: Sequence[Segment], log_start: int, timestamp: int) -> tuple[int, int] | None:
    """The first record at or after `timestamp` (ms): its offset and timestamp; None when there is none.

    Of a compressed batch, whose records stay closed, the first offset and the batch's largest timestamp.
    """
    for segment in segments:
        if segment.max_timestamp < timestamp or segment.next_offset <= log_start:
            continue
        index = segment.index
        for position, header in segment.walk(max(index.before_timestamp(timestamp), index.before_offset(log_start))):
            if header.max_timestamp < timestamp or header.next_offset <= log_start or not header.records_count:
                continue
            try:
                records = _records(segment, position, header)
            except UnsupportedCompression:
                return header.base_offset, header.max_timestamp
            for record in records:
                if record.timestamp >= timestamp and record.offset >= log_start:
                    return record.offset, record.timestamp
    return None


def latest_below(segments: Sequence[Segment], log_start: int, offset: int) -> tuple[int, int] | None:
    """The first record below `offset` that has the largest timestamp (ms): its offset and timestamp.

    Of a compressed batch, whose records stay closed, the last offset and the batch's largest timestamp.
    """
    best: tuple[int, int, Segment, int] | None = None
    # Those that may have it come first, so that of most nothing is read.
    for segment in sorted(segments, key=lambda it: (-it.max_timestamp, it.base_offset)):
        if segment.base_offset >= offset or segment.next_offset <= log_start:
            continue
        if best is not None and (segment.max_timestamp, -segment.base_offset) < best[:2]:
            break
        found = _latest_of(segment, log_start, offset)
        if found is not None and (best is None or (found[0], -segment.base_offset) > best[:2]):
            best = (found[0], -segment.base_offset, segment, found[1])
    if best is None:
        return None
    timestamp, _, segment, position = best
    _, header = next(segment.walk(position))
    try:
        records = _records(segment, position, header)
    except UnsupportedCompression:
        return header.last_offset, timestamp
    return next((record.offset, timestamp) for record in records if record.timestamp == timestamp)


def _latest_of(segment: Segment, log_start: int, offset: int) -> tuple[int, int] | None:
    """The largest timestamp of a segment's batches with records that lie from `log_start` to `offset`, and where the
    first starts that has it."""
    end = segment.position_of(offset)
    largest = segment.max_timestamp if end == segment.size else segment.max_timestamp_before(end)
    start = segment.index.before_timestamp(largest)
    best = _largest(segment, start, end, log_start, largest)
    if start and (best is None or best[0] < largest):
        # Whatever had it lies below the log's start, or compaction has emptied it: there is no way but through all.
        count_examined(0, end)
        best = _largest(segment, 0, end, log_start, largest)
    return best


def _largest(segment: Segment, start: int, end: int, log_start: int, most: int) -> tuple[int, int] | None:
    """The largest timestamp of the batches with records between two positions, and where the first starts that has it;
    none has more than `most`."""
    best: tuple[int, int] | None = None
    for position, header in segment.walk(start):
        if position >= end or (best is not None and best[0] >= most):
            break
        if header.records_count and header.next_offset > log_start and (best is None or header.max_timestamp > best[0]):
            best = header.max_timestamp, position
    return best


def _records(segment: Segment, position: int, header: BatchHeader) -> list[Record]:
    """See `read_records`."""
    if not header.compression:
        count_examined(header.records_count, header.size)
    return read_records(segment.file.read(position, header.size))

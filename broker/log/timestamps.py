"""Finding records by their time: in segments whose indexes say how far to look."""

from __future__ import annotations

from collections.abc import Sequence

from broker.log.segment import Segment
from broker.protocol.records import UnsupportedCompression, read_records


def first_not_before(segments: Sequence[Segment], log_start: int, timestamp: int) -> tuple[int, int] | None:
    """The first record at or after `timestamp` (ms): its offset and timestamp; None when there is none.

    Of a compressed batch, whose records stay closed, the first offset and the batch's largest timestamp.
    """
    for segment in segments:
        if segment.max_timestamp < timestamp or segment.next_offset <= log_start:
            continue
        for position, header in segment.walk(segment.index.before_timestamp(timestamp)):
            if header.max_timestamp < timestamp or header.next_offset <= log_start or not header.records_count:
                continue
            try:
                records = read_records(segment.file.read(position, header.size))
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
    best: tuple[int, Segment, int] | None = None
    for segment in segments:
        if segment.base_offset >= offset or (best is not None and segment.max_timestamp <= best[0]):
            continue
        for position, header in segment.walk(0):
            if header.next_offset > offset:
                break
            if not header.records_count or header.next_offset <= log_start:
                continue
            if best is None or header.max_timestamp > best[0]:
                best = (header.max_timestamp, segment, position)
    if best is None:
        return None
    timestamp, segment, position = best
    _, header = next(segment.walk(position))
    try:
        records = read_records(segment.file.read(position, header.size))
    except UnsupportedCompression:
        return header.last_offset, timestamp
    return next((record.offset, timestamp) for record in records if record.timestamp == timestamp)

"""Limits of producers' timestamps, relative to the broker's wall clock.

The limits and the error are those of Apache Kafka (`message.timestamp.before.max.ms`, `message.timestamp.after.max.ms`;
KIP-937, KIP-1030). They apply to every record of a batch. A record without a timestamp (-1) has no limit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.errors import ErrorCode, ProtocolError
from broker.log.append_validation import Batch, latest_timestamp
from broker.log.record_walk import LEAST_TIMESTAMP
from broker.log.validation import decompressed
from broker.ports import Buffer
from broker.protocol.records import BATCH_HEADER_SIZE, NO_TIMESTAMP, parse_header, read_varint


class TimestampLimits:
    """The limits of one topic."""

    def __init__(self, before_max_ms: int, after_max_ms: int, now_ms: Callable[[], int]) -> None:
        """The largest distances from the clock `now_ms`, all in ms. While its time is unknown (-1), all timestamps are
        allowed."""
        self._before_max_ms = before_max_ms
        self._after_max_ms = after_max_ms
        self._now_ms = now_ms

    def check(self, buf: Buffer, batches: Sequence[Batch]) -> None:
        """Check the records of accepted batches, which are in `buf` one after the other. Raises `ProtocolError`.

        A batch's largest timestamp decides about the upper limit. Only a lower limit that can be exceeded requires the
        records themselves."""
        now_ms = self._now_ms()
        if now_ms == NO_TIMESTAMP:
            return
        if (latest := latest_timestamp(batches)) > now_ms + self._after_max_ms:
            raise self._refusal(latest, now_ms)
        lowest = now_ms - self._before_max_ms
        if lowest <= LEAST_TIMESTAMP:
            return
        position = 0
        for batch in batches:
            is_single = batch.next_offset - batch.offset == 1
            earliest = batch.max_timestamp if is_single else _smallest_timestamp(buf, position, batch.size)
            if NO_TIMESTAMP != earliest < lowest:
                raise self._refusal(earliest, now_ms)
            position += batch.size

    def _refusal(self, timestamp: int, now_ms: int) -> ProtocolError:
        limits = f"from {now_ms - self._before_max_ms} to {now_ms + self._after_max_ms}"
        return ProtocolError(ErrorCode.INVALID_TIMESTAMP, f"a record's timestamp is {timestamp} ms; allowed: {limits}")


def _smallest_timestamp(buf: Buffer, position: int, size: int) -> int:
    """The smallest timestamp of a valid batch's records, without those that have none; -1 if all have none."""
    header = parse_header(buf, position)
    with memoryview(buf) as view:
        data = bytes(view[position + BATCH_HEADER_SIZE : position + size])
    if header.compression:
        data = decompressed(header.compression, data)
    smallest, pos = None, 0
    for _ in range(header.records_count):
        length, pos = read_varint(data, pos)
        timestamp = header.base_timestamp + read_varint(data, pos + 1)[0]
        if timestamp != NO_TIMESTAMP and (smallest is None or timestamp < smallest):
            smallest = timestamp
        pos += length
    return NO_TIMESTAMP if smallest is None else smallest

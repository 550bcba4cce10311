"""Limits of producers' timestamps, relative to the broker's wall clock.

The limits and the error are those of Apache Kafka (`message.timestamp.before.max.ms`, `message.timestamp.after.max.ms`;
KIP-937, KIP-1030). They apply to every record of a batch. A record without a timestamp (-1) has no limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from broker.errors import ErrorCode, ProtocolError
from broker.log.append_validation import Batch, latest_timestamp
from broker.log.record_walk import LEAST_TIMESTAMP
from broker.log.validation import decompressed
from broker.ports import Buffer
from broker.protocol.records import BATCH_HEADER_SIZE, NO_TIMESTAMP, parse_header, read_varint


class TimestampLimits(NamedTuple):
    """The smallest and the largest timestamp that a record may have, both in ms."""

    earliest: int
    latest: int

    @classmethod
    def around(cls, now_ms: int, before_max_ms: int, after_max_ms: int) -> TimestampLimits:
        """The limits at one moment of the broker's clock."""
        return cls(now_ms - before_max_ms, now_ms + after_max_ms)

    def check(self, buf: Buffer, batches: Sequence[Batch]) -> None:
        """Check the records of accepted batches, which are in `buf` one after the other. Raises `ProtocolError`.

        A batch's largest timestamp decides about the upper limit. Only a lower limit that can be exceeded requires the
        records themselves."""
        if batches and (latest := latest_timestamp(batches)) > self.latest:
            self._refuse(latest)
        if self.earliest <= LEAST_TIMESTAMP:
            return
        position = 0
        for batch in batches:
            is_single = batch.next_offset - batch.offset == 1
            earliest = batch.max_timestamp if is_single else _smallest_timestamp(buf, position, batch.size)
            if NO_TIMESTAMP != earliest < self.earliest:
                self._refuse(earliest)
            position += batch.size

    def _refuse(self, timestamp: int) -> None:
        limits = f"from {self.earliest} to {self.latest}"
        raise ProtocolError(ErrorCode.INVALID_TIMESTAMP, f"a record's timestamp is {timestamp} ms; allowed: {limits}")


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

"""The oracles' own parser of record batches, so that the broker's parser is not checked with its own code.

The layout is that of the record batch of Apache Kafka, magic 2 (kafka.apache.org, "Message Format"; KIP-98). Offsets
and sequences are those of the batch's first record. The CRC-32C covers everything after it, so not the base offset and
the leader epoch. Shared codec libraries decompress the records.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from broker.protocol.compression import open_records

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_LENGTH_BEHIND: Final = 12
_CHECKED_FROM: Final = 21
_MAGIC: Final = 2
_CODEC, _CONTROL = 0x07, 0x20
VOTERS_TYPE: Final = 6
"""The type of the control record with the quorum's voters (KIP-853, `KRAFT_VOTERS`)."""
MAX_SEQUENCE: Final = (1 << 31) - 1
"""0 follows it (KIP-98)."""


class DamagedBatchError(ValueError):
    """Bytes that are not a whole batch; the message says why."""


class BatchSequence(NamedTuple):
    """A batch's fields about its idempotent producer. `delta`: of its last record, relative to its first."""

    producer_id: int
    epoch: int
    sequence: int
    delta: int

    @property
    def last_sequence(self) -> int:
        return (self.sequence + self.delta) & MAX_SEQUENCE

    @property
    def next_sequence(self) -> int:
        return (self.sequence + self.delta + 1) & MAX_SEQUENCE


class Header(NamedTuple):
    """The fields of a header, in their order."""

    base: int
    length: int
    epoch: int
    magic: int
    crc: int
    attributes: int
    last_delta: int
    first_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    sequence: int
    records: int

    @property
    def size(self) -> int:
        return self.length + _LENGTH_BEHIND

    @property
    def next(self) -> int:
        return self.base + self.last_delta + 1

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL)

    @property
    def sequenced(self) -> BatchSequence | None:
        """None for a batch without an idempotent producer."""
        if self.producer_id < 0 or self.is_control:
            return None
        return BatchSequence(self.producer_id, self.producer_epoch, self.sequence, self.last_delta)


class ReadRecord(NamedTuple):
    """A record. `offset` is absolute."""

    offset: int
    key: bytes | None
    value: bytes | None


def batches_in(content: bytes) -> Iterator[tuple[Header, bytes]]:
    """The consecutive batches, each with its bytes. Raises `DamagedBatchError` at the first invalid frame."""
    position = 0
    while position < len(content):
        if len(content) - position < HEADER.size:
            raise DamagedBatchError(f"{len(content) - position} bytes are not a header")
        header = Header._make(HEADER.unpack_from(content, position))
        end = position + header.size
        if header.magic != _MAGIC or header.size < HEADER.size or end > len(content):
            raise DamagedBatchError(f"magic {header.magic}, {header.size} bytes, {len(content) - position} are there")
        yield header, content[position:end]
        position = end


def flaw_of(header: Header, batch: bytes) -> str | None:
    """The contradiction in the bytes of a batch with all its records; None without one."""
    if header.records < 1 or header.last_delta != header.records - 1:
        return f"it counts {header.records} records, and its last offset delta is {header.last_delta}"
    crc = crc32c(batch[_CHECKED_FROM:])
    return None if crc == header.crc else f"its CRC-32C is {crc:08x}, and it says {header.crc:08x}"


def records_in(header: Header, batch: bytes) -> Iterator[ReadRecord]:
    """The records of a batch. Raises `DamagedBatchError`."""
    data = batch[HEADER.size :]
    if header.attributes & _CODEC:
        data = open_records(header.attributes & _CODEC, data)
    at = 0
    try:
        for _ in range(header.records):
            length, at = _varint(data, at)
            end = at + length
            _, at = _varint(data, at + 1)  # after the attributes: the timestamp
            delta, at = _varint(data, at)
            key, at = _bytes(data, at)
            value, at = _bytes(data, at)
            if at > end or end > len(data):
                raise DamagedBatchError(f"offset {header.base + delta}: a record exceeds its length")
            yield ReadRecord(header.base + delta, key, value)
            at = end
    except IndexError:
        raise DamagedBatchError(f"offset {header.base}: its records end too early") from None


def voters_in(header: Header, batch: bytes) -> tuple[int, ...] | None:
    """The ids of the voters that a control batch names; None if it names none."""
    if not header.is_control:
        return None
    for record in records_in(header, batch):
        if record.key is not None and struct.unpack(">hh", record.key)[1] == VOTERS_TYPE:
            return tuple(sorted(_voters(record.value or b"")))
    return None


def _voters(value: bytes) -> Iterator[int]:
    """Parses a VotersRecord: version, and for each voter its id, directory, endpoints and supported versions."""
    count, at = _unsigned(value, 2)
    for _ in range(count - 1):
        yield int.from_bytes(value[at : at + 4], "big", signed=True)
        endpoints, at = _unsigned(value, at + 4 + 16)
        for _ in range(endpoints - 1):
            for _ in ("name", "host"):
                length, at = _unsigned(value, at)
                at += length - 1
            at = _tags(value, at + 2)
        at = _tags(value, _tags(value, at + 4))


def _tags(value: bytes, at: int) -> int:
    """The position after the tagged fields."""
    count, at = _unsigned(value, at)
    for _ in range(count):
        _, at = _unsigned(value, at)
        size, at = _unsigned(value, at)
        at += size
    return at


def _bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = _varint(data, at)
    return (None, at) if length < 0 else (data[at : at + length], at + length)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag number, and the position after it."""
    value, at = _unsigned(data, at)
    return (value >> 1) ^ -(value & 1), at


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7

"""Decides what compaction keeps of a batch: the latest record of each key, at its offset (KIP-354, KIP-534). Pure.

A batch keeps its offsets, epoch and producer's numbers, whatever records it loses. A batch that loses all records is
removed, unless it shows something else: where its leader epoch starts (K101-11), what its producer wrote last, or where
its segment ends. Then its header stays.

A record without a value, a tombstone, stays for some time, so that readers of the log see the deletion. The first pass
that finds it writes the end of that time into its batch; a later pass removes it.

Long computations are generators that yield after some records, so that other tasks run meanwhile.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator
from hashlib import blake2b
from typing import Final, NamedTuple, TypeVar

from crc32c import crc32c

from broker.ports import Buffer
from broker.protocol.compression import compress_records, open_records
from broker.protocol.records import (
    BATCH_HEADER_SIZE,
    COMPRESSION_MASK,
    DELETE_HORIZON_MASK,
    LOG_APPEND_TIME_MASK,
    MAGIC,
    BatchHeader,
    CorruptBatch,
    read_varint,
    varint,
)

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
        kept: list[RawRecord] = []
        horizon = header.base_timestamp if header.attributes & DELETE_HORIZON_MASK else None
        expired = horizon is not None and self._now_ms >= horizon
        has_tombstone = False
        for number, record in enumerate(raw_records(header, batch)):
            if self._stays(header, record, expired):
                kept.append(record)
                has_tombstone |= record.is_tombstone
            if number % RECORDS_PER_TURN == RECORDS_PER_TURN - 1:
                yield
        if not kept:
            return emptied(header) if keep_header else b""
        if horizon is None and has_tombstone and self._now_ms >= 0:
            horizon = self._now_ms + self._delete_retention_ms
        elif len(kept) == header.records_count:
            return batch
        return rebuilt(header, kept, horizon)

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
            offset_delta, rest = read_varint(data, at)
            key_length, at = read_varint(data, rest)
            key = None if key_length < 0 else data[at : at + key_length]
            value_length, at = read_varint(data, at + max(key_length, 0))
            if not at + max(value_length, 0) <= end <= len(data):
                raise CorruptBatch(f"offset {header.base_offset}: a record's fields exceed it")
            yield RawRecord(attributes, timestamp_delta, offset_delta, key, value_length < 0, data[rest:end])
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

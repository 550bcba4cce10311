"""Record batches, format version 2: what the log stores and Produce and Fetch carry.

A batch is a header of 61 bytes and its records. The CRC-32C covers everything after itself, so that the base offset and
the leader epoch before it can be set in place (K101-1, K101-13). Batches stay opaque bytes wherever possible; only
`read_records` decodes records.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from crc32c import crc32c

from broker.ports import Buffer

BATCH_HEADER_SIZE = 61
MAGIC = 2
NO_TIMESTAMP = -1

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME_MASK = 0x08
TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20
DELETE_HORIZON_MASK = 0x40
"""The base timestamp is the time from which on compaction removes the batch's tombstones (KIP-534)."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_CHECKED = struct.Struct(">hiqqqhii")

_LEADER_EPOCH_AT = 12
_CRC_AT = 17
_CHECKED_AT = 21
_LENGTH_BEHIND = 12
"""`batchLength` counts the bytes after itself: it ends at offset 12."""


class CorruptBatch(ValueError):  # noqa: N818 - a state of the log, not only an error
    """Bytes that are not an intact record batch; the message says where and why."""


class UnsupportedCompression(ValueError):  # noqa: N818 - reads like CorruptBatch
    """Compressed records: this broker stores and serves them, but does not decode them here."""


class BatchHeader(NamedTuple):
    """The fields of a batch's header, in their order. `crc` is unsigned."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size(self) -> int:
        """The batch's length in bytes, header included."""
        return self.batch_length + _LENGTH_BEHIND

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_MASK)

    @property
    def compression(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & COMPRESSION_MASK


class Record(NamedTuple):
    """One record. `offset` is absolute, `timestamp` in milliseconds since 1970."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def parse_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """The header at `pos`; only its length is checked. Raises `CorruptBatch` when fewer than 61 bytes are left."""
    if len(buf) - pos < BATCH_HEADER_SIZE:
        raise CorruptBatch(f"position {pos}: {len(buf) - pos} bytes are too few for a batch header")
    return BatchHeader._make(_HEADER.unpack_from(buf, pos))


def iter_batches(buf: Buffer, pos: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole batch from `pos` on, CRC unchecked; an incomplete last batch is omitted.

    Raises `CorruptBatch` for an impossible magic or length: the position of the next batch is then unknown.
    """
    end = len(buf)
    while end - pos >= BATCH_HEADER_SIZE:
        header = parse_header(buf, pos)
        _check_frame(header, pos)
        if pos + header.size > end:
            return
        yield pos, header
        pos += header.size


def _check_frame(header: BatchHeader, pos: int) -> None:
    if header.magic != MAGIC:
        raise CorruptBatch(f"position {pos}: magic {header.magic}, only {MAGIC} is supported")
    if header.size < BATCH_HEADER_SIZE:
        raise CorruptBatch(f"position {pos}: a length of {header.batch_length} is too small for a batch")


def validate_batch(buf: Buffer, pos: int = 0, *, compacted: bool = False) -> BatchHeader:
    """The header of an intact batch at `pos`: complete, correct CRC, consistent counts. Raises `CorruptBatch`.

    `compacted`: compaction may have removed some or all of the records; the batch keeps their offsets.
    """
    header = parse_header(buf, pos)
    _check_frame(header, pos)
    end = pos + header.size
    if end > len(buf):
        raise CorruptBatch(f"position {pos}: the batch needs {header.size} bytes, {len(buf) - pos} are left")
    offsets = header.last_offset_delta + 1
    if offsets < 1 or not (0 if compacted else offsets) <= header.records_count <= offsets:
        raise CorruptBatch(
            f"position {pos}: {header.records_count} records and a last offset delta of {header.last_offset_delta}"
        )
    with memoryview(buf) as view, view[pos + _CHECKED_AT : end] as checked:
        crc = crc32c(checked)
    if crc != header.crc:
        raise CorruptBatch(f"position {pos}: the CRC-32C is {crc:08x}, the header says {header.crc:08x}")
    return header


def validate_batches(buf: Buffer) -> list[BatchHeader]:
    """The headers of a buffer that holds intact batches and nothing else. Raises `CorruptBatch`."""
    headers = []
    pos = 0
    while pos < len(buf):
        header = validate_batch(buf, pos)
        headers.append(header)
        pos += header.size
    return headers


def stamp(buf: bytearray | memoryview, pos: int, base_offset: int, leader_epoch: int) -> None:
    """Set a batch's base offset and leader epoch in place; the CRC covers neither."""
    _BASE_OFFSET.pack_into(buf, pos, base_offset)
    _LEADER_EPOCH.pack_into(buf, pos + _LEADER_EPOCH_AT, leader_epoch)


def build_batch(
    records: Sequence[Record],
    base_offset: int = 0,
    leader_epoch: int = -1,
    timestamp_ms: int | None = None,
    control: bool = False,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """An uncompressed batch. The records get consecutive offsets from `base_offset` on, whatever `Record.offset` says.

    `timestamp_ms` replaces the records' own timestamps. Raises `ValueError` for no records.
    """
    if not records:
        raise ValueError("a batch holds at least one record")
    if timestamp_ms is not None:
        records = [record._replace(timestamp=timestamp_ms) for record in records]
    base_timestamp = records[0].timestamp
    checked = bytearray(
        _CHECKED.pack(
            CONTROL_MASK if control else 0,
            len(records) - 1,
            base_timestamp,
            max(record.timestamp for record in records),
            producer_id,
            producer_epoch,
            base_sequence,
            len(records),
        )
    )
    for delta, record in enumerate(records):
        body = _record_body(record, delta, base_timestamp)
        checked += varint(len(body))
        checked += body
    front = struct.pack(
        ">qiibI", base_offset, _CHECKED_AT - _LENGTH_BEHIND + len(checked), leader_epoch, MAGIC, crc32c(checked)
    )
    return front + bytes(checked)


def _record_body(record: Record, offset_delta: int, base_timestamp: int) -> bytes:
    body = bytearray(1)
    body += varint(record.timestamp - base_timestamp)
    body += varint(offset_delta)
    for part in (record.key, record.value):
        body += _nullable(part)
    body += varint(len(record.headers))
    for name, value in record.headers:
        body += _nullable(name.encode())
        body += _nullable(value)
    return bytes(body)


def _nullable(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def varint(value: int) -> bytes:
    """A signed integer of at most 64 bits, zigzag and LEB128."""
    encoded = (value << 1) ^ (value >> 63)
    out = bytearray()
    while encoded > 127:
        out.append(encoded & 127 | 128)
        encoded >>= 7
    out.append(encoded)
    return bytes(out)


def read_varint(buf: Buffer, pos: int) -> tuple[int, int]:
    """A signed integer and the position after it. Raises `CorruptBatch` past 64 bits, `IndexError` at the end."""
    encoded = shift = 0
    while True:
        byte = buf[pos]
        pos += 1
        encoded |= (byte & 127) << shift
        if byte < 128:
            return (encoded >> 1) ^ -(encoded & 1), pos
        shift += 7
        if shift > 63:
            raise CorruptBatch(f"position {pos}: a variable-length integer is too long")


def read_records(batch: Buffer, pos: int = 0) -> list[Record]:
    """The records of the batch at `pos`, which has passed `validate_batch` or is checked by the reader of the log.

    Raises `UnsupportedCompression` when they are compressed, `CorruptBatch` when they do not fill the batch.
    """
    header = parse_header(batch, pos)
    _check_frame(header, pos)
    if header.compression:
        raise UnsupportedCompression(f"offset {header.base_offset}: compressed with codec {header.compression}")
    end = pos + header.size
    if end > len(batch):
        raise CorruptBatch(f"position {pos}: the batch needs {header.size} bytes, {len(batch) - pos} are left")
    records = []
    pos += BATCH_HEADER_SIZE
    try:
        for _ in range(header.records_count):
            length, pos = read_varint(batch, pos)
            if length < 0 or pos + length > end:
                raise CorruptBatch(f"position {pos}: a record of {length} bytes exceeds its batch")
            records.append(_read_record(bytes(batch[pos : pos + length]), header))
            pos += length
    except (IndexError, UnicodeDecodeError) as error:
        raise CorruptBatch(f"position {pos}: a record is malformed: {error}") from None
    if pos != end:
        raise CorruptBatch(f"position {pos}: {end - pos} bytes after the last record")
    return records


def _read_record(body: bytes, header: BatchHeader) -> Record:
    timestamp_delta, pos = read_varint(body, 1)
    offset_delta, pos = read_varint(body, pos)
    key, pos = _read_nullable(body, pos)
    value, pos = _read_nullable(body, pos)
    count, pos = read_varint(body, pos)
    headers = []
    # Each header takes at least two bytes, so the record's length bounds the loop.
    for _ in range(count):
        name, pos = _read_nullable(body, pos)
        header_value, pos = _read_nullable(body, pos)
        headers.append(((name or b"").decode(), header_value))
    if pos != len(body) or not 0 <= offset_delta <= header.last_offset_delta:
        raise CorruptBatch(f"offset {header.base_offset} + {offset_delta}: a record contradicts its length or batch")
    offset = header.base_offset + offset_delta
    return Record(offset, header.base_timestamp + timestamp_delta, key, value, tuple(headers))


def _read_nullable(body: bytes, pos: int) -> tuple[bytes | None, int]:
    length, pos = read_varint(body, pos)
    if length < 0:
        return None, pos
    if pos + length > len(body):
        raise CorruptBatch(f"{length} bytes announced, {len(body) - pos} left in the record")
    return body[pos : pos + length], pos + length

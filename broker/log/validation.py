"""Validates producers' batches: a leader accepts only batches that every consumer can read.

A log keeps what it has accepted, and a consumer that cannot parse a batch never gets past it: one faulty producer would
stop all consumers of a partition. So each batch is opened and walked before it gets its offsets. The refusals are
Apache Kafka's, except where Kafka would store what some consumer cannot read: offset deltas that do not count up,
header names that are not UTF-8, bytes behind a stream or a batch.
"""

from typing import NamedTuple

from broker.errors import ErrorCode, ProtocolError
from broker.log.record_walk import LEAST_RECORD, TimestampError, walk_records
from broker.ports import Buffer
from broker.protocol.compression import MOST_OPENED_BYTES, TooLargeError, open_records, pieces
from broker.protocol.records import (
    BATCH_HEADER_SIZE,
    COMPRESSION_MASK,
    CONTROL_MASK,
    LOG_APPEND_TIME_MASK,
    MAGIC,
    TRANSACTIONAL_MASK,
    CorruptBatch,
    UnsupportedCompression,
    read_varint,
)

MOST_RECORDS = 1 << 18
"""The limit of records in one batch. It bounds the time of a walk: about a microsecond for each."""

BYTES_PER_RECORD = 100
"""The cost of a record besides its bytes: walking one takes as long as opening this many bytes."""

_LENGTH_AT, _LENGTH_BEHIND = 8, 12
_MAGIC_AT = 16
_OLD_FORMATS = (0, 1)
_examined = [0]


class BatchClaims(NamedTuple):
    """The fields of a batch's header that a producer may set; its CRC is correct."""

    base_offset: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int


def bytes_examined() -> int:
    """The bytes of records that `admit` has opened and walked since the start of the process. The difference of two
    values measures the load by producers. A record counts as `BYTES_PER_RECORD` more; compressed bytes count in
    addition to the decompressed ones."""
    return _examined[0]


def count_examined(records: int, size: int) -> None:
    """Count records (or blocks of compressed ones) and their bytes as examined."""
    _examined[0] += size + records * BYTES_PER_RECORD


def require_one_batch(records: Buffer) -> None:
    """Check that a request has one batch of format 2 for a partition. Raises `ProtocolError`."""
    size = len(records)
    if size <= _MAGIC_AT:
        raise ProtocolError(ErrorCode.INVALID_RECORD, f"{size} bytes are not a record batch")
    magic = records[_MAGIC_AT]
    if magic in _OLD_FORMATS:
        raise ProtocolError(ErrorCode.INVALID_RECORD, f"only older versions of Produce accept format {magic}")
    stated_size = int.from_bytes(records[_LENGTH_AT:_LENGTH_BEHIND], "big", signed=True) + _LENGTH_BEHIND
    if magic != MAGIC or stated_size < BATCH_HEADER_SIZE:
        raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, f"a batch of format {magic} and of {stated_size} bytes")
    if stated_size != size:
        raise ProtocolError(ErrorCode.INVALID_RECORD, f"{size} bytes, but the first batch has {stated_size}")


def admit(claims: BatchClaims, payload: memoryview) -> int:
    """The largest timestamp, in ms, of a batch that may be appended. Raises `ProtocolError`."""
    return _opened(claims, payload)[0]


def admit_keyed(claims: BatchClaims, payload: memoryview) -> int:
    """`admit` for a compacted topic, in which every record needs a key. Raises `ProtocolError`."""
    largest, data = _opened(claims, payload)
    pos = 0
    for _ in range(claims.records):
        length, pos = read_varint(data, pos)
        _, at = read_varint(data, pos + 1)
        _, at = read_varint(data, at)
        key_length, _ = read_varint(data, at)
        if key_length < 0:
            raise ProtocolError(ErrorCode.INVALID_RECORD, "a compacted topic accepts no record without a key")
        pos += length
    return largest


def _opened(claims: BatchClaims, payload: memoryview) -> tuple[int, bytes]:
    """The largest timestamp of a batch that may be appended, and its decompressed records. Raises `ProtocolError`."""
    base_offset, attributes, delta, base_timestamp, _, producer_id, epoch, sequence, count = claims
    if count < 1 or delta != count - 1 or base_offset or producer_id >= 0 > min(epoch, sequence) or attributes:
        _check_header(claims)
    data = payload.tobytes()
    try:
        if attributes & COMPRESSION_MASK:
            data = decompressed(attributes & COMPRESSION_MASK, data)
        _examined[0] += len(data) + min(count, MOST_RECORDS) * BYTES_PER_RECORD
        if count * LEAST_RECORD > len(data):
            raise CorruptBatch(f"{count} records in {len(data)} bytes")
        if count > MOST_RECORDS:
            raise ProtocolError(ErrorCode.MESSAGE_TOO_LARGE, f"{count} records; a batch has at most {MOST_RECORDS}")
        return walk_records(data, count, base_timestamp), data
    except CorruptBatch as error:
        raise ProtocolError(ErrorCode.INVALID_RECORD, str(error)) from error
    except UnsupportedCompression as error:
        raise ProtocolError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, str(error)) from error
    except TooLargeError as error:
        raise ProtocolError(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from error
    except TimestampError as error:
        raise ProtocolError(ErrorCode.INVALID_TIMESTAMP, str(error)) from error


def decompressed(codec: int, data: bytes) -> bytes:
    """`open_records`, counted as examined. Damaged or too large data counts as well. Raises as `open_records`
    does."""
    count_examined(0, len(data))
    try:
        count_examined(pieces(codec, data), 0)
        return open_records(codec, data)
    except (CorruptBatch, TooLargeError):
        count_examined(0, MOST_OPENED_BYTES)  # this much may have been opened by then
        raise


def _check_header(claims: BatchClaims) -> None:
    """Raises `ProtocolError` for values that a producer must not set."""
    if claims.records < 1 or claims.last_offset_delta != claims.records - 1:
        reason = f"{claims.records} records and a last offset delta of {claims.last_offset_delta}"
        raise ProtocolError(ErrorCode.INVALID_RECORD, reason)
    if claims.base_offset:
        raise ProtocolError(ErrorCode.INVALID_RECORD, f"a producer's base offset is 0, not {claims.base_offset}")
    if claims.producer_id >= 0 > min(claims.producer_epoch, claims.base_sequence):
        reason = f"producer {claims.producer_id} in epoch {claims.producer_epoch}, sequence {claims.base_sequence}"
        raise ProtocolError(ErrorCode.INVALID_RECORD, f"{reason}: neither may be negative")
    _check_attributes(claims.attributes)


def _check_attributes(attributes: int) -> None:
    if attributes & TRANSACTIONAL_MASK:
        raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION, "a batch of a transaction; this broker supports none")
    if attributes & CONTROL_MASK:
        raise ProtocolError(ErrorCode.INVALID_RECORD, "control records are written by brokers only")
    if attributes & LOG_APPEND_TIME_MASK:
        raise ProtocolError(ErrorCode.INVALID_TIMESTAMP, "only the broker sets the append time of a batch")

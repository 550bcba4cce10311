"""Validates the records of a batch without decoding them into objects: do they match the batch's header?

Consumers parse every field of every record, and a record that they cannot parse stops them permanently. So the leader
checks every field once. Records of identical structure (same lengths, no headers), which most producers send in long
runs, are checked together, one byte position of all of them at a time. This takes some nanoseconds for each instead of
half a microsecond.
"""

from collections.abc import Collection
from struct import unpack
from typing import NamedTuple

from broker.protocol.records import CorruptBatch

LEAST_TIMESTAMP = -62_135_596_800_000  # ms: the year 1
MOST_TIMESTAMP = 253_402_300_799_999  # ms: the end of the year 9999

LEAST_RECORD = 7  # bytes: its length, attributes, two deltas, two lengths and the number of headers

MOST_ALIKE = 4096  # records that are checked together
FEW = 16  # records to check one by one after a run that was not identical; fewer never pay off
MOST_FAILURES = 8  # failed runs in one batch; this limits the cost of any batch

_INT32_BYTES, _INT64_BYTES = 5, 10
_LAST_BYTE = 127  # the largest last byte of an integer; bytes before it are larger
_NULL = 1  # the length -1
_LEAST_INT32, _MOST_INT32 = -(1 << 31), (1 << 31) - 1
# Lengths of consecutive offset deltas as zigzag LEB128: one byte below 64, two below 8192, three below 2^20. Bytes that
# do not change within 8192 records need no table.
_ONE_BYTE, _TWO_BYTES, _THREE_BYTES = 64, 8192, 1 << 20
_ALONE = bytes(2 * delta for delta in range(_ONE_BYTE))
_LOW = bytes(2 * delta & 127 | 128 for delta in range(_ONE_BYTE)) * (MOST_ALIKE // _ONE_BYTE + 1)
_HIGH = bytes(2 * delta >> 7 for delta in range(_TWO_BYTES))
_MIDDLE = bytes(byte | 128 for byte in _HIGH)
_CONTINUED = bytes(range(128, 256))
_EVEN = bytes(range(0, 256, 2))
_WORD = 8  # bytes; a longer timestamp is invalid


class TimestampError(ValueError):
    """A record's timestamp is outside of the supported dates; the message has the value."""


def _integer(data: bytes, pos: int, most_bytes: int) -> tuple[int, int]:
    """A zigzag integer and the position behind it. Raises if it is longer than consumers accept, or too large."""
    encoded = shift = 0
    for at in range(pos, pos + most_bytes):
        byte = data[at]
        encoded |= (byte & 127) << shift
        if byte < 128:
            value = (encoded >> 1) ^ -(encoded & 1)
            if most_bytes == _INT32_BYTES and not _LEAST_INT32 <= value <= _MOST_INT32:
                raise CorruptBatch(f"position {pos}: {value} does not fit into 32 bits")
            return value, at + 1
        shift += 7
    raise CorruptBatch(f"position {pos}: a variable-length integer is longer than {most_bytes} bytes")


def walk_records(data: bytes, count: int, base_timestamp: int) -> int:
    """The largest timestamp (ms) of the `count` records in `data`.

    Raises `CorruptBatch` unless they are well-formed, have the offset deltas 0, 1, 2, ... and fill `data`; and
    `TimestampError` for timestamps outside of the supported dates. Positions in messages count from the first record.
    """
    try:
        if count == 1 and (walked := _usual(data, 0, 0)) is not None:
            largest, reached = walked
            smallest = largest
        else:
            largest, smallest, reached = _walk(data, count)
    except IndexError:
        raise CorruptBatch(f"{count} records do not end within their batch") from None
    if reached != len(data):
        raise CorruptBatch(f"position {reached}: {len(data) - reached} bytes behind the last record")
    if base_timestamp + smallest < LEAST_TIMESTAMP or base_timestamp + largest > MOST_TIMESTAMP:
        raise TimestampError(
            f"timestamps from {base_timestamp + smallest} to {base_timestamp + largest} ms are not dates"
        )
    return base_timestamp + largest


def _walk(data: bytes, count: int) -> tuple[int, int, int]:
    """The largest and the smallest timestamp delta, and the position behind the last record."""
    largest, smallest = -(1 << 63), 1 << 63
    pos = delta = failures = 0
    next_try = 1
    while delta < count:
        start = pos
        timestamp, pos = _usual(data, pos, delta) or _one(data, pos, delta)
        delta += 1
        if timestamp > largest:
            largest = timestamp
        if timestamp < smallest:
            smallest = timestamp
        if delta >= next_try and count - delta >= FEW and failures < MOST_FAILURES:
            alike = _alike(data, start, pos, timestamp, delta, count)
            if alike is None:
                failures += 1
                next_try = delta + FEW
            else:
                records, low, high = alike
                pos += records * (pos - start)
                delta += records
                largest, smallest = max(largest, high), min(smallest, low)
    return largest, smallest, pos


def _usual(data: bytes, pos: int, delta: int) -> tuple[int, int] | None:
    """As `_one`, faster, for the usual record: short, with few bytes in each number and no headers.

    None if the record is unusual or wrong."""
    length, second = data[pos], data[pos + 1]
    if length < 128:
        pos += 1
    elif second < 128:
        length = length & 127 | second << 7
        pos += 2
    else:
        return None
    stop = pos + (length >> 1)
    encoded = data[pos + 1]
    if length & 1 or encoded > 127 or stop > len(data) or data[stop - 1]:
        return None
    if delta < _ONE_BYTE:
        if data[pos + 2] != delta << 1:
            return None
        at = pos + 3
    elif delta < _TWO_BYTES:
        if data[pos + 2] != (delta << 1 & 127 | 128) or data[pos + 3] != delta >> 6:
            return None
        at = pos + 4
    elif delta < _THREE_BYTES:
        if data[pos + 2] != (delta << 1 & 127 | 128) or data[pos + 3] != (delta >> 6 & 127 | 128):
            return None
        if data[pos + 4] != delta >> 13:
            return None
        at = pos + 5
    else:
        return None
    key = data[at]
    if key == 1:  # -1: null
        at += 1
    elif key < 128 and not key & 1:
        at += 1 + (key >> 1)
    else:
        return None
    length = data[at]
    if length > 127:
        second = data[at + 1]
        if second > 127:
            return None
        length = length & 127 | second << 7
        at += 1
    if length & 1 or at + (length >> 1) + 2 != stop:
        return None
    return (encoded >> 1) ^ -(encoded & 1), stop


def _one(data: bytes, pos: int, delta: int) -> tuple[int, int]:
    """One record: its timestamp delta, and the position behind it."""
    start = pos
    length, pos = _integer(data, pos, _INT32_BYTES)
    stop = pos + length
    if length < 0 or stop > len(data):
        raise CorruptBatch(f"position {start}: a record of {length} bytes exceeds its batch")
    timestamp, pos = _integer(data, pos + 1, _INT64_BYTES)
    stated_delta, pos = _integer(data, pos, _INT32_BYTES)
    if stated_delta != delta:
        raise CorruptBatch(f"position {start}: an offset delta of {stated_delta} where {delta} must follow")
    pos = _behind_nullable(data, _behind_nullable(data, pos))
    _check_headers(data, pos, stop)
    return timestamp, stop


def _behind_nullable(data: bytes, pos: int) -> int:
    length, pos = _integer(data, pos, _INT32_BYTES)
    if length < -1:
        raise CorruptBatch(f"position {pos}: a length of {length}")
    return pos + max(length, 0)


def _check_headers(data: bytes, pos: int, stop: int) -> None:
    if pos >= stop:
        raise CorruptBatch(f"position {pos}: a record's fields exceed it")
    count, pos = _integer(data, pos, _INT32_BYTES)
    if not 0 <= count <= stop - pos:
        raise CorruptBatch(f"position {pos}: {count} headers in {stop - pos} bytes")
    for _ in range(count):
        length, name = _integer(data, pos, _INT32_BYTES)
        value = name + length
        if length < 0 or value > stop:
            raise CorruptBatch(f"position {pos}: a header's name of {length} bytes")
        try:
            data[name:value].decode()
        except UnicodeDecodeError as error:
            raise CorruptBatch(f"position {name}: a header's name is not UTF-8: {error.reason}") from None
        pos = _behind_nullable(data, value)
    if pos != stop:
        raise CorruptBatch(f"position {pos}: a record that ends at {stop} does not end with its headers")


class Structure(NamedTuple):
    """The positions of a record's fields, except those at its start."""

    attributes: int
    offset_delta: int
    key_length: int
    key: int
    value_length: int
    value: int


def structure_of(data: bytes, start: int, stop: int) -> Structure | None:
    """The structure of a valid record: all its bytes except its attributes, key and value. None for a record with
    headers."""
    attributes = _behind_integer(data, start)
    offset_delta = _behind_integer(data, attributes + 1)
    key_length = _behind_integer(data, offset_delta)
    key = value_length = _behind_integer(data, key_length)
    if data[key_length] != _NULL:
        value_length += _integer(data, key_length, _INT32_BYTES)[0]
    value = end = _behind_integer(data, value_length)
    if data[value_length] != _NULL:
        end += _integer(data, value_length, _INT32_BYTES)[0]
    return Structure(attributes, offset_delta, key_length, key, value_length, value) if end + 1 == stop else None


def _behind_integer(data: bytes, pos: int) -> int:
    """The position behind a valid integer."""
    while data[pos] > _LAST_BYTE:
        pos += 1
    return pos + 1


def _alike(data: bytes, start: int, stop: int, timestamp: int, delta: int, count: int) -> tuple[int, int, int] | None:
    """The number of records after the valid one from `start` to `stop` that are identical to it in structure, with the
    smallest and the largest of their timestamp deltas; None if the next ones are not. `timestamp` is the delta of
    the first record, and `delta` the offset delta that the next one must have.
    """
    size = stop - start
    structure = structure_of(data, start, stop)
    if structure is None:
        return None
    attributes, delta_at, key_length, key, value_length, value = structure
    expected = _deltas(delta, min(count - delta, MOST_ALIKE, (len(data) - stop) // size), key_length - delta_at)
    records = len(expected[0])
    if records < FEW - 1:
        return None
    span = (records - 1) * size + 1
    for at in (*range(start, attributes), *range(key_length, key), *range(value_length, value), stop - 1):
        if data[at + size : at + size + span : size] != data[at : at + 1] * records:
            return None
    for at, column in enumerate(expected, delta_at + size):
        if data[at : at + span : size] != column:
            return None
    times = [data[at : at + span : size] for at in range(attributes + 1 + size, delta_at + size)]
    if all(column == data[at : at + 1] * records for at, column in enumerate(times, attributes + 1)):
        return records, timestamp, timestamp
    return _timestamps(times, records)


def _deltas(delta: int, limit: int, width: int) -> tuple[bytes, ...]:
    """The bytes of up to `limit` offset deltas from `delta` on that are `width` bytes long, one byte position at a
    time."""
    if delta < _ONE_BYTE and width == 1:
        return (_ALONE[delta : delta + limit],)
    low, block = delta % _ONE_BYTE, delta % _TWO_BYTES
    if _ONE_BYTE <= delta < _TWO_BYTES and width == 2:
        high = _HIGH[delta : delta + limit]
        return _LOW[low : low + len(high)], high
    if _TWO_BYTES <= delta < _THREE_BYTES and width == 3:
        middle = _MIDDLE[block : block + limit]
        return _LOW[low : low + len(middle)], middle, bytes([2 * delta >> 14]) * len(middle)
    return (b"",)


def _timestamps(columns: list[bytes], records: int) -> tuple[int, int, int] | None:
    """The smallest and the largest timestamp delta from their encoded bytes; None if their lengths differ."""
    *continued, last_column = columns
    if len(columns) > _WORD or not last_column.isascii() or any(byte.translate(None, _CONTINUED) for byte in continued):
        return None
    lengths: Collection[int] = set(last_column[:1] if last_column.count(last_column[:1]) == records else last_column)
    if continued:
        # Each is a little-endian number with eight bits in place of seven. The continuation bits are the same in all,
        # so these numbers have the same order as the decoded ones.
        spread = bytearray(_WORD * records)
        for place, column in enumerate(columns):
            spread[place::_WORD] = column
        lengths = unpack(f"<{records}Q", spread)
    signs = [lengths]
    if columns[0].translate(None, _EVEN):  # some are negative: odd in zigzag
        signs = [[length for length in lengths if length & 1 == sign] for sign in (0, 1)]
    ends = [_zigzag(length) for group in signs if group for length in (min(group), max(group))]
    return records, min(ends), max(ends)


def _zigzag(encoded: int) -> int:
    """The number that is encoded in the LEB128 bytes of `encoded`, the first of them lowest."""
    value = shift = 0
    while encoded:
        value |= (encoded & 127) << shift
        encoded >>= 8
        shift += 7
    return (value >> 1) ^ -(value & 1)

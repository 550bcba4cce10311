"""Splits a segment of message format 2 into its batches, and changes their fields."""

import struct
from collections.abc import Callable

import crc32c

from history.record.record_payload import record_bytes, value_of_record
from tests.analysis.segment_files import batch, record

HEADER = 61
LENGTH_AT, EPOCH_AT, MAGIC_AT, CRC_AT, ATTRIBUTES_AT, DELTA_AT, COUNT_AT = 8, 12, 16, 17, 21, 23, 57
RECORD_BYTES = 128

Batches = list[bytes]


def split(data: bytes) -> Batches:
    """A whole segment's batches."""
    found = []
    while data:
        size = 12 + struct.unpack_from(">i", data, LENGTH_AT)[0]
        found.append(data[:size])
        data = data[size:]
    return found


def of_batches(change: Callable[[Batches], Batches]) -> Callable[[bytes], bytes]:
    """A change of a file from one of its batches."""
    return lambda data: b"".join(change(split(data)))


def base_of(batch: bytes) -> int:
    return int(struct.unpack_from(">q", batch)[0])


def epoch_of(batch: bytes) -> int:
    return int(struct.unpack_from(">i", batch, EPOCH_AT)[0])


def end_of(batches: Batches) -> int:
    """The offset behind the last record."""
    return base_of(batches[-1]) + int(struct.unpack_from(">i", batches[-1], DELTA_AT)[0]) + 1


def put(batch: bytes, at: int, form: str, number: int) -> bytes:
    """Another number in a batch; its checksum stays as it was."""
    changed = bytearray(batch)
    struct.pack_into(form, changed, at, number)
    return bytes(changed)


def summed(batch: bytes) -> bytes:
    """The batch with the checksum that its content has."""
    return put(batch, CRC_AT, ">I", crc32c.crc32c(batch[ATTRIBUTES_AT:]))


def with_base(batch: bytes, base: int) -> bytes:
    return put(batch, 0, ">q", base)


def with_epoch(batch: bytes, epoch: int) -> bytes:
    return put(batch, EPOCH_AT, ">i", epoch)


def rebased(batches: Batches, start: int = 0) -> Batches:
    """The batches in a row, each at the offset that is due."""
    moved = []
    for each in batches:
        moved.append(with_base(each, start))
        start = end_of(moved)
    return moved


def value_at(batch: bytes) -> int:
    """The position of the first record's value."""
    at, _ = varint(batch, HEADER)
    at, _ = varint(batch, at + 1)  # behind the attributes: the timestamp's delta
    at, _ = varint(batch, at)
    at, key = varint(batch, at)
    at, _ = varint(batch, at + max(key, 0))
    return at


def offset_delta_at(batch: bytes) -> int:
    """The position of the first record's offset delta, which is one byte."""
    at, _ = varint(batch, HEADER)
    return varint(batch, at + 1)[0]


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The place behind a zigzag varint, and its value."""
    raw = shift = 0
    while True:
        byte = data[at]
        raw |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return at, raw >> 1 ^ -(raw & 1)


def value_of(batch: bytes) -> int:
    """What the first record carries."""
    return value_of_record(batch[value_at(batch) :])


def with_value(batch: bytes, value: int) -> bytes:
    """The first record carries another value, as a producer would have written it."""
    at = value_at(batch)
    return summed(batch[:at] + record_bytes(value, RECORD_BYTES) + batch[at + RECORD_BYTES :])


def flipped(batch: bytes, at: int) -> bytes:
    """One byte is another; the checksum stays as it was."""
    return batch[:at] + bytes([batch[at] ^ 0x41]) + batch[at + 1 :]


def made(base: int, epoch: int, value: int) -> bytes:
    """A batch with one record, as a producer would have written it."""
    return batch(base, epoch, [record(0, record_bytes(value, RECORD_BYTES))], time=1_795_324_715_559)

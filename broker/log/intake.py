"""Batches as producers send them, checked and stamped where they lie: the inner loop of every produce request."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from broker.protocol.records import BATCH_HEADER_SIZE, MAGIC, CorruptBatch, validate_batch

_CHECKED = Struct(">8xi4xbI2xi8xq14xi")  # length, magic, CRC, last offset delta, largest timestamp, number of records
_STAMP = Struct(">qii")  # base offset, length, leader epoch
_LENGTH_BEHIND = 12
_CRC_FROM = 21
_SMALLEST = BATCH_HEADER_SIZE - _LENGTH_BEHIND


class Batch(NamedTuple):
    """What the log remembers of a batch that it appends."""

    offset: int
    next_offset: int
    size: int
    max_timestamp: int


def stamp_batches(buf: bytearray | memoryview, offset: int, leader_epoch: int) -> list[Batch]:
    """Give the batches in `buf` consecutive offsets from `offset` on, and the leader's epoch (K101-1).

    Raises `CorruptBatch`, and leaves `buf` as it was, unless it holds intact batches and nothing else.
    """
    batches: list[Batch] = []
    position, length = 0, len(buf)
    with memoryview(buf) as view:
        while position < length:
            if length - position < BATCH_HEADER_SIZE:
                validate_batch(buf, position)
            size, magic, crc, delta, timestamp, count = _CHECKED.unpack_from(view, position)
            end = position + size + _LENGTH_BEHIND
            framed = magic == MAGIC and size >= _SMALLEST and end <= length and count > 0 and delta == count - 1
            if not framed or crc32c(view[position + _CRC_FROM : end]) != crc:
                validate_batch(buf, position)  # raises, and says what is wrong
            batches.append(Batch(offset, offset + count, end - position, timestamp))
            offset += count
            position = end
    if not batches:
        raise CorruptBatch("no batch to append")
    position = 0
    for batch in batches:
        _STAMP.pack_into(buf, position, batch.offset, batch.size - _LENGTH_BEHIND, leader_epoch)
        position += batch.size
    return batches

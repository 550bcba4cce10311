"""Batches of one record each that are alike, checked together: what a producer sends that waits for nobody.

One of them is checked field by field. Those behind it, of the same size, are as good if they have the same bytes
wherever the header or the record's structure is. What is left for each is its CRC and its time.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct

from crc32c import crc32c

from broker.log.record_walk import LEAST_TIMESTAMP, MOST_TIMESTAMP, Structure, structure_of
from broker.ports import Buffer
from broker.protocol.records import BATCH_HEADER_SIZE

FEWEST = 2
"""Batches; fewer are not worth the comparison."""
MOST = 512
"""Batches that are compared at once."""

_CRC_FROM = 21
_TIMES_END = 43


@lru_cache(maxsize=64)
def _own(size: int) -> Struct:
    """What each batch of this size has of its own: base offset, CRC, first and largest timestamp."""
    return Struct(f">q9xI6xqq{size - _TIMES_END}x")


@lru_cache(maxsize=64)
def _common_of_producers(size: int, structure: Structure) -> Struct:
    """What batches of this size whose records are made alike have in common, and must have.

    Base offset and length; magic; attributes and last offset delta; what an idempotent producer says, the number of
    records and the record up to its key; its value's length; its number of headers. The leader epoch of a producer's
    batch means nothing."""
    key, value_length, value = structure[-3:]
    return Struct(f">12s4xc4x6s16x{key - _TIMES_END}s{value_length - key}x{value - value_length}s{size - 1 - value}xc")


@lru_cache(maxsize=64)
def _common_of_leaders(size: int) -> Struct:
    """The same of a leader's, in whose records a follower does not look. All are of one leader epoch."""
    return Struct(f">8x9s4x6s16x{BATCH_HEADER_SIZE - _TIMES_END}s{size - BATCH_HEADER_SIZE}x")


def alike_of_producer(buf: memoryview, position: int, size: int) -> list[int]:
    """The timestamps of the batches that follow the one at `position`, of `size` bytes, and are like it; that one has
    one record and its time, nothing is compressed or numbered, and a leader may append it."""
    behind, at = _behind(buf, position, size), position + size
    found: list[int] = []
    if not behind:
        return found
    checked = bytes(buf[position:at])
    structure = structure_of(checked, BATCH_HEADER_SIZE, size)
    if structure is None:
        return found
    common, own = _common_of_producers(size, structure), _own(size)
    known, (_, _, first, largest) = common.unpack(checked), own.unpack(checked)
    delta = largest - first
    for (_, crc, first, largest), its in zip(own.iter_unpack(behind), common.iter_unpack(behind), strict=True):
        right = its == known and first + delta == largest and LEAST_TIMESTAMP <= largest <= MOST_TIMESTAMP
        if not right or crc32c(buf[at + _CRC_FROM : at + size]) != crc:
            break
        found.append(largest)
        at += size
    return found


def alike_of_leader(buf: Buffer, position: int, size: int, offset: int) -> list[int]:
    """The largest timestamps of the batches that follow the one at `position`, of `size` bytes, are like it, and go on
    at `offset`; that one has one offset, nothing is numbered, and a follower may append it."""
    found: list[int] = []
    with memoryview(buf) as view:
        behind, at = _behind(view, position, size), position + size
        common = _common_of_leaders(size)
        known = common.unpack(view[position:at])
        for (base, crc, _, largest), its in zip(
            _own(size).iter_unpack(behind), common.iter_unpack(behind), strict=True
        ):
            if its != known or base != offset or crc32c(view[at + _CRC_FROM : at + size]) != crc:
                break
            found.append(largest)
            at += size
            offset += 1
    return found


def _behind(view: memoryview, position: int, size: int) -> bytes:
    """What follows the batch at `position` and has whole pieces of its size; nothing where they are too few."""
    pieces = min((len(view) - position) // size - 1, MOST)
    start = position + size
    return bytes(view[start : start + pieces * size]) if pieces >= FEWEST else b""

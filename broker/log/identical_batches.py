"""Batches of one record each that are alike: what a producer sends that waits for nobody.

One of them is checked field by field. Others of the same size, behind it or in later requests, are as good if they have
the same bytes wherever the header or the record's structure is. What is left for each is its CRC and its time.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from broker.log.record_walk import LEAST_TIMESTAMP, MOST_TIMESTAMP, Structure, structure_of
from broker.ports import Buffer
from broker.protocol.records import BATCH_HEADER_SIZE

FEWEST = 2
"""Batches of a leader; fewer are not worth the comparison."""
MOST = 512
"""Batches that are compared at once."""

_START = 12  # bytes: base offset and length
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


class CheckedBatches(NamedTuple):
    """What is known of a batch of one record that was checked field by field: those that are like it are as good."""

    size: int
    delta: int
    """From its first timestamp to the largest, which is the record's."""
    common: Struct
    values: tuple[bytes, ...]
    """Of `common`."""

    @classmethod
    def of(cls, batch: bytes) -> CheckedBatches | None:
        """Of a batch that a leader may append with the time that it has, nothing of it compressed or numbered; None
        when its record has headers."""
        size = len(batch)
        structure = structure_of(batch, BATCH_HEADER_SIZE, size)
        if structure is None:
            return None
        common = _common_of_producers(size, structure)
        _, _, first, largest = _own(size).unpack(batch)
        return cls(size, largest - first, common, common.unpack(batch))


class LetIn:
    """What a leader has let in last of batches of one record; kept from one buffer to the next."""

    __slots__ = ("checked", "size_alone")

    def __init__(self) -> None:
        self.checked: CheckedBatches | None = None
        self.size_alone = 0
        """Of the last batch that came alone and was not like `checked`: once is no habit."""

    def check(self, batch: bytes) -> None:
        """See `CheckedBatches.of`."""
        self.checked = CheckedBatches.of(batch) or self.checked

    def came_alone(self, batch: memoryview) -> None:
        """One that was let in, and may be checked for those to come."""
        if len(batch) != self.size_alone:
            self.size_alone = len(batch)
        else:
            self.size_alone = 0
            self.check(bytes(batch))


def is_alike(batch: memoryview, known: CheckedBatches, first: int, largest: int) -> bool:
    """Whether a batch whose CRC is right, and whose first and largest timestamps are these, is like the known one."""
    size, delta, common, values = known
    right = len(batch) == size and first + delta == largest and LEAST_TIMESTAMP <= largest <= MOST_TIMESTAMP
    return right and common.unpack(batch) == values


def alike_of_producer(buf: memoryview, position: int, known: CheckedBatches) -> list[int]:
    """The timestamps of the batches from `position` on that are like the known one: a leader may append them."""
    size, delta, common, values = known
    found: list[int] = []
    if buf[position : position + _START] != values[0]:
        return found
    pieces, at = min((len(buf) - position) // size, MOST), position
    some = buf[position : position + pieces * size]
    for (_, crc, first, largest), its in zip(_own(size).iter_unpack(some), common.iter_unpack(some), strict=True):
        right = its == values and first + delta == largest and LEAST_TIMESTAMP <= largest <= MOST_TIMESTAMP
        if not right or crc32c(buf[at + _CRC_FROM : at + size]) != crc:
            break
        found.append(largest)
        at += size
    return found


def alike_of_leader(buf: Buffer, position: int, size: int, offset: int) -> list[int]:
    """The largest timestamps of the batches that follow the one at `position`, of `size` bytes, are like it, and go on
    at `offset`; that one has one offset, nothing is numbered, and a follower may append it."""
    found: list[int] = []
    pieces, at = min((len(buf) - position) // size - 1, MOST), position + size
    if pieces < FEWEST:
        return found
    with memoryview(buf) as view:
        behind = view[at : at + pieces * size]
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

"""Batches of one record each that are alike, checked together: what a producer sends that waits for nobody.

One of them is checked field by field. Those behind it, of the same size, are as good if they have the same bytes
wherever the header or the record's structure is: a byte of all of them is compared at a time. What is left for each is
its CRC and its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct

from crc32c import crc32c

from broker.log.record_walk import LEAST_TIMESTAMP, MOST_TIMESTAMP, structure_of
from broker.ports import Buffer
from broker.protocol.records import BATCH_HEADER_SIZE

FEWEST = 6
"""Batches; fewer are not worth the comparison."""
MOST = 512
"""Batches that are compared at once."""

# Of a header: base offset and length; magic; attributes and last offset delta; what an idempotent producer says, and
# the number of records. The leader epoch of a producer's batch means nothing, and of a leader's that of its neighbours.
_OF_PRODUCERS = (*range(12), 16, *range(21, 27), *range(43, BATCH_HEADER_SIZE))
_OF_LEADERS = (*range(8, 17), *range(21, 27), *range(43, BATCH_HEADER_SIZE))
_CRC_FROM = 21


@lru_cache(maxsize=64)
def _shape(size: int) -> Struct:
    """Of each batch of this size: base offset, CRC, first and largest timestamp."""
    return Struct(f">q9xI6xqq{size - 43}x")


def alike_of_producer(buf: memoryview, position: int, size: int) -> list[int]:
    """The timestamps of the batches that follow the one at `position`, of `size` bytes, and are like it; that one has
    one record, nothing is compressed or numbered, and a leader may append it."""
    pieces = min((len(buf) - position) // size, MOST + 1)
    if pieces <= FEWEST:
        return []
    data = bytes(buf[position : position + pieces * size])
    structure = structure_of(data, BATCH_HEADER_SIZE, size)
    if structure is None:
        return []
    delta, columns = structure
    count = _same(data, size, (*_OF_PRODUCERS, *columns))
    found: list[int] = []
    at = position + size
    for _, crc, first, largest in _shape(size).iter_unpack(data[size : count * size]):
        right = first + delta == largest and LEAST_TIMESTAMP <= largest <= MOST_TIMESTAMP
        if not right or crc32c(buf[at + _CRC_FROM : at + size]) != crc:
            break
        found.append(largest)
        at += size
    return found


def alike_of_leader(buf: Buffer, position: int, size: int, offset: int) -> list[int]:
    """The largest timestamps of the batches that follow the one at `position`, of `size` bytes, are like it, and go on
    at `offset`; that one has one offset, nothing is numbered, and a follower may append it."""
    pieces = min((len(buf) - position) // size, MOST + 1)
    if pieces <= FEWEST:
        return []
    with memoryview(buf) as view:
        data = bytes(view[position : position + pieces * size])
        count = _same(data, size, _OF_LEADERS)
        found: list[int] = []
        at = position + size
        for base, crc, _, largest in _shape(size).iter_unpack(data[size : count * size]):
            if base != offset or crc32c(view[at + _CRC_FROM : at + size]) != crc:
                break
            found.append(largest)
            at += size
            offset += 1
    return found


def _same(data: bytes, size: int, columns: Sequence[int]) -> int:
    """How many of the pieces of `size` bytes that `data` begins with have what the first one has in these columns."""
    count = len(data) // size
    for column in columns:
        bytes_of_all = data[column : count * size : size]
        count -= len(bytes_of_all.lstrip(bytes_of_all[:1]))
        if count <= 1:
            return count
    return count

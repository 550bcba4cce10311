"""Fast path for single-record batches of identical layout, as producers send them that do not wait for responses.

One of them is checked field by field. Other batches of the same size, behind it or in later requests, are as valid if
they have the same bytes in all structural parts of header and record. Only CRC and timestamps are checked for each.
"""

from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from broker.log.record_walk import LEAST_TIMESTAMP, MOST_TIMESTAMP, Structure, structure_of
from broker.ports import Buffer
from broker.protocol.records import BATCH_HEADER_SIZE

FEWEST = 2
"""The minimum number of batches of a leader for a comparison to pay off."""
MOST = 512
"""The number of batches in one comparison."""

_START = 12  # bytes: base offset and length
_CRC_FROM = 21
_TIMES_END = 43


@lru_cache(maxsize=64)
def _own(size: int) -> Struct:
    """The fields in which batches of this size may differ: base offset, CRC, first and largest timestamp."""
    return Struct(f">q9xI6xqq{size - _TIMES_END}x")


@lru_cache(maxsize=64)
def _common_of_producers(size: int, structure: Structure) -> Struct:
    """The fields in which producers' batches of this size and record structure must be equal.

    Base offset and length; magic; attributes and last offset delta; the idempotent producer's numbers, the number of
    records and the record up to its key; the length of its value; its number of headers. The leader epoch in a
    producer's batch has no meaning."""
    key, value_length, value = structure[-3:]
    return Struct(f">12s4xc4x6s16x{key - _TIMES_END}s{value_length - key}x{value - value_length}s{size - 1 - value}xc")


@lru_cache(maxsize=64)
def _common_of_leaders(size: int) -> Struct:
    """The same for a leader's batches, of one leader epoch. A follower does not look into their records."""
    return Struct(f">8x9s4x6s16x{BATCH_HEADER_SIZE - _TIMES_END}s{size - BATCH_HEADER_SIZE}x")


class CheckedBatches(NamedTuple):
    """A single-record batch that was checked field by field; batches with the same structural bytes are as valid."""

    size: int
    delta: int
    """From its first timestamp to the largest one, which is the record's."""
    common: Struct
    values: tuple[bytes, ...]
    """Of `common`."""

    @classmethod
    def of(cls, batch: bytes) -> "CheckedBatches | None":
        """The reference for a batch that a leader may append with its own timestamp, uncompressed and without
        producer's numbers; None if its record has headers."""
        size = len(batch)
        structure = structure_of(batch, BATCH_HEADER_SIZE, size)
        if structure is None:
            return None
        common = _common_of_producers(size, structure)
        _, _, first_timestamp, largest = _own(size).unpack(batch)
        return cls(size, largest - first_timestamp, common, common.unpack(batch))


class LetIn:
    """The reference of the last accepted single-record batches; kept from one buffer to the next."""

    __slots__ = ("checked", "size_alone")

    def __init__(self) -> None:
        self.checked: CheckedBatches | None = None
        self.size_alone = 0
        """The size of the last single batch that differed from `checked`: only a repeated one becomes the reference."""

    def check(self, batch: bytes) -> None:
        """See `CheckedBatches.of`."""
        self.checked = CheckedBatches.of(batch) or self.checked

    def came_alone(self, batch: memoryview) -> None:
        """A single batch was accepted; it may become the reference for later ones."""
        if len(batch) != self.size_alone:
            self.size_alone = len(batch)
        else:
            self.size_alone = 0
            self.check(bytes(batch))


def is_alike(batch: memoryview, checked_batches: CheckedBatches, first_timestamp: int, largest: int) -> bool:
    """Whether a batch with a correct CRC and with these first and largest timestamps has the layout of the known
    one."""
    size, delta, common, values = checked_batches
    has_layout = (
        len(batch) == size and first_timestamp + delta == largest and LEAST_TIMESTAMP <= largest <= MOST_TIMESTAMP
    )
    return has_layout and common.unpack(batch) == values


def alike_of_producer(buf: memoryview, position: int, checked_batches: CheckedBatches) -> list[int]:
    """The timestamps of the batches from `position` on with the layout of the known one: a leader may append them."""
    size, delta, common, values = checked_batches
    timestamps: list[int] = []
    if buf[position : position + _START] != values[0]:
        return timestamps
    pieces, at = min((len(buf) - position) // size, MOST), position
    batches = buf[position : position + pieces * size]
    for (_, crc, first_timestamp, largest), batch_values in zip(
        _own(size).iter_unpack(batches), common.iter_unpack(batches), strict=True
    ):
        has_layout = (
            batch_values == values
            and first_timestamp + delta == largest
            and LEAST_TIMESTAMP <= largest <= MOST_TIMESTAMP
        )
        if not has_layout or crc32c(buf[at + _CRC_FROM : at + size]) != crc:
            break
        timestamps.append(largest)
        at += size
    return timestamps


def alike_of_leader(buf: Buffer, position: int, size: int, offset: int) -> list[int]:
    """The largest timestamps of the batches after the one at `position` that have its `size` and layout, and offsets
    from `offset` on. That one has one offset and no producer's numbers, and a follower may append it."""
    timestamps: list[int] = []
    pieces, at = min((len(buf) - position) // size - 1, MOST), position + size
    if pieces < FEWEST:
        return timestamps
    with memoryview(buf) as view:
        batches = view[at : at + pieces * size]
        common = _common_of_leaders(size)
        layout_values = common.unpack(view[position:at])
        for (base, crc, _, largest), batch_values in zip(
            _own(size).iter_unpack(batches), common.iter_unpack(batches), strict=True
        ):
            if batch_values != layout_values or base != offset or crc32c(view[at + _CRC_FROM : at + size]) != crc:
                break
            timestamps.append(largest)
            at += size
            offset += 1
    return timestamps

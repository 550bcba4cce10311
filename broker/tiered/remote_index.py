"""The sparse index of a remote segment, and the checksums of its records: the `.index` object.

Big-endian. Entries of 24 bytes: the offset of a batch, its position in the `.log` object, and the largest timestamp
(ms, -1: none) before it; the last one is the end. Then the CRC-32C (4 bytes) of each block of the `.log` object. Then
four times 4 bytes: the number of entries, the bytes of a block, the number of blocks, and the CRC-32C of all before.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from broker.tiered.object_digests import BLOCK_BYTES

_ENTRY = Struct(">qqq")
_SUM = Struct(">I")
_SHAPE = Struct(">III")


class CorruptIndexError(ValueError):
    """Bytes that are not an index."""


class IndexEntry(NamedTuple):
    """A batch starts at `offset` and `position`; `timestamp`: the largest one before it."""

    offset: int
    position: int
    timestamp: int


class RemoteIndex:
    """Some batches of a remote segment; the last entry is its end. `block_sums`: the CRC-32C of each block of
    `block_bytes` of the `.log` object."""

    def __init__(
        self, entries: Iterable[IndexEntry], block_sums: Sequence[int], block_bytes: int = BLOCK_BYTES
    ) -> None:
        self._entries = list(entries)
        self._block_sums = block_sums
        self._block_bytes = block_bytes

    @property
    def size(self) -> int:
        """Bytes of the segment."""
        return self._entries[-1].position

    def position_before(self, offset: int) -> int:
        """The position of a batch that starts at or before `offset`, the closest that is known."""
        index = bisect_right(self._entries, offset, key=lambda entry: entry.offset) - 1
        return self._entries[index].position if index >= 0 else 0

    def position_before_timestamp(self, timestamp: int) -> int:
        """A position with no record of `timestamp` or later before it."""
        index = bisect_left(self._entries, timestamp, key=lambda entry: entry.timestamp) - 1
        return self._entries[index].position if index >= 0 else 0

    def different_block(self, position: int, data: bytes) -> int | None:
        """The position of the first block of the `.log` object that is not as it was uploaded; None: all are.
        `position`: that of `data`, which are whole blocks."""
        size, view = self._block_bytes, memoryview(data)
        first, misplaced = divmod(position, size)
        if misplaced or (len(data) % size and position + len(data) != self.size):
            return position
        sums = self._block_sums[first : first + -(-len(data) // size)]
        for number, expected in enumerate(sums):
            if crc32c(view[number * size : (number + 1) * size]) != expected:
                return position + number * size
        return None if len(sums) * size >= len(data) else position + len(sums) * size

    def encode(self) -> bytes:
        """The content of the object."""
        data = b"".join(_ENTRY.pack(*entry) for entry in self._entries)
        data += b"".join(map(_SUM.pack, self._block_sums))
        data += _SHAPE.pack(len(self._entries), self._block_bytes, len(self._block_sums))
        return data + _SUM.pack(crc32c(data))

    @classmethod
    def decode(cls, data: bytes) -> "RemoteIndex":
        """Raises `CorruptIndexError`."""
        body, end = data[: -_SUM.size], len(data) - _SHAPE.size - _SUM.size
        if end < _ENTRY.size or crc32c(body) != _SUM.unpack(data[-_SUM.size :])[0]:
            raise CorruptIndexError(f"{len(data)} bytes are not the index of a remote segment")
        entries, block_bytes, blocks = _SHAPE.unpack_from(body, end)
        sums = entries * _ENTRY.size
        if not entries or not block_bytes or sums + blocks * _SUM.size != end:
            raise CorruptIndexError(f"{entries} entries and {blocks} blocks are not {end} bytes")
        found = [IndexEntry(*entry) for entry in _ENTRY.iter_unpack(body[:sums])]
        return cls(found, [number for (number,) in _SUM.iter_unpack(body[sums:end])], block_bytes)

"""The sparse index of a remote segment: the `.index` object.

Entries of 24 bytes, big-endian: the offset of a batch, its position in the `.log` object, and the largest timestamp
(ms, -1: none) before it; then the same for the end, and the CRC-32C (4 bytes) of all bytes before it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

_ENTRY = Struct(">qqq")
_CRC = Struct(">I")


class CorruptIndexError(ValueError):
    """Bytes that are not an index."""


class IndexEntry(NamedTuple):
    """A batch starts at `offset` and `position`; `timestamp`: the largest one before it."""

    offset: int
    position: int
    timestamp: int


class RemoteIndex:
    """Some batches of a remote segment. The last entry is its end."""

    def __init__(self, entries: Iterable[IndexEntry]) -> None:
        self._entries = list(entries)

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

    def encode(self) -> bytes:
        """The content of the object."""
        data = b"".join(_ENTRY.pack(*entry) for entry in self._entries)
        return data + _CRC.pack(crc32c(data))

    @classmethod
    def decode(cls, data: bytes) -> RemoteIndex:
        """Raises `CorruptIndexError`."""
        body, crc = data[: -_CRC.size], data[-_CRC.size :]
        if len(data) < _ENTRY.size + _CRC.size or len(body) % _ENTRY.size or crc32c(body) != _CRC.unpack(crc)[0]:
            raise CorruptIndexError(f"{len(data)} bytes are not the index of a remote segment")
        return cls(IndexEntry(*entry) for entry in _ENTRY.iter_unpack(body))

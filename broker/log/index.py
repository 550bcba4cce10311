"""The sparse index of a segment: the position of a batch every few KiB, and the largest timestamp before it.

It is kept in memory and written to `<base offset>.positions` while the segment grows. A file counts only if its last
entry, the end of the segment, is present and the CRC is correct. Otherwise the index is rebuilt from the batches. It
holds more than Kafka's `.index` and `.timeindex`, so it has another name.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from struct import Struct

from crc32c import crc32c

from broker.descriptors import opening
from broker.errors import is_out_of_descriptors
from broker.ports import Disk, File

ENTRY = Struct(">qqq")  # offset, position, largest timestamp before the position
END = Struct(">qqqI")  # the same for the end of the segment, and the CRC-32C of all bytes before the CRC
WRITE_AT = 170  # entries: about a page at a time
NO_TIMESTAMP = -1


class SparseIndex:
    """Offsets and positions of some batches of one segment, both rising."""

    def __init__(self, disk: Disk, path: str, interval_bytes: int) -> None:
        self._disk = disk
        self._path = path
        self._interval = interval_bytes
        self._offsets = array("q")
        self._positions = array("q")
        self._timestamps = array("q")
        self.due_at = 0
        """The next batch at or past this position gets an entry."""
        self._file: File | None = None
        self._written = 0  # entries in the file
        self._ended = False  # whether the file has its end entry
        self._crc = 0

    def __len__(self) -> int:
        return len(self._offsets)

    def note(self, offset: int, position: int, timestamp_before: int) -> None:
        """A batch starts here; `timestamp_before` is the largest timestamp of the segment before it."""
        if position < self.due_at:
            return
        self.due_at = position + self._interval
        self._offsets.append(offset)
        self._positions.append(position)
        self._timestamps.append(timestamp_before)
        if len(self._offsets) - self._written >= WRITE_AT:
            try:
                self._write()
            except OSError as error:
                # The batch is in its file already. The entries stay in memory and are written with the next ones.
                if not is_out_of_descriptors(error):
                    raise

    def entries(self) -> Iterator[tuple[int, int, int]]:
        """Offset and position of each entry's batch, and the largest timestamp before it."""
        return zip(self._offsets, self._positions, self._timestamps, strict=True)

    def before_offset(self, offset: int) -> int:
        """The position of a batch that starts at or before `offset`, the closest that the index has."""
        index = bisect_right(self._offsets, offset) - 1
        return self._positions[index] if index >= 0 else 0

    def before_position(self, position: int) -> int:
        """The largest known start of a batch that is not past `position`."""
        index = bisect_right(self._positions, position) - 1
        return self._positions[index] if index >= 0 else 0

    def entry_before(self, position: int) -> tuple[int, int]:
        """The last known start of a batch that is not past `position`, and that batch's offset; (0, -1) without one."""
        index = bisect_right(self._positions, position) - 1
        return (self._positions[index], self._offsets[index]) if index >= 0 else (0, -1)

    def before_timestamp(self, timestamp: int) -> int:
        """A position with no record of `timestamp` or later before it."""
        index = bisect_left(self._timestamps, timestamp) - 1
        return self._positions[index] if index >= 0 else 0

    def timestamp_before(self, position: int) -> tuple[int, int]:
        """The last indexed position that is not past `position`, and the largest timestamp before it."""
        index = bisect_right(self._positions, position) - 1
        return (self._positions[index], self._timestamps[index]) if index >= 0 else (0, NO_TIMESTAMP)

    def cut(self, position: int) -> None:
        """The segment now ends at `position`."""
        kept = bisect_left(self._positions, position)
        for column in (self._offsets, self._positions, self._timestamps):
            del column[kept:]
        self.due_at = self._positions[-1] + self._interval if kept else 0
        if kept < self._written or not kept:
            self._start_over()

    def finish(self, next_offset: int, size: int, max_timestamp: int) -> None:
        """The segment is complete, or is being closed: write the missing entries and the end entry."""
        file = self._write()
        end = END.pack(next_offset, size, max_timestamp, 0)[: ENTRY.size]
        file.append([end, crc32c(end, self._crc).to_bytes(4, "big")])
        self._ended = True
        self.close()

    def load(self, base_offset: int, size: int) -> tuple[int, int] | None:
        """Read the file: next offset and largest timestamp of a segment of `size` bytes; None if the file is
        unusable."""
        if not self._disk.exists(self._path):
            return None
        file = self._disk.open(self._path)
        data = file.read(0, file.size())
        file.close()
        entries = len(data) - END.size
        if entries < 0 or entries % ENTRY.size or crc32c(data[:-4]) != int.from_bytes(data[-4:], "big"):
            return None
        next_offset, end, max_timestamp, _ = END.unpack_from(data, entries)
        if end != size or next_offset < base_offset:
            return None
        for offset, position, timestamp in ENTRY.iter_unpack(data[:entries]):
            self._offsets.append(offset)
            self._positions.append(position)
            self._timestamps.append(timestamp)
        if self._positions:
            self.due_at = self._positions[-1] + self._interval
        self._written = len(self._offsets)
        self._crc = crc32c(data[:entries])
        self._ended = True
        return next_offset, max_timestamp

    async def sync(self, *, in_background: bool = False) -> None:
        """Return when the file, which `finish` has written, is on disk. Waits for descriptors. No effect for a removed
        file, because the segment can be read without it."""
        file = await opening(self._opened)
        if file is None:
            return
        try:
            await file.sync(in_background=in_background)
        finally:
            file.close()

    def _opened(self) -> File | None:
        return self._disk.open(self._path) if self._disk.exists(self._path) else None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def rename(self, path: str) -> None:
        """Close the file, which `finish` has written, and rename it."""
        self.close()
        self._disk.rename(self._path, path)
        self._path = path

    def rename_if_written(self, path: str) -> list[str]:
        """Close and rename the file, if there is one; returns its new name."""
        if not self._disk.exists(self._path):
            return []
        self.rename(path)
        return [path]

    def remove(self) -> None:
        """Close and unlink the file."""
        self.close()
        if self._disk.exists(self._path):
            self._disk.unlink(self._path)

    def _start_over(self) -> None:
        """The content of the file is outdated: rewrite it."""
        self._written = self._crc = 0
        self._ended = True

    def _write(self) -> File:
        """Append the entries that the file does not have yet."""
        if self._file is None:
            self._file = self._disk.open(self._path, create=True)
            self._ended = True
        if self._ended:
            self._file.truncate(self._written * ENTRY.size)
            self._ended = False
        start, self._written = self._written, len(self._offsets)
        columns = zip(self._offsets[start:], self._positions[start:], self._timestamps[start:], strict=True)
        data = b"".join(ENTRY.pack(*entry) for entry in columns)
        if data:
            self._crc = crc32c(data, self._crc)
            self._file.append([data])
        return self._file

"""One segment of a log: a file of record batches, its index, and exact positions of the newest batches.

The sparse index of a segment: the position of a batch every few KiB, and the largest timestamp before it.

It is kept in memory and written to `<base offset>.positions` while the segment grows. A file counts only if its last
entry, the end of the segment, is present and the CRC is correct. Otherwise the index is rebuilt from the batches. It
holds more than Kafka's `.index` and `.timeindex`, so it has another name.
"""

import asyncio
import errno
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from struct import Struct

from crc32c import crc32c

from broker.descriptors import opening
from broker.errors import is_out_of_descriptors
from broker.log.append_validation import Batch
from broker.ports import Disk, File
from broker.protocol.records import BATCH_HEADER_SIZE, BatchHeader, CorruptBatch, parse_header, validate_batch

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
        kept_count = bisect_left(self._positions, position)
        for column in (self._offsets, self._positions, self._timestamps):
            del column[kept_count:]
        self.due_at = self._positions[-1] + self._interval if kept_count else 0
        if kept_count < self._written or not kept_count:
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


TAIL = 4096  # batches with exact positions in memory: followers and most consumers read there
DELETED = ".deleted"  # suffix of the files of a segment that is not part of its log any more
WALK_BYTES = 1 << 13  # per read in the search for a batch behind an index entry
SCAN_BYTES = 1 << 20  # per read during validation


class Segment:
    """Batches from `base_offset` up to `next_offset`, the base offset of the next segment.

    Offsets may be missing between two batches, where compaction has removed records, but not after the last batch.
    Batches that were taken over from the index have not been read since they were written, perhaps years ago: `verify`
    reads them before they are served for the first time. `suffix` ends the names of files of a segment that is not part
    of the log yet.
    """

    def __init__(self, disk: Disk, directory: str, base_offset: int, interval_bytes: int, *, suffix: str = "") -> None:
        self.base_offset = self.next_offset = base_offset
        self.size = 0
        self.max_timestamp = NO_TIMESTAMP
        self._disk = disk
        self._stem = f"{directory}/{base_offset:020d}"
        self._log_path = f"{self._stem}.log{suffix}"
        self.file: File = disk.open(self._log_path, create=True)
        self.index = SparseIndex(disk, f"{self._stem}.positions{suffix}", interval_bytes)
        self._ends = array("q")
        self._positions = array("q")
        self._unread_to = 0  # the first bytes of the file, taken over from the index
        self._verified_to = 0  # the part of them that has been verified,
        self._verified_next = base_offset  # and the offset that follows it
        self._damaged = False
        self._opened_at = asyncio.get_running_loop().time()
        self._first_timestamp: int | None = None

    @property
    def path(self) -> str:
        """The current path of the log's file."""
        return self._log_path

    def age_ms(self, timestamp: int) -> float:
        """The age at which a batch with this largest timestamp would follow, as in Kafka: by the timestamps of the
        segment's first batch and of that one. If the first batch has none, since this process opened the segment."""
        if self._first_timestamp is None and self.size:
            self._first_timestamp = parse_header(self.file.read(0, BATCH_HEADER_SIZE)).max_timestamp
        if self._first_timestamp is None or self._first_timestamp < 0:
            return (asyncio.get_running_loop().time() - self._opened_at) * 1000
        return timestamp - self._first_timestamp

    @property
    def was_taken_over(self) -> bool:
        """Whether the whole segment was taken over from its index, and this process has neither read nor written it."""
        return self._unread_to == self.size > 0

    def note(self, batches: Iterable[Batch]) -> None:
        """Batches were written at the end."""
        ends, positions, index, position = self._ends, self._positions, self.index, self.size
        if not position:
            self._first_timestamp = None
        for offset, next_offset, size, timestamp, _ in batches:
            if position >= index.due_at:
                index.note(offset, position, self.max_timestamp)
            ends.append(next_offset)
            positions.append(position)
            position += size
            if timestamp > self.max_timestamp:
                self.max_timestamp = timestamp
        self.size = position
        self.next_offset = ends[-1] if ends else self.next_offset
        if len(ends) > 2 * TAIL:
            del ends[:-TAIL]
            del positions[:-TAIL]

    def load(self) -> bool:
        """Take over a cleanly closed segment from its index; false if the index does not fit the file."""
        size = self.file.size()
        index_end = self.index.load(self.base_offset, size)
        if index_end is None:
            return False
        self.next_offset, self.max_timestamp = index_end
        self.size = self._unread_to = size
        return True

    def verify(self, start: int, stop: int, *, compacted: bool = False) -> list[BatchHeader]:
        """Check that the batches between two positions are intact, unless this process knows it; returns the headers of
        those that it has read.

        Raises `CorruptBatch`, also if no batch starts at `start`, or if a batch does not follow the one before (gaps
        are allowed in a `compacted` log). The check starts at a known start of a batch, because the batches up to
        `start` may be damaged too."""
        if start >= self._unread_to or stop <= self._verified_to:
            return []
        follows = start <= self._verified_to
        position, due = (self._verified_to, self._verified_next) if follows else self.index.entry_before(start)
        if position == 0:
            due = self.base_offset
        data, within, headers, starts = self.file.read(position, stop - position), 0, list[BatchHeader](), {start}
        while within < stop - position:
            try:
                header = validate_batch(data, within, compacted=compacted)
            except CorruptBatch as error:
                raise CorruptBatch(f"{self._log_path}: byte {position + within} of {self.size}: {error}") from None
            if header.base_offset < due or (header.base_offset > due and not compacted):
                raise CorruptBatch(f"{self._log_path}: offset {header.base_offset} stands where {due} must follow")
            headers.append(header)
            starts.discard(position + within)
            within, due = within + header.size, header.next_offset
        if starts and start > position:
            raise CorruptBatch(f"{self._log_path}: no batch starts at byte {start}")
        # No CRC covers a base offset; the next batch shows whether one is too large.
        next_base = parse_header(self.file.read(stop, BATCH_HEADER_SIZE)).base_offset if stop < self.size else None
        if due > (self.next_offset if next_base is None else next_base):
            raise CorruptBatch(f"{self._log_path}: the offsets before byte {stop} reach beyond what follows")
        if follows:
            self._verified_to, self._verified_next = stop, due
        return headers

    def distrust(self) -> None:
        """Do not trust this segment's index at the next start: it then reads the whole segment."""
        self._damaged = True
        self.index.remove()

    def damaged(self, error: CorruptBatch) -> OSError:
        """The disk error (EIO) for damaged bytes. The next start reads the whole segment."""
        self.distrust()
        return OSError(errno.EIO, f"{error}; the bytes are not what was written", self.file.path)

    def position_of(self, offset: int) -> int:
        """The position of the batch that contains `offset`, or of the next batch; the segment's size for its next
        offset."""
        if offset >= self.next_offset:
            return self.size
        if self._ends and (offset >= self._ends[0] or not self._positions[0]):
            return self._positions[bisect_right(self._ends, offset)]
        for position, header in self.walk(self.index.before_offset(offset)):
            if header.last_offset >= offset:
                return position
        raise CorruptBatch(f"{self.file.path}: no batch holds offset {offset}")

    def batch_start(self, offset: int) -> tuple[int, int]:
        """Base offset and position of the batch that contains `offset`. If compaction has removed it, the offset after
        the last batch before it, and the position of the next one."""
        position = self.position_of(offset)
        _, header = next(self.walk(position))
        if header.base_offset <= offset:
            return header.base_offset, position
        end = self.base_offset
        for at, earlier_header in self.walk(self.index.before_offset(offset)):
            if at >= position:
                break
            end = earlier_header.next_offset
        return end, position

    def stretch(self, offset: int, bound: int, max_bytes: int) -> tuple[int, int]:
        """Start and end position of the batches from the one that contains `offset`, below `bound`, within `max_bytes`,
        but at least one batch. Raises `CorruptBatch`."""
        start = self.position_of(offset)
        stretch_end = self.size if bound >= self.next_offset else self.position_of(bound)
        return start, stretch_end if stretch_end - start <= max_bytes else self.boundary(start, start + max_bytes)

    def boundary(self, start: int, limit: int) -> int:
        """The last end of a batch that is not past `limit`; at least the end of the batch that starts at `start`."""
        if limit >= self.size:
            return self.size
        if self._positions and limit >= self._positions[0]:
            boundary_position = self._positions[bisect_right(self._positions, limit) - 1]
            if boundary_position > start:
                return boundary_position
        end = start
        for position, header in self.walk(max(start, self.index.before_position(limit))):
            if position + header.size > limit and (end > start or position > start):
                return position
            end = position + header.size
            if end >= limit:
                return end
        return end

    def walk(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch from `position` on, unchecked, for searches."""
        chunk, start = b"", position
        while position < self.size:
            within = position - start
            if len(chunk) - within < BATCH_HEADER_SIZE:
                chunk, start, within = self.file.read(position, WALK_BYTES), position, 0
            header = parse_header(chunk, within)
            if header.size < BATCH_HEADER_SIZE:
                raise CorruptBatch(f"{self.file.path}: position {position}: a batch of {header.size} bytes")
            yield position, header
            position += header.size

    def intact_batches(self, *, compacted: bool = False) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch of the file, read and checked; `compacted` as in `validate_batch`.

        Raises `CorruptBatch` at the first bytes that are not an intact batch: a torn tail, zeros, or a wrong CRC.
        """
        end = self.file.size()
        position = start = 0
        chunk = b""
        while position < end:
            within = position - start
            remaining = len(chunk) - within
            needed_bytes = parse_header(chunk, within).size if remaining >= BATCH_HEADER_SIZE else BATCH_HEADER_SIZE
            if remaining < needed_bytes <= end - position:
                chunk, start = self.file.read(position, max(needed_bytes, SCAN_BYTES)), position
                continue
            try:
                header = validate_batch(chunk, within, compacted=compacted)
            except CorruptBatch as error:
                raise CorruptBatch(f"{self._log_path}: byte {position} of {end}: {error}") from None
            yield position, header
            position += header.size

    def truncate(self, offset: int, position: int, max_timestamp: int) -> None:
        """Cut the file at a batch's start, whose offset becomes the next offset."""
        self.file.truncate(position)
        self.index.cut(position)
        kept_count = bisect_left(self._positions, position)
        del self._ends[kept_count:]
        del self._positions[kept_count:]
        self.size = position
        self._unread_to = min(self._unread_to, position)
        if position < self._verified_to:
            self._verified_to, self._verified_next = position, offset
        self.next_offset = offset
        self.max_timestamp = max_timestamp

    def max_timestamp_before(self, position: int) -> int:
        """The largest timestamp of the batches before `position`."""
        start, largest = self.index.timestamp_before(position)
        for at, header in self.walk(start):
            if at >= position:
                break
            largest = max(largest, header.max_timestamp)
        return largest

    def finish(self) -> None:
        """Write the index: no more batches follow, or the log is being closed."""
        if not self._damaged:
            self.index.finish(self.next_offset, self.size, self.max_timestamp)

    def close(self) -> None:
        self.file.close()
        self.index.close()

    def rename(self, suffix: str = "") -> None:
        """Change the suffix of the log's file. Without a suffix the segment is part of the log, with its index."""
        path = f"{self._stem}.log{suffix}"
        self._disk.rename(self._log_path, path)
        self._log_path = path
        if not suffix:
            self.index.rename(f"{self._stem}.positions")

    def rename_deleted(self) -> list[str]:
        """Rename the files of a segment that its log has dropped, and return their new names. The files stay open."""
        self.rename(DELETED)
        return [self._log_path, *self.index.rename_if_written(f"{self._stem}.positions{DELETED}")]

    def retire(self) -> None:
        """Unlink the files of a replaced segment. Readers may finish; the last one closes the file."""
        if self._disk.exists(self._log_path):
            self._disk.unlink(self._log_path)
        self.index.remove()

    def remove(self) -> None:
        """Close and unlink the files."""
        self.file.close()
        self._disk.unlink(self._log_path)
        self.index.remove()

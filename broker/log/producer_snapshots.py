"""The producer snapshots in a log's directory, `<offset>.snapshot`: what the log knew of its producers at that offset.

Each is written once, to the page cache, and never changed; only one that an earlier process has left, of which nobody
knows whether it is on disk, is written again before records go that it speaks of. One that a power cut has torn is
found by its CRC and goes; then an older one serves, and the log is read from there. Snapshots past the log's end are
removed before anything is appended there again, so that one that is found belongs to the log that it is found with.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection

from broker.descriptors import opening
from broker.ports import Disk, File
from broker.producers.producer_state import ProducerState
from broker.producers.snapshot_format import CorruptSnapshot, decode_snapshot, encode_snapshot

SUFFIX = ".snapshot"


class ProducerSnapshots:
    """The snapshots of one directory. What changes names here says so: the caller makes the directory durable."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        names = [name.removesuffix(SUFFIX) for name in disk.list(directory) if name.endswith(SUFFIX)]
        self._offsets = sorted(int(name) for name in names if len(name) == 20 and name.isdecimal())
        self._inherited = set(self._offsets)  # from earlier processes: they may have been killed, or their syncs failed
        self._unsynced: list[int] = []

    @property
    def offsets(self) -> tuple[int, ...]:
        """Of all that there are, ascending."""
        return tuple(self._offsets)

    def write(self, offset: int, state: ProducerState, *, again: bool = False) -> bool:
        """Write what is known at `offset`, unless it has been; whether there is a new name.

        `again`: unless this process has. Where a sync of an earlier one failed, the kernel takes what that wrote for
        clean, and the next sync would not write it either.
        """
        is_new = offset not in self._offsets
        if not is_new and not (again and offset in self._inherited):
            return False
        file = self._disk.open(self._path(offset), create=True)
        try:
            file.truncate(0)
            file.append([encode_snapshot(state)])
        finally:
            file.close()
        self._inherited.discard(offset)
        if is_new:
            insort(self._offsets, offset)
        self._unsynced.append(offset)
        return is_new

    async def sync(self, *, in_background: bool = False) -> None:
        """Return once the content of all is on disk, but for those that another caller is at. Waits for descriptors."""
        while self._unsynced and (file := await opening(self._next_unsynced)) is not None:
            try:
                await file.sync(in_background=in_background)
            finally:
                file.close()

    def _next_unsynced(self) -> File | None:
        if not self._unsynced:
            return None
        file = self._disk.open(self._path(self._unsynced[0]))
        del self._unsynced[0]  # only now: there may have been no descriptor
        return file

    def newest(self, at_most: int, now: float) -> tuple[int, ProducerState] | None:
        """The last one that is not past an offset and intact; those that are not intact are removed on the way."""
        for offset in reversed(self._offsets[: bisect_right(self._offsets, at_most)]):
            file = self._disk.open(self._path(offset))
            try:
                return offset, decode_snapshot(file.read(0, file.size()), now)
            except CorruptSnapshot:
                self._remove([offset])
            finally:
                file.close()
        return None

    def remove_past(self, offset: int) -> bool:
        """Remove those past an offset, the log's new end; whether there were any."""
        return self._remove(self._offsets[bisect_right(self._offsets, offset) :])

    def remove_before(self, offset: int) -> bool:
        """Remove those before an offset, the log's new start, from which on the others tell all; whether there were
        any."""
        return self._remove(self._offsets[: bisect_left(self._offsets, offset)])

    def keep(self, offsets: Collection[int]) -> bool:
        """Remove all but the newest and those at some offsets; whether there were any."""
        return self._remove([offset for offset in self._offsets[:-1] if offset not in offsets])

    def _remove(self, offsets: Collection[int]) -> bool:
        for offset in list(offsets):
            self._disk.unlink(self._path(offset))
            self._offsets.remove(offset)
            self._inherited.discard(offset)
            if offset in self._unsynced:
                self._unsynced.remove(offset)
        return bool(offsets)

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{offset:020d}{SUFFIX}"

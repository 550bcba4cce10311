"""Producer snapshots in a log's directory, `<offset>.snapshot`: the state of the log's producers at that offset.

A snapshot is written once, to the page cache, and never changed. Exception: a snapshot of an earlier process may not be
on disk, so it is written again before the records that it covers are removed. The CRC detects a snapshot that a power
cut has torn. It is removed, and recovery reads the log from an older one. Snapshots past the log's end are removed
before the next append there, so an existing snapshot always belongs to its log.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection

from broker.descriptors import opening
from broker.ports import Disk, File
from broker.producers.producer_state import ProducerState
from broker.producers.snapshot_format import CorruptSnapshot, decode_snapshot, encode_snapshot

SUFFIX = ".snapshot"


class ProducerSnapshots:
    """The snapshots of one directory. Methods report changes of names; the caller then syncs the directory."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        names = [name.removesuffix(SUFFIX) for name in disk.list(directory) if name.endswith(SUFFIX)]
        self._offsets = sorted(int(name) for name in names if len(name) == 20 and name.isdecimal())
        self._inherited = set(self._offsets)  # from earlier processes, which may have been killed or had failed syncs
        self._unsynced: list[int] = []

    @property
    def offsets(self) -> tuple[int, ...]:
        """The offsets of all snapshots, ascending."""
        return tuple(self._offsets)

    def write(self, offset: int, state: ProducerState, *, again: bool = False) -> bool:
        """Write the state at `offset` unless its snapshot exists; returns whether there is a new name.

        `again`: also if an earlier process wrote it. If a sync of that process failed, the kernel regards its pages as
        clean, and the next sync would not write them either.
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
        """Return when the content of all snapshots is on disk, except those that another call is syncing."""
        while self._unsynced and (file := await opening(self._next_unsynced)) is not None:
            try:
                await file.sync(in_background=in_background)
            finally:
                file.close()

    def _next_unsynced(self) -> File | None:
        if not self._unsynced:
            return None
        file = self._disk.open(self._path(self._unsynced[0]))
        del self._unsynced[0]  # only now: opening may have failed for lack of descriptors
        return file

    def newest(self, at_most: int, now: float) -> tuple[int, ProducerState] | None:
        """The last intact snapshot that is not past an offset; damaged ones are removed on the way."""
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
        """Remove the snapshots past an offset, the log's new end; returns whether there were any."""
        return self._remove(self._offsets[bisect_right(self._offsets, offset) :])

    def remove_before(self, offset: int) -> bool:
        """Remove the snapshots before an offset, the log's new start; returns whether there were any. Later snapshots
        contain all producers."""
        return self._remove(self._offsets[: bisect_left(self._offsets, offset)])

    def keep(self, offsets: Collection[int]) -> bool:
        """Remove all except the newest and those at the given offsets; returns whether any was removed."""
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

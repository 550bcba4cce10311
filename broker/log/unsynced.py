"""What of a log is not on disk yet, and how it gets there.

Content and names are synced apart: a segment's file, its index and the producer snapshots by syncs of files, the names
of all of them by a sync of the directory. A segment that is complete is synced once, with its index; the one that grows
is synced with every flush. Between two syncs the log may change: what was removed meanwhile is left out, and a segment
that a truncation has made the growing one again stays unsynced.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.log.producer_snapshots import ProducerSnapshots
from broker.log.segment import Segment
from broker.ports import Disk


class Unsynced:
    """The segments of one log that are not on disk, and whether names in its directory have changed."""

    def __init__(self, disk: Disk, directory: str, snapshots: ProducerSnapshots, active: Callable[[], Segment]) -> None:
        """`active`: the segment that grows now."""
        self.segments: list[Segment] = [active()]
        self._disk = disk
        self._directory = directory
        self._snapshots = snapshots
        self._active = active
        self._names = 0
        self._names_durable = 0

    def add(self, segment: Segment) -> None:
        """A segment grows from here on."""
        if segment not in self.segments:
            self.segments.append(segment)

    def forget(self, segment: Segment) -> None:
        """A segment is no part of the log any more, or another has its place that is on disk."""
        if segment in self.segments:
            self.segments.remove(segment)

    def names_changed(self, count: int = 1) -> None:
        """So many files were created, renamed or removed."""
        self._names += count

    async def sync(self, *, complete_only: bool = False) -> None:
        """Bring to disk what was appended before the call; `complete_only`: of segments that grow no more, by syncs
        that no other sync waits for. Raises `OSError`."""
        names, active = self._names, self._active()
        chosen = [segment for segment in self.segments if segment is not active or not complete_only]
        for segment in chosen:
            # While others were synced, this one may have been removed and its file closed; what it held is then no
            # part of the log. Another flush may have finished with it.
            if segment in self.segments:
                await segment.file.sync(in_background=complete_only)
            if segment in self.segments and segment is not active:
                await segment.index.sync(in_background=complete_only)
        await self._snapshots.sync(in_background=complete_only)
        if names != self._names_durable:
            await self._disk.sync_directory(self._directory)
            self._names_durable = max(self._names_durable, names)
        for segment in chosen:
            # Only what was complete when the sync began, and is so still: what grows, or grew meanwhile, has more.
            if segment is not active and segment is not self._active():
                self.forget(segment)

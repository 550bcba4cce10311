"""The part of a log that is not on disk yet, and its syncs.

Content and names are synced separately: a segment's file, its index and the producer snapshots by syncs of files, all
names by a sync of the directory. A complete segment is synced once, with its index; the growing one at every flush. The
log may change between two syncs. Files that were removed meanwhile are skipped, and a segment that grows again after a
truncation stays unsynced.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.log.producer_snapshots import ProducerSnapshots
from broker.log.segment import Segment
from broker.ports import Disk


class Unsynced:
    """The segments of one log that are not on disk, and whether names in its directory have changed."""

    def __init__(self, disk: Disk, directory: str, snapshots: ProducerSnapshots, active: Callable[[], Segment]) -> None:
        """`active`: returns the growing segment."""
        self.segments: list[Segment] = [active()]
        self._disk = disk
        self._directory = directory
        self._snapshots = snapshots
        self._active = active
        self._names = 0
        self._names_durable = 0

    def add(self, segment: Segment) -> None:
        """A segment grows from now on."""
        if segment not in self.segments:
            self.segments.append(segment)

    def forget(self, segment: Segment) -> None:
        """The log has dropped a segment, or it was replaced by one that is on disk."""
        if segment in self.segments:
            self.segments.remove(segment)

    def names_changed(self, count: int = 1) -> None:
        """`count` files were created, renamed or removed."""
        self._names += count

    async def sync(self, *, complete_only: bool = False) -> None:
        """Bring what was appended before the call to disk. `complete_only`: only segments that no longer grow, by syncs
        that no other sync waits for. Raises `OSError`."""
        names, active = self._names, self._active()
        chosen = [segment for segment in self.segments if segment is not active or not complete_only]
        for segment in chosen:
            # During the syncs of others, this segment may have been removed and its file closed; its content then is
            # not part of the log any more. Another flush may have synced it.
            if segment in self.segments:
                await segment.file.sync(in_background=complete_only)
            if segment in self.segments and segment is not active:
                await segment.index.sync(in_background=complete_only)
        await self._snapshots.sync(in_background=complete_only)
        if names != self._names_durable:
            await self._disk.sync_directory(self._directory)
            self._names_durable = max(self._names_durable, names)
        for segment in chosen:
            # Only a segment that was complete when the sync started and still is: a growing one has more content now.
            if segment is not active and segment is not self._active():
                self.forget(segment)

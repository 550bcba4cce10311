"""Compaction of this broker's replicas: selects the next log, and stores up to where each has been compacted.

Every replica compacts its own log, as leader or follower. The dirtiest log comes first; one at a time, in short turns
of the loop. A log that cannot be compacted stays unchanged until the broker restarts, and the trace has the reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from broker.errors import is_out_of_descriptors
from broker.log.checkpoint import Key, OffsetCheckpoint
from broker.log.cleaner import Cleanable, Cleaner, SegmentSizes, UncleanableError, cleanable
from broker.ports import Disk
from broker.replica.partition import Partition
from broker.replica.partition_work import PartitionWork

CHECKPOINT_FILE: Final = "cleaner-offset-checkpoint"


class Compactor:
    """Compacts those logs of `partitions()` whose topics are compacted."""

    def __init__(
        self,
        *,
        disk: Disk,
        partitions: Callable[[], Collection[Partition]],
        now_ms: Callable[[], int],
        work: PartitionWork,
        drops_epochs: bool = False,
    ) -> None:
        """`drops_epochs`: the mutant compaction_drops_epochs."""
        self._disk = disk
        self._partitions = partitions
        self._now_ms = now_ms
        self._work = work
        self._drops_epochs = drops_epochs
        self._checkpoint = OffsetCheckpoint(disk, CHECKPOINT_FILE)
        self._writing = asyncio.Lock()
        self._uncleanable: set[Partition] = set()

    async def start(self) -> None:
        """Read the compacted offsets of the open logs. Parts that the logs have lost since are removed from the
        checkpoint, durably. Raises `CorruptCheckpointError`, `OSError`."""
        written = self._checkpoint.read()
        for partition in self._partitions():
            log = partition.log
            log.cleaned_to = min(written.get(partition.key, 0), log.log_end_offset)
        await self._write()

    async def compact(self) -> None:
        """Compact all logs that are dirty enough. Raises `OSError` of the checkpoint."""
        self._uncleanable &= set(self._partitions())
        while (found := self._dirtiest()) is not None:
            partition, end = found
            if not await self._work.attempt("compaction", partition, partial(self._compact, partition, end)):
                break
            await self._write()
        await self._write()

    async def lower(self, key: Key, offset: int) -> None:
        """A log is about to be cut to `offset`, and shows that already; durable on return. Records that are appended
        later have not been compacted, and a deleted key would return. Raises `OSError`."""
        await self._write_if(lambda: self._checkpoint.known.get(key, 0) > offset)

    async def forget(self, key: Key) -> None:
        """A partition's log is about to be removed; a later one of its name starts empty."""
        await self._write_if(lambda: key in self._checkpoint.known)

    def _dirtiest(self) -> tuple[Partition, int] | None:
        best: tuple[float, Partition, int] | None = None
        for partition in self._partitions():
            found = self._cleanable(partition)
            if found is not None and (best is None or found.ratio > best[0]):
                best = (found.ratio, partition, found.end)
        return None if best is None else best[1:]

    def _cleanable(self, partition: Partition) -> Cleanable | None:
        settings = partition.compaction
        pauses = self._work.pauses("compaction", partition)
        if settings is None or pauses or partition in self._uncleanable or partition.lock.locked():
            return None  # if the lock is held, the log may be about to be cut: the next turn checks again
        log = partition.log
        lag_ms = settings.min_compaction_lag_ms
        found = cleanable(log.segments, log.cleaned_to, partition.high_watermark, self._now_ms(), lag_ms)
        return found if found.ratio > 0 and found.ratio >= settings.min_cleanable_dirty_ratio else None

    async def _compact(self, partition: Partition, end: int) -> bool:
        """Make one pass; returns whether another may follow at once."""
        settings = partition.compaction
        assert settings is not None
        before = partition.log.size
        cleaner = Cleaner(
            self._disk,
            partition.log,
            wanted=lambda: partition.compaction is not None and partition in self._partitions(),
            replace=partition.replace_segments,
            drops_epochs=self._drops_epochs,
        )
        sizes = SegmentSizes(settings.segment_bytes, settings.index_interval_bytes)
        try:
            done = await cleaner.clean(
                end, now_ms=self._now_ms(), delete_retention_ms=settings.delete_retention_ms, sizes=sizes
            )
        except UncleanableError as error:
            self._uncleanable.add(partition)
            partition.trace("log_uncleanable", reason=str(error))
            return True
        except OSError as error:
            if not is_out_of_descriptors(error):
                partition.fail(error)
            return False
        if done:
            log = partition.log
            partition.trace("log_compacted", cleaned_to=log.cleaned_to, bytes_before=before, bytes_after=log.size)
        return done

    async def _write(self) -> None:
        await self._write_if(lambda: True)

    async def _write_if(self, wanted: Callable[[], bool]) -> None:
        async with self._writing:  # an earlier write in progress counts as well
            if not wanted():
                return
            offsets = {each.key: each.log.cleaned_to for each in self._partitions() if each.log.cleaned_to}
            if not self._checkpoint.holds(offsets):
                await self._checkpoint.write_durably(offsets)

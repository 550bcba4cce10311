"""The high watermarks of this broker's replicas, as they stand in `replication-offset-checkpoint`.

A restarted process takes them for what is committed. So the file says no more of a log than what is left of it: else
what is appended where records were cut off would be shown to consumers before it is committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from broker.log.checkpoint import Key, OffsetCheckpoint
from broker.ports import Disk
from broker.replica.partition import Partition
from broker.trace import Tracer

CHECKPOINT_FILE = "replication-offset-checkpoint"


class HighWatermarks:
    """Invariant: no log is cut below the high watermark that the file has for it; the file is lowered first."""

    def __init__(self, disk: Disk, partitions: Callable[[], Collection[Partition]], tracer: Tracer) -> None:
        self._checkpoint = OffsetCheckpoint(disk, CHECKPOINT_FILE)
        self._partitions = partitions
        self._tracer = tracer
        self._turn = asyncio.Lock()

    def of(self, key: Key) -> int:
        """What the file says of a partition, 0 where it says nothing. Raises `CorruptCheckpointError`."""
        return self._checkpoint.known.get(key, 0)

    async def write_durably(self) -> None:
        """Bring the file up to date. Raises `OSError`."""
        await self._write_if(lambda _: True)

    async def forget_what_is_lost(self) -> None:
        """Durably, what the file has beyond the end of a log, as recovery has left it, or of none. Raises `OSError`."""
        known = self._checkpoint.known
        await self._write_if(lambda current: any(offset > current.get(key, 0) for key, offset in known.items()))

    async def lower(self, key: Key, offset: int) -> None:
        """A log, which shows it already, is about to be cut to `offset`: durable on return. Raises `OSError`."""
        await self._write_if(lambda _: self.of(key) > offset)

    async def _write_if(self, wanted: Callable[[dict[Key, int]], bool]) -> None:
        async with self._turn:  # what was being written before counts as well
            current = {each.key: min(each.high_watermark, each.log.kept_end) for each in self._partitions()}
            if not wanted(current) or self._checkpoint.holds(current):
                return
            before = self._checkpoint.known
            await self._checkpoint.write_durably(current)
        for (topic, index), high_watermark in current.items():
            if before.get((topic, index)) != high_watermark:
                self._tracer.emit(
                    "high_watermark_checkpointed", topic=topic, partition=index, high_watermark=high_watermark
                )

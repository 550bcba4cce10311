"""The files of offsets that a broker keeps for its replicas: high watermarks, and starts of logs."""

import asyncio
from collections.abc import Callable, Collection

from broker.log.checkpoint import Key, OffsetCheckpoint
from broker.ports import Disk
from broker.replica.partition import Partition
from broker.trace import Tracer

HIGH_WATERMARKS_FILE = "replication-offset-checkpoint"
LOG_STARTS_FILE = "log-start-offset-checkpoint"


class HighWatermarks:
    """The stored high watermarks: `replication-offset-checkpoint`.

    A restarted process regards everything below them as committed. So the file never exceeds the end of a log.
    Otherwise records that are appended after a truncation would be shown to consumers before they are committed.
    Invariant: no log is cut below its high watermark in the file; the file is lowered first.
    """

    def __init__(self, disk: Disk, partitions: Callable[[], Collection[Partition]], tracer: Tracer) -> None:
        self._checkpoint = OffsetCheckpoint(disk, HIGH_WATERMARKS_FILE)
        self._partitions = partitions
        self._tracer = tracer
        self._turn = asyncio.Lock()

    def of(self, key: Key) -> int:
        """The stored high watermark of a partition; 0 without one. Raises `CorruptCheckpointError`."""
        return self._checkpoint.known.get(key, 0)

    async def write_durably(self) -> None:
        """Store the current high watermarks. Raises `OSError`."""
        await self._write_if(lambda _: True)

    async def forget_what_is_lost(self) -> None:
        """Limit the stored values to the ends of the recovered logs, durably; drop those without a log. Raises
        `OSError`."""
        offsets = self._checkpoint.known
        await self._write_if(lambda current: any(offset > current.get(key, 0) for key, offset in offsets.items()))

    async def lower(self, key: Key, offset: int) -> None:
        """A log is about to be cut to `offset`, and shows that already; durable on return. Raises `OSError`."""
        await self._write_if(lambda _: self.of(key) > offset)

    async def _write_if(self, wanted: Callable[[dict[Key, int]], bool]) -> None:
        async with self._turn:  # an earlier write in progress counts as well
            current = {
                partition.key: min(partition.high_watermark, partition.log.kept_end) for partition in self._partitions()
            }
            if not wanted(current) or self._checkpoint.holds(current):
                return
            before = self._checkpoint.known
            await self._checkpoint.write_durably(current)
        for (topic, index), high_watermark in current.items():
            if before.get((topic, index)) != high_watermark:
                self._tracer.emit(
                    "high_watermark_checkpointed", topic=topic, partition=index, high_watermark=high_watermark
                )


class LogStarts:
    """The start offsets of logs that do not start with a segment: `log-start-offset-checkpoint`, as in Kafka.

    Invariants: an entry is durable before the log's start moves there. No entry stays above the end of a log that is
    cut, because a later process would regard records below it as deleted. An entry below the log's start is harmless.
    """

    def __init__(self, disk: Disk) -> None:
        self._checkpoint = OffsetCheckpoint(disk, LOG_STARTS_FILE)
        self._turn = asyncio.Lock()
        self._starts: dict[Key, int] = {}

    def read(self) -> dict[Key, int]:
        """The start offsets by partition, from an earlier process. Raises `CorruptCheckpointError`."""
        self._starts = self._checkpoint.read()
        return dict(self._starts)

    async def write(self, key: Key, offset: int) -> None:
        """Store that a partition is about to start at `offset`. Raises `OSError`."""
        async with self._turn:
            self._starts[key] = max(offset, self._starts.get(key, 0))
            await self._checkpoint.write_durably(self._starts)

    async def lower(self, key: Key, offset: int) -> None:
        """A partition's log is about to be cut to `offset`. If it started above, it starts there now. Durable on
        return. Raises `OSError`."""
        async with self._turn:
            if self._checkpoint.known.get(key, 0) > offset:
                self._starts[key] = offset
                await self._checkpoint.write_durably(self._starts)

    async def forget(self, key: Key) -> None:
        """The partition is removed: a new topic of the same name starts at 0."""
        async with self._turn:
            self._starts.pop(key, None)
            if key in self._checkpoint.known:
                await self._checkpoint.write_durably(self._starts)

"""The start offsets of logs that do not start with a segment: the file `log-start-offset-checkpoint`, as in Kafka."""

from __future__ import annotations

import asyncio

from broker.log.checkpoint import Key, OffsetCheckpoint
from broker.ports import Disk

FILE = "log-start-offset-checkpoint"


class LogStarts:
    """Invariants: an entry is durable before the log's start moves there. No entry stays above the end of a log that is
    cut, because a later process would regard records below it as deleted. An entry below the log's start is harmless.
    """

    def __init__(self, disk: Disk) -> None:
        self._checkpoint = OffsetCheckpoint(disk, FILE)
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

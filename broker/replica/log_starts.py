"""Where logs begin that do not begin with their first segment: the file `log-start-offset-checkpoint`, as Kafka's."""

from __future__ import annotations

import asyncio

from broker.log.checkpoint import Key, OffsetCheckpoint
from broker.ports import Disk

FILE = "log-start-offset-checkpoint"


class LogStarts:
    """Invariants: an entry is durable before the log's start moves there, and none is left above the end of a log that
    is cut: a later process would take what is appended below it for deleted. One that the log has passed does no harm.
    """

    def __init__(self, disk: Disk) -> None:
        self._checkpoint = OffsetCheckpoint(disk, FILE)
        self._turn = asyncio.Lock()
        self._starts: dict[Key, int] = {}

    def read(self) -> dict[Key, int]:
        """The starts by partition, as an earlier process left them. Raises `CorruptCheckpointError`."""
        self._starts = self._checkpoint.read()
        return dict(self._starts)

    async def write(self, key: Key, offset: int) -> None:
        """Write down that a partition is about to begin at `offset`. Raises `OSError`."""
        async with self._turn:
            self._starts[key] = max(offset, self._starts.get(key, 0))
            await self._checkpoint.write_durably(self._starts)

    async def lower(self, key: Key, offset: int) -> None:
        """A partition's log is about to be cut to `offset`, and to begin there if it began above; durable on return.
        Raises `OSError`."""
        async with self._turn:
            if self._checkpoint.known.get(key, 0) > offset:
                self._starts[key] = offset
                await self._checkpoint.write_durably(self._starts)

    async def forget(self, key: Key) -> None:
        """A partition goes: a new topic of the same name begins at 0."""
        async with self._turn:
            self._starts.pop(key, None)
            if key in self._checkpoint.known:
                await self._checkpoint.write_durably(self._starts)

"""Recovery points: the offset up to which each log was on disk, stored in `recovery-point-offset-checkpoint`.

Everything below a recovery point had been synced when the point was written, so it must exist after a crash. If part of
it is missing or damaged, the crash is not the cause, and recovery must not treat it as a torn tail.

Invariant: no log is cut below its recovery point in the file; the file is lowered first.
"""

import asyncio
from collections.abc import Callable

from broker.log.checkpoint import Key, OffsetCheckpoint
from broker.log.log import PartitionLog
from broker.ports import Disk

RECOVERY_POINTS_FILE = "recovery-point-offset-checkpoint"


class RecoveryPoints:
    """The recovery points of a broker's logs. The file is read at the first use."""

    def __init__(self, disk: Disk) -> None:
        self._checkpoint = OffsetCheckpoint(disk, RECOVERY_POINTS_FILE)
        self._unopened: dict[Key, int] | None = None
        self._logs: dict[Key, PartitionLog] = {}
        self._turn = asyncio.Lock()

    @property
    def _found(self) -> dict[Key, int]:
        """The points of an earlier process, without forgotten logs. Raises `CorruptCheckpointError`."""
        if self._unopened is None:
            self._unopened = dict(self._checkpoint.known)
        return self._unopened

    def of(self, key: Key) -> int:
        """The point that the file has, or may have, for a log; 0 without one. Raises `CorruptCheckpointError`."""
        return self._checkpoint.known.get(key, 0)

    def watch(self, key: Key, log: PartitionLog) -> None:
        """Add an open log: its recovery point is stored from now on."""
        self._logs[key] = log

    async def forget(self, key: Key) -> None:
        """A log is about to be removed: drop its point durably, because a later log of the same name starts empty."""
        self._logs.pop(key, None)
        self._found.pop(key, None)
        await self._write_if(lambda: key in self._checkpoint.known)

    async def lower(self, key: Key, offset: int) -> None:
        """A log is about to be cut to `offset`, and shows that already: store it; durable on return."""
        await self._write_if(lambda: self.of(key) > offset)

    async def write_durably(self) -> None:
        """Store the current points."""
        await self._write_if(lambda: True)

    async def _write_if(self, is_wanted: Callable[[], bool]) -> None:
        async with self._turn:  # another caller may have written the wanted state during the wait
            if not is_wanted():
                return
            # A log that could not be opened, or is not open yet, keeps its stored point.
            current = {**self._found, **{key: log.recovery_point for key, log in self._logs.items()}}
            if not self._checkpoint.holds(current):
                await self._checkpoint.write_durably(current)

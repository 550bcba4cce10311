"""Up to where each log of this broker was on disk, as it stands in `recovery-point-offset-checkpoint`.

What lies below its recovery point had been synced when that was written. After a crash it has to be there: whatever is
missing or damaged of it was not torn off by the crash, and recovery must not take it for that.

Invariant: no log is cut below the recovery point that the file has for it; the file is lowered first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from broker.log.checkpoint import Key, OffsetCheckpoint
from broker.ports import Disk

RECOVERY_POINTS_FILE = "recovery-point-offset-checkpoint"


class Recoverable(Protocol):
    """A log, as far as its recovery point is concerned."""

    @property
    def recovery_point(self) -> int: ...


class RecoveryPoints:
    """The recovery points of a broker's logs. The file is read when it is first asked for."""

    def __init__(self, disk: Disk) -> None:
        self._checkpoint = OffsetCheckpoint(disk, RECOVERY_POINTS_FILE)
        self._unopened: dict[Key, int] | None = None
        self._logs: dict[Key, Recoverable] = {}
        self._turn = asyncio.Lock()

    @property
    def _found(self) -> dict[Key, int]:
        """What an earlier process left, but for what is forgotten. Raises `CorruptCheckpointError`."""
        if self._unopened is None:
            self._unopened = dict(self._checkpoint.known)
        return self._unopened

    def of(self, key: Key) -> int:
        """What the file says of a log, or may say; 0 when it says nothing. Raises `CorruptCheckpointError`."""
        return self._checkpoint.known.get(key, 0)

    def watch(self, key: Key, log: Recoverable) -> None:
        """A log that is open: its recovery point is written from now on."""
        self._logs[key] = log

    async def forget(self, key: Key) -> None:
        """A log is about to go, durably: a later one of its name begins anew."""
        self._logs.pop(key, None)
        self._found.pop(key, None)
        await self._write_if(lambda: key in self._checkpoint.known)

    async def lower(self, key: Key, offset: int) -> None:
        """A log, which shows it already, is about to be cut to `offset`: durable on return."""
        await self._write_if(lambda: self.of(key) > offset)

    async def write_durably(self) -> None:
        """Bring the file up to date."""
        await self._write_if(lambda: True)

    async def _write_if(self, wanted: Callable[[], bool]) -> None:
        async with self._turn:  # who waited here may find that another has written what it wanted
            if not wanted():
                return
            # What could not be opened, or is not open yet, keeps what is known of it.
            current = {**self._found, **{key: log.recovery_point for key, log in self._logs.items()}}
            if not self._checkpoint.holds(current):
                await self._checkpoint.write_durably(current)

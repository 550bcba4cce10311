"""How much is done in one turn of the loop: what clients ask for at once must not keep leases from being renewed.

Work is counted in entries: elements of the arrays of a request, and of its answer. A turn has so many of them for all
connections together. A request that asks for more goes on in later turns, in which those like it take turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Final, TypeVar

from broker.log.validation import bytes_examined
from broker.protocol.api import ApiKey

ENTRIES_PER_TURN = 500
UNNOTICED: Final = 50
"""So few entries need not be told from those of the turn after: that has so many fewer, and the loop one call less."""
EXAMINED_PER_ENTRY: Final = 1 << 14
"""Bytes of records that are opened and walked in the time in which an entry of another request is answered."""
MOST_ENTRIES: Final = {ApiKey.FETCH: 20_000, ApiKey.PRODUCE: 20_000}
MOST_ENTRIES_ELSEWHERE: Final = 100_000

T = TypeVar("T")
Work = Generator[None, None, T]
"""Work that yields after each entry and returns its result."""


def most_entries(key: ApiKey) -> int:
    """The most elements that the arrays of one request may have together, wherever it is decoded.

    Fetch and Produce are served within one turn of the loop, or begun in it."""
    return MOST_ENTRIES.get(key, MOST_ENTRIES_ELSEWHERE)


def entries_examined() -> int:
    """What was looked into of records since this process began, in entries: differences lose nothing of it."""
    return bytes_examined() // EXAMINED_PER_ENTRY


class Turns:
    """Counts entries, and runs work that is longer than a turn. No turn has more than `ENTRIES_PER_TURN`."""

    def __init__(self) -> None:
        self._left = ENTRIES_PER_TURN
        self._begun = False
        self._queue = asyncio.Lock()

    @property
    def is_over(self) -> bool:
        """Whether this turn of the loop has had its entries."""
        return self._left <= 0

    def spend(self, entries: int) -> None:
        """So many entries are being worked on in this turn."""
        self._left -= entries
        if not self._begun and self._left < ENTRIES_PER_TURN - UNNOTICED:
            self._begun = True
            asyncio.get_running_loop().call_soon(self._next)

    def advance(self, work: Work[T]) -> T | None:
        """Work for what is left of this turn; the result when that was enough, else None: go on with `finish`."""
        while not self.is_over:
            try:
                next(work)
            except StopIteration as done:
                result: T = done.value
                return result
            self.spend(1)
        return None

    async def finish(self, work: Work[T]) -> T:
        """The result of work, once there were turns enough. Whoever waits longest has the next one."""
        while True:
            async with self._queue:
                if (result := self.advance(work)) is not None:
                    return result
                await asyncio.sleep(0)

    def _next(self) -> None:
        self._begun = False
        self._left = ENTRIES_PER_TURN

"""The work budget of one turn of the event loop: expensive requests must not delay the renewal of leases.

Theory of operation. The broker runs in one thread. Whatever a handler does without awaiting delays everything else:
heartbeats to the controller, votes, fetches of followers. If it takes long enough, this broker's lease expires and its
partitions fail over although it is healthy. Work is therefore counted in entries: the elements of the arrays of a
request and of its answer, and the bytes of records that are validated (`EXAMINED_PER_ENTRY`). A turn, one pass of the
loop over its ready callbacks, has `ENTRIES_PER_TURN` entries for all connections together.

- A connection starts at least one request per turn, and stops when the budget is used (`Connection._process`).
- A handler that may do more work than that is a generator (`Work`) which yields after each entry. `advance` runs it
  within the current turn; `finish` continues it in later turns, in which all unfinished work takes turns in order.
- The first request that spends a noticeable part of the budget schedules `_next`, which restores it in the next turn.
- The entries of one request are bounded when it is decoded (`most_entries`), those of Fetch and Produce more strictly:
  Fetch is served within one turn, and Produce is interrupted only after a whole turn's work.
"""

import asyncio
from collections.abc import Generator
from typing import Final, TypeVar

from broker.protocol.api import ApiKey

ENTRIES_PER_TURN = 500
UNNOTICED: Final = 50
"""Up to this many entries are charged to the next turn, which then has that many fewer: it saves a call of the loop."""
EXAMINED_PER_ENTRY: Final = 1 << 14
"""Bytes of records (`bytes_examined`) that are decompressed and validated in the time of one entry of another request.
Callers divide before they subtract, so that the differences lose no bytes."""
MOST_ENTRIES: Final = {ApiKey.FETCH: 20_000, ApiKey.PRODUCE: 20_000}
MOST_ENTRIES_ELSEWHERE: Final = 100_000

T = TypeVar("T")
Work = Generator[None, None, T]
"""Work that yields after each entry and returns its result."""


def most_entries(key: ApiKey) -> int:
    """The most elements that the arrays of one request may have together, checked wherever it is decoded.

    Fetch and Produce have a lower bound, because they are served, or started, within one turn of the loop."""
    return MOST_ENTRIES.get(key, MOST_ENTRIES_ELSEWHERE)


class Turns:
    """Counts the entries of a turn, and runs work that is longer than one turn."""

    def __init__(self) -> None:
        self._left = ENTRIES_PER_TURN
        self._is_end_scheduled = False
        self._queue = asyncio.Lock()

    @property
    def is_over(self) -> bool:
        """Whether this turn of the loop has used its entries."""
        return self._left <= 0

    def spend(self, entries: int) -> None:
        """Charge `entries` to this turn."""
        self._left -= entries
        if not self._is_end_scheduled and self._left < ENTRIES_PER_TURN - UNNOTICED:
            self._is_end_scheduled = True
            asyncio.get_running_loop().call_soon(self._next)

    def advance(self, work: Work[T]) -> T | None:
        """Run work within the rest of this turn. Returns its result, or None when it needs `finish`."""
        while not self.is_over:
            try:
                next(work)
            except StopIteration as done:
                result: T = done.value
                return result
            self.spend(1)
        return None

    async def finish(self, work: Work[T]) -> T:
        """Run work over as many turns as it needs and return its result. Waiting work is served first come first."""
        while True:
            async with self._queue:
                if (result := self.advance(work)) is not None:
                    return result
                await asyncio.sleep(0)

    def _next(self) -> None:
        self._is_end_scheduled = False
        self._left = ENTRIES_PER_TURN

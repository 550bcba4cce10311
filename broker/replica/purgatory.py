"""Requests that wait at a partition: producers for an offset, fetches for something to read (Kafka's purgatory)."""

import asyncio
from bisect import bisect_right
from collections import deque

from broker.errors import ErrorCode


class OffsetWaiters:
    """Producers that wait until a position of the log, for example its high watermark, reaches an offset.

    Waiters are sorted by offset, so the first is always the next to be completed. One timer serves all waiters: it is
    set for the first deadline and set again when it fires.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, float, asyncio.Future[ErrorCode]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, offset: int, timeout: float) -> asyncio.Future[ErrorCode]:
        """Becomes NONE once the position has reached `offset`, REQUEST_TIMED_OUT after `timeout` seconds."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[ErrorCode] = loop.create_future()
        deadline = loop.time() + timeout
        if self._waiting and self._waiting[-1][0] > offset:
            # A repeated batch, whose offset is below those of other waiters.
            place = bisect_right(self._waiting, offset, key=lambda waiter: waiter[0])
            self._waiting.insert(place, (offset, deadline, future))
        else:
            self._waiting.append((offset, deadline, future))
        if self._timer is None or self._timer_at > deadline:
            self._set_timer(deadline)
        return future

    def reached(self, position: int) -> None:
        """Complete all waiters up to this position."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= position:
            _settle(waiting.popleft()[2], ErrorCode.NONE)
        if not waiting and self._timer is not None:
            self._cancel_timer()

    def fail(self, error: ErrorCode) -> None:
        """Fail all waiters."""
        self._cancel_timer()
        while self._waiting:
            _settle(self._waiting.popleft()[2], error)

    def _expire(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        remaining: deque[tuple[int, float, asyncio.Future[ErrorCode]]] = deque()
        for waiter in self._waiting:
            if waiter[1] <= now:
                _settle(waiter[2], ErrorCode.REQUEST_TIMED_OUT)
            else:
                remaining.append(waiter)
        self._waiting = remaining
        if remaining:
            self._set_timer(min(deadline for _, deadline, _ in remaining))

    def _set_timer(self, deadline: float) -> None:
        self._cancel_timer()
        self._timer = asyncio.get_running_loop().call_at(deadline, self._expire)
        self._timer_at = deadline

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class FetchWaiters:
    """Fetches that are parked at a partition. A woken fetch reads again; waking does not promise that it finds more."""

    def __init__(self) -> None:
        # A dict keeps the order of arrival; a set would wake them by address, differently in every run.
        self._parked: dict[asyncio.Future[None], None] = {}

    def __len__(self) -> int:
        return len(self._parked)

    def park(self, future: asyncio.Future[None]) -> None:
        self._parked[future] = None

    def leave(self, future: asyncio.Future[None]) -> None:
        self._parked.pop(future, None)

    def wake(self) -> None:
        """Wake all that are parked now."""
        if self._parked:
            parked, self._parked = self._parked, {}
            for future in parked:
                if not future.done():
                    future.set_result(None)


def _settle(future: asyncio.Future[ErrorCode], error: ErrorCode) -> None:
    if not future.done():
        future.set_result(error)

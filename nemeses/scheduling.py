"""In what time a run lives, and how several of its deeds are under way at once.

Whoever waits, or measures how long something took, asks its world's scheduler and never the machine's clock: in the
simulated world time is virtual and there is one thread, and what runs there is the same code.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Pending(Protocol):
    """A deed that was begun."""

    def result(self) -> None:
        """Wait for its end; raises what it raised."""
        ...


class Scheduler(Protocol):
    """Time, and what passes in it. Moments of `monotonic` and `monotonic_ns` are on one axis."""

    def monotonic(self) -> float:
        """Seconds."""
        ...

    def monotonic_ns(self) -> int: ...

    def wall(self) -> float:
        """Seconds since the epoch."""
        ...

    def moment_of(self, real_ns: int) -> int:
        """A moment of this machine's monotonic clock, on this axis; one of before its time is its beginning."""
        ...

    def sleep(self, seconds: float) -> None: ...

    def for_each(self, items: Iterable[T], action: Callable[[T], R]) -> list[R]:
        """The results of one deed for each item, all at the same time where that can be, in the items' order. Raises
        the first failure, once all have ended."""
        ...

    def begin(self, deed: Callable[[], None]) -> Pending:
        """Begin a deed; where only one thing can be done at a time it is over when this returns."""
        ...


class ThreadScheduler:
    """This machine's own time; what happens at once happens on threads."""

    def monotonic(self) -> float:
        return time.monotonic()

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def wall(self) -> float:
        return time.time()

    def moment_of(self, real_ns: int) -> int:
        return real_ns

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def for_each(self, items: Iterable[T], action: Callable[[T], R]) -> list[R]:
        todo = list(items)
        if not todo:
            return []
        with ThreadPoolExecutor(len(todo), thread_name_prefix="each") as pool:
            futures = [pool.submit(action, item) for item in todo]
            wait(futures)  # an interrupt that is raised in here waits for all; one that is raised behind it does not
        return [future.result() for future in futures]

    def begin(self, deed: Callable[[], None]) -> Pending:
        return _OnThread(deed)


class _OnThread:
    """One call on a thread of its own."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            self._call()
        except BaseException as error:  # handed to whoever asks
            self._error = error

    def result(self) -> None:
        while self._thread.is_alive():
            self._thread.join(0.2)  # a join without a limit cannot be interrupted
        if self._error is not None:
            raise self._error


REAL_TIME = ThreadScheduler()

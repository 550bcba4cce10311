"""The time of a run, and concurrent operations in it.

Code that waits, or measures a duration, uses its world's scheduler and never the machine's clock. In the simulated
world time is virtual and there is one thread, and the same code runs there.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")
_LAST_WAIT_S: Final = 10.0
"""How long calls in progress may still take after an interrupt."""


class Pending(Protocol):
    """A started operation."""

    def result(self) -> None:
        """Wait for its end; raises its exception."""
        ...


class Scheduler(Protocol):
    """A world's time. `monotonic` and `monotonic_ns` have the same origin."""

    def monotonic(self) -> float:
        """Seconds."""
        ...

    def monotonic_ns(self) -> int: ...

    def wall(self) -> float:
        """Seconds since the epoch."""
        ...

    def moment_of(self, real_ns: int) -> int:
        """A time of this machine's monotonic clock in this scheduler's time; earlier times give this one's origin."""
        ...

    def sleep(self, seconds: float) -> None: ...

    def run(self, body: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine, which may use the network."""
        ...

    def for_each(self, items: Iterable[T], action: Callable[[T], R]) -> list[R]:
        """The results of `action` for each item, concurrent where possible, in the items' order. Raises the first
        exception after all have ended."""
        ...

    def begin(self, function: Callable[[], None]) -> Pending:
        """Start an operation; in a world with a single thread it has ended when this returns."""
        ...


def for_each(items: Iterable[T], action: Callable[[T], R]) -> list[R]:
    """The results of `action` for each item, in the items' order; each call has a thread of its own. Raises the first
    exception after all have ended. An interrupt ends the wait. Calls in progress then have `_LAST_WAIT_S` to end before
    the caller cleans up."""
    todo, results = list(items), dict[int, R]()

    def call(position: int) -> None:
        results[position] = action(todo[position])

    calls = list[_OnThread]()
    try:
        for position in range(len(todo)):
            calls.append(_OnThread(partial(call, position)))
            calls[-1].start()
        for thread in calls:
            thread.wait()
    except KeyboardInterrupt:
        deadline_s = time.monotonic() + _LAST_WAIT_S
        for thread in calls:
            thread.wait(max(deadline_s - time.monotonic(), 0.0))
        raise
    for thread in calls:
        thread.result()
    return [results[position] for position in range(len(todo))]


def results_by_name(names: Iterable[str], action: Callable[[str], R]) -> dict[str, R]:
    """The same as a mapping: by name, the result of `action`."""
    todo = list(names)
    return dict(zip(todo, for_each(todo, action), strict=True))


class ThreadScheduler:
    """This machine's time; concurrent operations run in threads."""

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

    def run(self, body: Coroutine[Any, Any, T]) -> T:
        return asyncio.run(body)

    def for_each(self, items: Iterable[T], action: Callable[[T], R]) -> list[R]:
        return for_each(items, action)

    def begin(self, function: Callable[[], None]) -> Pending:
        return _OnThread(function).start()


class _OnThread:
    """One call in a separate thread."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._error: BaseException | None = None
        # `Thread.join` takes a thread for ended when an interrupt is raised in it (Python 3.11).
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self) -> "_OnThread":
        self._thread.start()
        return self

    def _work(self) -> None:
        try:
            self._call()
        except BaseException as error:  # re-raised by `result`
            self._error = error
        finally:
            self._ended.set()

    def wait(self, most_s: float | None = None) -> None:
        """Wait for the end of the call, at most `most_s` seconds (None: without a limit)."""
        self._ended.wait(most_s)

    def result(self) -> None:
        self.wait()
        if self._error is not None:
            raise self._error


REAL_TIME = ThreadScheduler()

"""Virtual time for code that blocks: whoever waits lets the simulated world go on until then."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from types import FrameType
from typing import Any, TypeVar

from nemeses.scheduling import Pending
from orchestrator.errors import STOPPING, WorldError
from simulator.cluster import SimulatedCluster
from simulator.loop import DeadlockError, LivelockError

CPU_LIMIT_S = 120.0
"""Of this machine's processor, for one wait: a world that needs more has stopped making progress."""

T = TypeVar("T")
R = TypeVar("R")


class StuckError(Exception):
    """Raised in whatever code has used up the processor time of a wait."""


class VirtualScheduler:
    """The time of one simulated cluster. There is one thread: what would happen at once happens one after the other.

    Every wait raises `WorldError` when the world has stopped making progress: nothing is scheduled that could bring
    about what is awaited, callbacks schedule each other for ever, or the processor time of a wait is used up."""

    def __init__(self, cluster: SimulatedCluster, seed: int) -> None:
        self._cluster = cluster
        self._seed = seed
        self._stuck = False
        self._last_ns = -1

    def monotonic(self) -> float:
        return self._cluster.loop.time()

    def monotonic_ns(self) -> int:
        """Later with each reading: whoever reads twice has done something in between, which takes time elsewhere."""
        self._last_ns = max(round(self._cluster.loop.time() * 1e9), self._last_ns + 1)
        return self._last_ns

    def wall(self) -> float:
        return self._cluster.wall_ns() / 1e9

    def moment_of(self, real_ns: int) -> int:
        """The world's time begins with the run."""
        del real_ns
        return 0

    def sleep(self, seconds: float) -> None:
        self.until(lambda: False, seconds)

    def until(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Let the world go on until something holds, for at most so many seconds; whether it does."""
        with self._guarded():
            return self._cluster.loop.run_until(holds, seconds)

    def run(self, body: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine on the observer's host."""
        with self._guarded():
            return self._cluster.run(body)

    def for_each(self, items: Iterable[T], action: Callable[[T], R]) -> list[R]:
        results: list[R] = []
        first: BaseException | None = None
        for item in items:
            try:
                results.append(action(item))
            except Exception as error:  # as on threads: the others are done all the same
                first = first or error
        if first is not None:
            raise first
        return results

    def begin(self, deed: Callable[[], None]) -> Pending:
        return _Done(deed)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            with _signals_after(), self._limited():
                yield
        except (DeadlockError, LivelockError, StuckError) as error:
            raise WorldError(f"seed {self._seed}: the simulated world stopped making progress: {error}") from error
        if self._stuck:
            raise WorldError(f"seed {self._seed}: the simulated world used {CPU_LIMIT_S:g} s of processor for one wait")

    @contextlib.contextmanager
    def _limited(self) -> Iterator[None]:
        """Signals reach the main thread only; elsewhere (in a test, under Spark) there is no limit."""
        if not _in_main_thread():
            yield
            return
        before = signal.signal(signal.SIGVTALRM, self._used_up)
        signal.setitimer(signal.ITIMER_VIRTUAL, CPU_LIMIT_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)

    def _used_up(self, _number: int, _frame: FrameType | None) -> None:
        self._stuck = True
        self._cluster.loop.stop()
        raise StuckError(f"{CPU_LIMIT_S:g} s of processor for one wait")


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def _signals_after() -> Iterator[None]:
    """What asks the run to stop is heard when the wait is over: a handler that raises would do so in whichever
    simulated process has its turn, which takes it for an error of its own."""
    handled = [it for it in STOPPING if callable(signal.getsignal(it))] if _in_main_thread() else []
    heard: list[int] = []
    before = {number: signal.signal(number, lambda received, _: heard.append(received)) for number in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for received in heard:
            signal.raise_signal(received)


class _Done:
    """A deed that is over; it may have failed."""

    def __init__(self, deed: Callable[[], None]) -> None:
        self._error: BaseException | None = None
        try:
            deed()
        except Exception as error:  # handed to whoever asks
            self._error = error

    def result(self) -> None:
        if self._error is not None:
            raise self._error

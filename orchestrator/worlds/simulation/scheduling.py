"""Virtual time for blocking code: a wait runs the simulation until that time."""

import contextlib
import signal
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from types import FrameType
from typing import Any, TypeVar

from nemeses.scheduling import Pending
from orchestrator.errors import STOPPING, WorldError
from simulator.cluster import SimulatedCluster
from simulator.host import CURRENT_HOST
from simulator.loop import DeadlockError, LivelockError

CPU_LIMIT_S = 120.0
"""CPU time for one wait, in seconds: a simulation that needs more makes no progress."""
CALLBACK_LIMIT_S = 5.0
"""CPU time for one callback: code that never returns to the loop may fill the memory before the wait is over."""

T = TypeVar("T")
R = TypeVar("R")


class StuckError(Exception):
    """Raised in the code that uses up the CPU time of a wait."""


class VirtualScheduler:
    """The time of one simulated cluster. There is one thread: parallel actions are executed one after the other.

    Every wait raises `WorldError` when the simulation makes no progress: nothing is scheduled that could cause the
    awaited condition, callbacks schedule each other endlessly, or a wait or a callback has used up its CPU time. If
    that is a broker's code, the oracles have it as a failure: a real process that never returns to its loop is dead to
    all others."""

    def __init__(self, cluster: SimulatedCluster, seed: int) -> None:
        self._cluster = cluster
        self._seed = seed
        self._stuck = ""
        """What used up its CPU time."""
        self._steps_at_tick = -1
        self._ticks_left = 0.0
        self._last_ns = -1

    def monotonic(self) -> float:
        return self._cluster.loop.time()

    def monotonic_ns(self) -> int:
        """Strictly increasing: on real machines, actions between two readings take time."""
        self._last_ns = max(round(self._cluster.loop.time() * 1e9), self._last_ns + 1)
        return self._last_ns

    def wall(self) -> float:
        return self._cluster.wall_ns() / 1e9

    def moment_of(self, real_ns: int) -> int:
        """The virtual time starts with the run."""
        del real_ns
        return 0

    def sleep(self, seconds: float) -> None:
        self.until(lambda: False, seconds)

    def until(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Run the simulation until a condition holds, for at most `seconds`; returns whether it holds."""
        with self._guarded():
            return self._cluster.loop.run_until(holds, seconds)

    def run(self, body: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine on the observer's host."""
        with self._guarded():
            return self._cluster.run(body)

    def for_each(self, items: Iterable[T], action: Callable[[T], R]) -> list[R]:
        results: list[R] = []
        first_error: BaseException | None = None
        for item in items:
            try:
                results.append(action(item))
            except Exception as error:  # as with threads, the other actions are executed nevertheless
                first_error = first_error or error
        if first_error is not None:
            raise first_error
        return results

    def begin(self, function: Callable[[], None]) -> Pending:
        return _Done(function)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            with _signals_after(), self._limited():
                yield
        except (DeadlockError, LivelockError, StuckError) as error:
            if isinstance(error, LivelockError) and error.host is not None:
                self._cluster.watch.never_returns(error.host, str(error))
            raise WorldError(f"seed {self._seed}: the simulated world stopped making progress: {error}") from error
        if self._stuck:
            raise WorldError(f"seed {self._seed}: the simulated world used {self._stuck}")

    @contextlib.contextmanager
    def _limited(self) -> Iterator[None]:
        """Signals reach the main thread only; other threads (tests, Spark) have no limit."""
        if not _in_main_thread():
            yield
            return
        handler_before = signal.signal(signal.SIGVTALRM, self._tick)
        tick_s = min(CALLBACK_LIMIT_S, CPU_LIMIT_S)
        self._steps_at_tick, self._ticks_left = -1, CPU_LIMIT_S / tick_s
        signal.setitimer(signal.ITIMER_VIRTUAL, tick_s, tick_s)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, handler_before)

    def _tick(self, _number: int, frame: FrameType | None) -> None:
        """Ends a wait whose time is used up, and each callback that was running at the tick before."""
        steps, steps_before = self._cluster.loop.steps, self._steps_at_tick
        self._steps_at_tick = steps
        self._ticks_left -= 1
        if steps == steps_before:
            self._stuck = f"{CALLBACK_LIMIT_S:g} s of CPU time for one callback"
            if (host := CURRENT_HOST.get()) is not None:
                self._cluster.watch.never_returns(host, f"{self._stuck}, in {_callers(frame)}")
        elif self._ticks_left <= 0:
            self._stuck = f"{CPU_LIMIT_S:g} s of CPU time for one wait"
        else:
            return
        self._cluster.loop.stop()
        raise StuckError(self._stuck)


def _callers(frame: FrameType | None) -> str:
    """The functions of the broker that are running, the outermost first."""
    names: list[str] = []
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith("broker."):
            names.insert(0, frame.f_code.co_qualname)
        frame = frame.f_back
    return " > ".join(names) or "another module"


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def _signals_after() -> Iterator[None]:
    """Handle interrupts after the wait: a handler that raises would raise inside whichever simulated process is
    running, which would treat it as its own error."""
    handled = [number for number in STOPPING if callable(signal.getsignal(number))] if _in_main_thread() else []
    heard: list[int] = []
    handlers = {number: signal.signal(number, lambda received, _: heard.append(received)) for number in handled}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for received in heard:
            signal.raise_signal(received)


class _Done:
    """A finished action, which may have failed."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._error: BaseException | None = None
        try:
            function()
        except Exception as error:  # raised by `result`
            self._error = error

    def result(self) -> None:
        if self._error is not None:
            raise self._error

"""Handles Ctrl-C, SIGTERM and SIGHUP: the first stops the run in order, the second aborts it.

The first raises `Interrupted` in the main thread. In a shielded part (healing, tearing down, closing files) it is
raised at the end of that part. A second one aborts at once. One request may arrive as two signals, when a process group
gets a signal and one process also forwards it: a signal within a second of the first is ignored.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType

from orchestrator.errors import EXIT_INTERRUPTED, STOPPING, Interrupted

_SAME_S = 1.0


class Interrupts:
    """Install it in the main thread, around all code that an interrupt may hit."""

    def __init__(self, on_first: Callable[[], None], on_second: Callable[[], None]) -> None:
        self._on_first = on_first
        self._on_second = on_second
        self._count = 0
        self._first: tuple[int, float] | None = None  # the signal and its time
        self._shields = 0

    @property
    def requested(self) -> bool:
        """Whether the user has asked to stop."""
        return self._count > 0

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        # Under `nohup`, SIGHUP stays ignored: the run outlives its terminal.
        outlives = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        heeded = [number for number in STOPPING if not (outlives and number == signal.SIGHUP)]
        handlers = {number: signal.signal(number, self._received) for number in heeded}
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def shielded(self) -> Iterator[None]:
        """Code in here is not interrupted; an interrupt meanwhile is raised at the end."""
        self._shields += 1
        count = self._count
        try:
            yield
        finally:
            self._shields -= 1
        if self._shields == 0 and count == 0 and self._count > 0:
            raise Interrupted

    def _received(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP and self._count > 0:
            return  # a closed terminal signals each process of the run, and some forward it: that is one request
        if self._first is not None and number != self._first[0] and time.monotonic() - self._first[1] < _SAME_S:
            return
        self._first = self._first or (number, time.monotonic())
        self._count += 1
        if self._count > 1:
            _notify(self._on_second)
            os._exit(EXIT_INTERRUPTED)
        _notify(self._on_first)
        if self._shields == 0:
            raise Interrupted


def _notify(callback: Callable[[], None]) -> None:
    """Call a callback that prints a notice. If the signal arrives during a write to the same stream, Python refuses the
    second write. The notice is then left out, since the run must stop all the same."""
    try:
        callback()
    except RuntimeError as error:
        if "reentrant call" not in str(error):
            raise

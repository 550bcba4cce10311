"""Ctrl-C, SIGTERM, and SIGHUP of a terminal that is closed: the first stops the run in order, the second at once.

The first raises `Interrupted` in the main thread, wherever it is, unless that is in a shielded part (healing, tearing
down, closing files), which is finished first. A second one does not wait for anything. One request may come as two
signals, when a group of processes is told to end and one of them passes that on: another signal within a second is no
second one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType

from orchestrator.errors import EXIT_INTERRUPTED, STOPPING, Interrupted

_SAME_S = 1.0


class Interrupts:
    """Install it in the main thread, around everything that an interrupt may meet."""

    def __init__(self, on_first: Callable[[], None], on_second: Callable[[], None]) -> None:
        self._on_first = on_first
        self._on_second = on_second
        self._count = 0
        self._first: tuple[int, float] | None = None  # which signal, and when
        self._shields = 0

    @property
    def requested(self) -> bool:
        """Whether the user has asked to stop."""
        return self._count > 0

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        # Under `nohup` a run outlives its terminal.
        outlives = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        heeded = [number for number in STOPPING if not (outlives and number == signal.SIGHUP)]
        before = {number: signal.signal(number, self._received) for number in heeded}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def shielded(self) -> Iterator[None]:
        """What runs in here is not interrupted; an interrupt that came meanwhile is raised at the end of it."""
        self._shields += 1
        seen = self._count
        try:
            yield
        finally:
            self._shields -= 1
        if self._shields == 0 and seen == 0 and self._count > 0:
            raise Interrupted

    def _received(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP and self._count > 0:
            return  # one closed terminal may tell each process of ours, and those pass it on: nobody asked twice
        if self._first is not None and number != self._first[0] and time.monotonic() - self._first[1] < _SAME_S:
            return
        self._first = self._first or (number, time.monotonic())
        self._count += 1
        if self._count > 1:
            self._on_second()
            os._exit(EXIT_INTERRUPTED)
        self._on_first()
        if self._shields == 0:
            raise Interrupted

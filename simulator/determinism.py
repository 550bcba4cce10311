"""Detects nondeterminism: anything that could differ between two runs of a seed raises an error when it is used.

A simulated process has its loop's time, the randomness that it is given, and one thread. While a guard is in force,
code of a host that reads the machine's clock, draws randomness or starts a thread gets a `NondeterminismError`.
The simulation's own code, the analysis and tests belong to no host and are unaffected. Not detected: a function that
was imported by its own name before (`from time import monotonic`), `random.Random()` without a seed, and the classes of
`datetime`, whose methods cannot be replaced. `simulator.set_order` checks the order of sets.
"""

import os
import random
import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from simulator.host import CURRENT_HOST

_CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
FORBIDDEN: tuple[tuple[Any, str], ...] = (
    *((time, f"{name}{unit}") for name in (*_CLOCKS, "clock_gettime") for unit in ("", "_ns")),
    (time, "sleep"),
    *((random, name) for name in random.__all__ if name.islower()),
    *((os, name) for name in ("urandom", "getrandom")),
    (threading.Thread, "start"),
)


class NondeterminismError(Exception):
    """A simulated process used something that no seed determines; the message names it and the process."""


class DeterminismGuard:
    """In force between `enter` and `leave`; both may be called twice. At most one is in force in a process."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []
        self.refused: list[str] = []
        """What was requested, including requests whose exception was caught."""

    def enter(self) -> None:
        if self._before:
            return
        for owner, name in FORBIDDEN:
            self._before.append((owner, name, getattr(owner, name)))
            setattr(owner, name, self._guarded(getattr(owner, name), f"{owner.__name__}.{name}"))

    def leave(self) -> None:
        while self._before:
            owner, name, function = self._before.pop()
            setattr(owner, name, function)

    def __enter__(self) -> "DeterminismGuard":
        self.enter()
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def _guarded(self, function: Callable[..., Any], title: str) -> Callable[..., Any]:
        @wraps(function)
        def refuse(*arguments: Any, **keywords: Any) -> Any:
            host = CURRENT_HOST.get()
            if host is not None:
                self.refused.append(f"{host.name} asked for {title}: what it does then is decided by no seed")
                raise NondeterminismError(self.refused[-1])
            return function(*arguments, **keywords)

        return refuse

"""Hosts own the running code: every callback of the simulated loop belongs to a host or to the simulation itself.

A host is one life of one process. It is in a context variable, so everything that a process starts - tasks, timers,
callbacks of futures - belongs to it too, and a dead host's callbacks never run.
"""

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any, Protocol

from simulator.clock import MachineClock

PRUNE_AT = 64  # tasks


class Handle(Protocol):
    """A callback that is due."""

    def cancelled(self) -> bool: ...


class HostContext:
    """One life of a process at an address. Invariant: once `alive` is false none of its code runs again.

    All of its pending tasks are kept until they are done. If one were collected as garbage, its `finally` blocks would
    run at a time of Python's choice; but a killed process must not act, not even to clean up. Failed tasks are kept
    until their exception is retrieved.
    """

    def __init__(self, name: str, address: str, clock: MachineClock | None = None) -> None:
        """`clock`: of its machine; None: the world's own time."""
        self.name = name
        self.address = address
        self.clock = clock
        self.alive = True
        self.backlog: list[Handle] | None = None
        """The callbacks that have become due while the process is suspended (SIGSTOP). None: it runs."""
        self.context = contextvars.Context()
        self.context.run(CURRENT_HOST.set, self)
        self._tasks: list[asyncio.Task[Any]] = []
        self._prune_at = PRUNE_AT

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Hold a new task of this host until it is done and its exception is retrieved."""
        self._tasks.append(task)
        if len(self._tasks) > self._prune_at:
            self._tasks = [task for task in self._tasks if not task.done() or _is_lost(task)]
            self._prune_at = max(PRUNE_AT, 2 * len(self._tasks))

    def lost(self) -> list[asyncio.Task[Any]]:
        """The failed tasks whose exception was not retrieved, in the order of their creation."""
        return [task for task in self._tasks if _is_lost(task)]

    def kill(self) -> None:
        """Stop at once: pending callbacks do not run."""
        self.alive = False

    def stand_still(self) -> None:
        """SIGSTOP: nothing of it runs; its timers go on, and its kernel takes in what arrives."""
        if self.backlog is None:
            self.backlog = []

    def go_on(self) -> list[Handle]:
        """SIGCONT: what has become due meanwhile, in order, to be run now."""
        due, self.backlog = self.backlog or [], None
        return due

    def bury(self, close: Callable[[asyncio.Task[Any]], None]) -> None:
        """After the simulation: release the tasks, each closed by `close`."""
        self.alive = False
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                self.context.copy().run(close, task)


def _is_lost(task: asyncio.Task[Any]) -> bool:
    return task.done() and bool(task._log_traceback)


CURRENT_HOST: contextvars.ContextVar[HostContext | None] = contextvars.ContextVar("host", default=None)

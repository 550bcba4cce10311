"""Crash points: a process ends at one of its operations on a disk or on the object store, or the operation fails.

Theory of operation. Every operation that changes a disk or the store is marked with `operation`: the cluster's
`CrashPoints` learn of it before it and after it. A machine may have one crash point: it counts the operations of the
machine's processes on some files, and at one of them the process ends, before the operation or after it. It does
nothing any more, not even to clean up: each of its later operations is cancelled. The kill or the power loss of the
machine follows at the same moment of virtual time. The seed determines everything else, so a run is the same until
its crash as the run without it.

Instead of a crash the operation may fail, once, with EIO and without effect. Then reads count, too, and operations of
the object store do not, which has failures of its own.
"""

import asyncio
import contextvars
import errno
import inspect
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Final, TypeVar, cast

from broker.ports import ASIDE
from simulator.host import CURRENT_HOST, HostContext
from simulator.loop import VirtualLoop

Run = TypeVar("Run", bound=Callable[..., Any])
Window = Callable[[str, str], bool]
"""Whether an operation with this name, on this path or object, counts."""

_READS: Final = ("read",)
_STORE: Final = ("put", "delete")
_REMOTE: Final = ("__remote_log_metadata", "remote-log-", "_remote-log-")


def _files(*names: str) -> Window:
    """The operations on files with one of these texts in their name, and on the temporary files that replace them."""
    return lambda _, path: any(name in path.rpartition("/")[2] for name in names)


WINDOWS: Final[Mapping[str, Window]] = {
    "any": lambda *_: True,
    "segments": lambda _, path: path.endswith((".log", ".index", ".timeindex")) and "__cluster_metadata" not in path,
    "truncations": lambda operation, path: operation == "truncate" and not path.endswith(ASIDE),
    "removals": lambda operation, _: operation in ("unlink", "remove_directory"),
    "recovery-points": _files("recovery-point-offset-checkpoint"),
    "high-watermarks": _files("replication-offset-checkpoint", "high-watermark-checkpoint"),
    "log-starts": _files("log-start-offset-checkpoint", "remote-log-start"),
    "epochs": _files("leader-epoch-checkpoint"),
    "producers": lambda _, path: path.removesuffix(ASIDE).endswith(".snapshot") and "remote-log-" not in path,
    "quorum-state": _files("quorum-state"),
    "snapshots": lambda _, path: path.removesuffix(ASIDE).endswith(".checkpoint"),
    "metadata": lambda _, path: "__cluster_metadata" in path,
    "compaction": _files(".cleaned", ".swap", "cleaner-offset-checkpoint"),
    "remote": lambda operation, path: operation in _STORE or any(name in path for name in _REMOTE),
}
"""By name: the operations among which a crash point counts."""


ERROR: Final = "error"
CRASHES: Final = ("kill-before", "kill-after", "power-loss-before", "power-loss-after", ERROR)
"""How a process ends at an operation; `ERROR`: the operation fails."""


@dataclass(eq=False)
class CrashPoint:
    """The operation at which a process ends."""

    number: int
    """Its number, from 1, among those that `counts` selects."""
    crash: str
    """How it ends: one of `CRASHES`."""
    counts: Window
    """Selects the operations that count."""
    operations: list[str] = field(default_factory=list)
    """Those that have come so far, in order."""
    struck: str = ""
    """The machine that has crashed, or got the error, at the last one; empty: none has."""

    @property
    def loses_power(self) -> bool:
        return self.crash.startswith("power-loss")


class CrashPoints:
    """The crash points of a cluster's machines. `end` kills a process, or cuts the power of its machine."""

    def __init__(self, loop: VirtualLoop, end: Callable[[HostContext, CrashPoint], None]) -> None:
        self._loop = loop
        self._end = end
        self._context = contextvars.Context()
        self._armed: dict[str, CrashPoint] = {}

    def arm(self, point: CrashPoint, *names: str) -> None:
        """Count the operations of the processes on these machines from now on."""
        self._armed.update(dict.fromkeys(names, point))

    def disarm(self, name: str) -> CrashPoint | None:
        """Stop counting on a machine. Returns its crash point; None without one, or if it has struck."""
        return self._armed.pop(name, None)

    def entered(self, name: str, subject: str) -> CrashPoint | None:
        """A process is about to do an operation. Returns the crash point that strikes after it, if any. Raises
        `CancelledError` if the process ends before it, or has ended, and `OSError` if the operation fails."""
        host = CURRENT_HOST.get()
        if host is None:
            return None
        if not host.alive:
            raise asyncio.CancelledError  # its code unwinds without effect
        point = self._armed.get(host.name)
        if point is None or not point.counts(name, subject) or name in (_STORE if point.crash == ERROR else _READS):
            return None
        point.operations.append(f"{host.name} {name} {subject}")
        if len(point.operations) != point.number:
            return None
        if point.crash == ERROR:
            self._disarm(point, host)
            raise OSError(errno.EIO, os.strerror(errno.EIO), subject)
        if point.crash.endswith("before"):
            self.strike(point)
        return point

    def strike(self, point: CrashPoint) -> None:
        """End the current process, unless it has ended meanwhile. Raises `CancelledError`."""
        host = CURRENT_HOST.get()
        assert host is not None
        if host.alive:
            self._disarm(point, host)
            self._loop.tell_lost(host)
            host.kill()
            self._loop.call_soon(self._end, host, point, context=self._context)
        raise asyncio.CancelledError

    def _disarm(self, point: CrashPoint, host: HostContext) -> None:
        """The crash point has come at an operation of this process, and does not come again."""
        self._armed = {name: armed for name, armed in self._armed.items() if armed is not point}
        point.struck = host.name


def operation(run: Run) -> Run:
    """Mark a method as an operation at which a process may crash. Its object has `crash_points`, and a `path` if the
    method's first argument is another."""
    name = run.__name__

    def enter(actor: Any, arguments: tuple[Any, ...]) -> CrashPoint | None:
        points: CrashPoints | None = actor.crash_points
        return None if points is None else points.entered(name, getattr(actor, "path", "") or arguments[0])

    @wraps(run)
    def at_once(actor: Any, *arguments: Any, **options: Any) -> Any:
        point = enter(actor, arguments)
        result = run(actor, *arguments, **options)
        if point is not None:
            actor.crash_points.strike(point)
        return result

    @wraps(run)
    async def awaited(actor: Any, *arguments: Any, **options: Any) -> Any:
        point = enter(actor, arguments)
        result = await cast(Awaitable[Any], run(actor, *arguments, **options))
        if point is not None:
            actor.crash_points.strike(point)
        return result

    return cast(Run, awaited if inspect.iscoroutinefunction(run) else at_once)


def process_has_ended() -> bool:
    """Whether the code that runs belongs to a process that has crashed and only unwinds."""
    host = CURRENT_HOST.get()
    return host is not None and not host.alive

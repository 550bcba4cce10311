"""Crashes at every I/O operation of a scenario: each run ends one process at one operation.

Theory of operation. `Io` observes the operations of all simulated processes: appends, truncations and syncs of files,
renames and removals, puts and deletions of objects, and events that are appended to `__remote_log_metadata`. While it
is armed it counts the operations that belong to remote storage. At the chosen one it ends the process, before the
operation or after it: the process does nothing any more, not even to clean up. The seed determines everything else, so
a run does the same until its crash as the run without a crash.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import wraps
from typing import Any

import pytest

from broker.tiered.metadata_log import MetadataLog
from broker.tiered.remote_storage_rules import METADATA_TOPIC
from simulator.cluster import SimulatedCluster
from simulator.disk import SimulatedDisk, SimulatedFile
from simulator.host import CURRENT_HOST, HostContext
from simulator.object_store import SimulatedObjectStore


class Crash(Enum):
    """How a process ends at an operation."""

    KILL_BEFORE = "kill before"
    KILL_AFTER = "kill after"
    POWER_LOSS_AFTER = "power loss after"

    @property
    def after(self) -> bool:
        return self is not Crash.KILL_BEFORE


@dataclass(frozen=True)
class CrashPoint:
    """The operation with this number, from 0."""

    number: int
    crash: Crash


class Io:
    """The operations of one run. `seen`: those while it was armed, in order; `struck`: the machine that crashed."""

    def __init__(self, cluster: SimulatedCluster, topic: str, point: CrashPoint | None) -> None:
        self._cluster = cluster
        self._files = (f"{topic}-", METADATA_TOPIC, "remote-log-metadata-", "log-start")
        self._point = point
        self._context = contextvars.Context()
        self.armed = False
        self.seen: list[str] = []
        self.struck: str | None = None

    def before(self, operation: str, subject: str) -> bool:
        """Count an operation; returns whether a crash follows it."""
        host = CURRENT_HOST.get()
        if host is None or host is self._cluster.client:
            return False
        if not host.alive:
            raise asyncio.CancelledError  # the process has ended: its code unwinds without effect
        if not self.armed or not self._is_counted(operation, subject):
            return False
        number = len(self.seen)
        self.seen.append(f"{host.name} {operation} {subject}")
        if self._point is None or self._point.number != number:
            return False
        if not self._point.crash.after:
            self.strike(host)
        return self._point.crash.after

    def strike(self, host: HostContext | None = None) -> None:
        """End the current process."""
        host = host or CURRENT_HOST.get()
        assert host is not None
        assert self._point is not None
        self.struck = next(name for name, machine in self._cluster.machines.items() if machine.host is host)
        power_loss = self._point.crash is Crash.POWER_LOSS_AFTER
        end = self._cluster.power_loss if power_loss else self._cluster.kill
        host.kill()
        self._cluster.loop.call_soon(end, self.struck, context=self._context)
        raise asyncio.CancelledError

    def _is_counted(self, operation: str, subject: str) -> bool:
        return operation in ("put", "delete") or subject.startswith(self._files)


@contextmanager
def observed(cluster: SimulatedCluster, topic: str, point: CrashPoint | None) -> Iterator[Io]:
    """Observe the operations of a cluster's processes."""
    io = Io(cluster, topic, point)
    with pytest.MonkeyPatch.context() as patch:
        for kind, name, subject in (
            (SimulatedFile, "append", _path_of_file),
            (SimulatedFile, "truncate", _path_of_file),
            (SimulatedDisk, "rename", _second),
            (SimulatedDisk, "unlink", _second),
            (SimulatedDisk, "make_directory", _second),
            (SimulatedDisk, "remove_directory", _second),
        ):
            patch.setattr(kind, name, _observing(io, name, getattr(kind, name), subject))
        for actor, name, subject in (
            (SimulatedFile, "sync", _path_of_file),
            (SimulatedDisk, "sync_directory", _second),
            (SimulatedObjectStore, "put", _second),
            (SimulatedObjectStore, "delete", _second),
        ):
            patch.setattr(actor, name, _observing_async(io, name, getattr(actor, name), subject))
        patch.setattr(MetadataLog, "append", _observing_async(io, "publish", MetadataLog.append, _metadata_topic))
        yield io


def _observing(io: Io, name: str, operation: Callable[..., Any], subject: Callable[..., str]) -> Callable[..., Any]:
    @wraps(operation)
    def run(*arguments: Any, **options: Any) -> Any:
        crashes = io.before(name, subject(*arguments))
        result = operation(*arguments, **options)
        if crashes:
            io.strike()
        return result

    return run


def _observing_async(
    io: Io, name: str, operation: Callable[..., Awaitable[Any]], subject: Callable[..., str]
) -> Callable[..., Awaitable[Any]]:
    @wraps(operation)
    async def run(*arguments: Any, **options: Any) -> Any:
        crashes = io.before(name, subject(*arguments))
        result = await operation(*arguments, **options)
        if crashes:
            io.strike()
        return result

    return run


def _path_of_file(file: SimulatedFile, *_: object) -> str:
    return file.path


def _second(_: object, subject: str, *__: object) -> str:
    return subject


def _metadata_topic(*_: object) -> str:
    return METADATA_TOPIC

"""Builders for the tests of the log: batches, logs, and a way to run a test in an event loop."""

import asyncio
import functools
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import pytest

from broker.disk import RealDisk
from broker.log.log import PartitionLog
from broker.log.log_config import LogConfig
from broker.protocol.records import Record, build_batch, iter_batches, read_records, validate_batches
from simulator.host import HostContext
from simulator.loop import VirtualLoop

P = ParamSpec("P")
T = TypeVar("T")
SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=200)
DIRECTORY = "log-0"


def in_loop(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run an async test in an event loop of its own."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def body() -> None:
            await test(*args, **kwargs)

        asyncio.run(body())

    return run


def life_of(loop: VirtualLoop, life: Coroutine[Any, Any, T]) -> tuple[T, HostContext]:
    """The result of a process, which is killed then. While the process is referenced, none of its unfinished tasks runs
    again, and none is garbage, whose `finally` blocks would run at a time of Python's choice."""
    host = HostContext("n1", "n1")
    result = loop.run_until_complete(loop.create_task(life, context=host.context.copy()))
    host.kill()
    return result, host


def batch(*values: str, base: int = 0, epoch: int = -1, timestamp: int = 0) -> bytearray:
    """A batch of one record per value."""
    records = [Record(0, timestamp, None, value.encode()) for value in values]
    return bytearray(build_batch(records, base, epoch))


async def open_log(
    disk: RealDisk,
    config: LogConfig = SMALL,
    *,
    clean: bool = False,
    recovery_point: int = 0,
    directory: str = DIRECTORY,
) -> PartitionLog:
    return await PartitionLog.open(disk, directory, config, clean_shutdown=clean, recovery_point=recovery_point)


async def write(log: PartitionLog, epoch: int, *values: str) -> None:
    """Lead `epoch` and append each value as a batch of its own."""
    if log.epochs.latest_epoch != epoch:
        await log.start_leader_epoch(epoch)
    for value in values:
        log.append_as_leader(batch(value), epoch)


def values(log: PartitionLog) -> list[str]:
    """Every record of the log, checked: CRCs and offsets."""
    data = log.read(log.log_start_offset, 1 << 30, log.log_end_offset)
    validate_batches(data)
    records = [record for position, _ in iter_batches(data) for record in read_records(data, position)]
    assert [record.offset for record in records] == list(range(log.log_start_offset, log.log_end_offset))
    return [(record.value or b"").decode() for record in records]


def only_file(root: Path, suffix: str, directory: str = DIRECTORY) -> Path:
    """The one file with this suffix."""
    (found,) = sorted((root / directory).glob(f"*{suffix}"))
    return found


class HeldCommit:
    """Stops the group commit in its first fsync of a file with this suffix, until the test sets `go`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, suffix: str = "") -> None:
        self._suffix = suffix
        self.entered, self.go = threading.Event(), threading.Event()
        self.calls: list[int] = []
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, functools.partial(self._held, getattr(os, name)))

    def _held(self, sync: Callable[[int], None], fd: int) -> None:
        self.calls.append(fd)
        if os.readlink(f"/proc/self/fd/{fd}").endswith(self._suffix):
            self.entered.set()
            assert self.go.wait(60)
        sync(fd)

"""Cancelled writes of offsets: a truncation lowers the file, for any progress of the disk's thread."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.disk import RealDisk
from broker.log.checkpoint import OffsetCheckpoint
from broker.log.recovery_points import RECOVERY_POINTS_FILE, RecoveryPoints
from broker.replica import compactor
from broker.replica.compactor import Compactor
from broker.replica.offset_checkpoints import HIGH_WATERMARKS_FILE, LOG_STARTS_FILE, HighWatermarks, LogStarts
from broker.replica.partition_work import PartitionWork
from broker.trace import Tracer
from tests.stories import run_by

KEY = ("log", 0)


class Replica:
    """A partition with a log, as far as its offsets are concerned."""

    key = KEY
    compaction = None
    high_watermark = 1 << 30

    def __init__(self, log: SimpleNamespace) -> None:
        self.log = log


class Written:
    """One of the files, with a log that stands at `offset`: its `path`, and what raises and lowers it."""

    def __init__(
        self,
        path: str,
        log: SimpleNamespace,
        write: Callable[[], Coroutine[Any, Any, None]],
        lower: Callable[[int], Coroutine[Any, Any, None]],
    ) -> None:
        self.path = path
        self._log = log
        self._write = write
        self._lower = lower

    def stand_at(self, offset: int) -> None:
        for name in ("offset", "recovery_point", "kept_end", "cleaned_to"):
            setattr(self._log, name, offset)

    def raise_to(self, offset: int) -> Coroutine[Any, Any, None]:
        self.stand_at(offset)
        return self._write()

    def lower_to(self, offset: int) -> Coroutine[Any, Any, None]:
        self.stand_at(offset)
        return self._lower(offset)


def recovery_points(disk: RealDisk) -> Written:
    log: Any = SimpleNamespace()
    points = RecoveryPoints(disk)
    points.watch(KEY, log)
    return Written(RECOVERY_POINTS_FILE, log, points.write_durably, lambda offset: points.lower(KEY, offset))


def starts(disk: RealDisk) -> Written:
    log, starts = SimpleNamespace(), LogStarts(disk)
    return Written(
        LOG_STARTS_FILE, log, lambda: starts.write(KEY, log.offset), lambda offset: starts.lower(KEY, offset)
    )


def high_water(disk: RealDisk) -> Written:
    log = SimpleNamespace()
    replica: Any = Replica(log)
    marks = HighWatermarks(disk, lambda: [replica], Tracer(1, lambda: 0, lambda _: None))
    return Written(HIGH_WATERMARKS_FILE, log, marks.write_durably, lambda offset: marks.lower(KEY, offset))


def cleaned(disk: RealDisk) -> Written:
    log = SimpleNamespace()
    replica: Any = Replica(log)
    cleaner = Compactor(disk=disk, work=PartitionWork(), partitions=lambda: [replica], now_ms=lambda: 0)
    return Written(compactor.CHECKPOINT_FILE, log, cleaner.compact, lambda offset: cleaner.lower(KEY, offset))


class HeldRename:
    """Stops the disk's thread before it gives a file its name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered, self.go, self._replace = threading.Event(), threading.Event(), os.replace
        monkeypatch.setattr(os, "replace", self._held)

    def _held(self, source: str, target: str) -> None:
        self.entered.set()
        assert self.go.wait(180)
        self._replace(source, target)


async def give_up(work: Coroutine[Any, Any, None], begun: Callable[[], Awaitable[object]]) -> None:
    task = asyncio.create_task(work)
    await begun()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()


@pytest.mark.parametrize("of", [recovery_points, starts, high_water, cleaned])
@run_by(asyncio.run)
async def test_a_truncation_covers_a_write_cancelled_in_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: Callable[[RealDisk], Written]
) -> None:
    disk = RealDisk(str(tmp_path))
    written = of(disk)
    await written.raise_to(3)
    held = HeldRename(monkeypatch)
    await give_up(written.raise_to(10), lambda: asyncio.to_thread(held.entered.wait, 20))
    held.go.set()
    await written.lower_to(4)
    assert OffsetCheckpoint(disk, written.path).read() == {KEY: 4}
    disk.close()


@pytest.mark.parametrize("of", [recovery_points, starts, high_water, cleaned])
@run_by(asyncio.run)
async def test_the_next_truncation_records_a_cancelled_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: Callable[[RealDisk], Written]
) -> None:
    disk = RealDisk(str(tmp_path))
    written = of(disk)
    await written.raise_to(10)
    held = HeldRename(monkeypatch)
    other = asyncio.create_task(disk.replace_file("other", b""))
    await asyncio.to_thread(held.entered.wait, 20)
    await give_up(written.lower_to(4), lambda: asyncio.sleep(0))
    held.go.set()
    await other
    assert OffsetCheckpoint(disk, written.path).read() == {KEY: 10}
    await written.lower_to(4)
    assert OffsetCheckpoint(disk, written.path).read() == {KEY: 4}
    disk.close()

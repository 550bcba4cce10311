"""No file can be opened for a while: a log waits, and then completes the request as usual."""

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from broker import descriptors
from broker.disk import RealDisk
from broker.log.log import PartitionLog
from broker.ports import File
from broker.protocol.records import Record, build_batch
from tests.broker.log.making import DIRECTORY, SMALL, in_loop, open_log, values

STORIES = in_loop
PRODUCER = 7


class ScarceDisk(RealDisk):
    """Where it `refuses`, each file is opened, and each directory listed, only when that is tried again."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.refuses = False
        self.refused: set[str] = set()
        self.has_refused = asyncio.Event()

    def open(self, path: str, *, create: bool = False) -> File:
        self._refuse(path)
        return super().open(path, create=create)

    def list(self, directory: str) -> list[str]:
        self._refuse(directory)
        return super().list(directory)

    def _refuse(self, path: str) -> None:
        if self.refuses and path not in self.refused:
            self.refused.add(path)
            self.has_refused.set()
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "PAUSE_S", 0.0)


async def grown(root: Path) -> tuple[ScarceDisk, PartitionLog]:
    """Ten batches of one producer in several segments, without a known durable part."""
    disk = ScarceDisk(root)
    log = await open_log(disk, SMALL)
    await log.start_leader_epoch(0)
    for number in range(10):
        record = Record(0, 0, None, f"{number:0300d}".encode())
        log.append_as_leader(bytearray(build_batch([record], producer_id=PRODUCER, base_sequence=number)), 0)
    assert len(log.segments) > 2
    return disk, log


def state(log: PartitionLog) -> tuple[object, ...]:
    known = {producer_id: (it.epoch, list(it.batches)) for producer_id, it in log.producers}
    return log.log_start_offset, log.log_end_offset, log.durable_end_offset, log.epochs.entries, values(log), known


Action = Callable[[PartitionLog], Awaitable[object]]
ACTIONS: dict[str, Action] = {
    "flushed": lambda log: log.flush(),
    "cut": lambda log: log.truncate_to(8),
    "cut whole": lambda log: log.truncate_fully_and_start_at(4),
    "its start moved": lambda log: log.advance_start(7),
    "read again": lambda log: log.rebuild(1, lambda: True),
}


@pytest.mark.parametrize("action", list(ACTIONS))
async def test_a_log_waits_for_descriptors(tmp_path: Path, action: str) -> None:
    _, other = await grown(tmp_path / "other")
    await ACTIONS[action](other)
    disk, log = await grown(tmp_path / "scarce")
    disk.refuses = True
    await ACTIONS[action](log)
    assert disk.refused
    assert state(log) == state(other)
    if action != "flushed":
        assert log.recovery_point == log.log_end_offset


async def test_a_log_that_is_closed_without_descriptors_is_closed_cleanly(tmp_path: Path) -> None:
    disk, log = await grown(tmp_path)
    before = state(log)[-2:]
    disk.refuses = True
    await log.close()
    assert any(path.endswith(".snapshot") for path in disk.refused)
    again = await open_log(RealDisk(str(tmp_path)), clean=True)
    assert not again.recovered.scanned
    assert state(again)[-2:] == before


async def test_a_log_deleted_without_descriptors_leaves_no_file(tmp_path: Path) -> None:
    disk, log = await grown(tmp_path)
    disk.refuses = True
    await log.delete()
    assert disk.refused
    assert not (tmp_path / DIRECTORY).exists()


async def test_a_cancelled_rebuild_leaves_the_log_unchanged(tmp_path: Path) -> None:
    disk, log = await grown(tmp_path)
    before = state(log)
    wanted = True
    disk.refuses = True
    reading = asyncio.create_task(log.rebuild(1, lambda: wanted))
    await disk.has_refused.wait()
    wanted = False
    assert not await reading
    assert state(log) == before

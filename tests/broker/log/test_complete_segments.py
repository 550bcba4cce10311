"""Complete segments are flushed without a request, and a start reads only the records after them."""

import asyncio
import errno
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.disk import RealDisk
from broker.log.log import PartitionLog
from broker.log.recovery import DamagedLogError
from broker.log.segment import Segment
from broker.protocol.records import BatchHeader
from simulator.disk import FileSystem, SimulatedDisk
from simulator.loop import new_loop
from tests.broker.log.making import DIRECTORY, SMALL, HeldCommit, in_loop, open_log, values, write

STORIES = in_loop
RECORDS = [f"value {number}" for number in range(60)]


@pytest.mark.conforms("LOG-2")
async def test_a_flush_of_complete_segments_excludes_the_active_one(tmp_path: Path) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    rolled: list[int] = []
    log.after_roll = lambda: rolled.append(log.complete_end)
    await write(log, 1, *RECORDS)
    assert rolled == [segment.base_offset for segment in log.segments[1:]]
    assert log.recovery_point == 0
    assert await log.flush(complete_only=True) == rolled[-1]
    assert log.recovery_point == rolled[-1] < log.log_end_offset
    assert await log.flush() == len(RECORDS)


@pytest.mark.conforms("LOG-2")
@pytest.mark.parametrize("file_system", list(FileSystem))
def test_a_power_cut_keeps_segments_below_the_recovery_point_and_their_indexes(
    file_system: FileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = new_loop()
    disk = SimulatedDisk(loop, random.Random(0), file_system=file_system)

    async def life() -> int:
        log = await PartitionLog.open(disk, DIRECTORY, SMALL, clean_shutdown=False)
        await write(log, 1, *RECORDS)
        return await log.flush(complete_only=True)

    point = loop.run_until_complete(life())
    disk.power_loss(random.Random(0), commit=False)
    read: list[str] = []

    def nothing(segment: Segment, *, compacted: bool = False) -> Iterator[tuple[int, BatchHeader]]:  # noqa: ARG001
        read.append(segment.path)
        return iter(())

    monkeypatch.setattr(Segment, "intact_batches", nothing)

    async def after() -> None:
        log = await PartitionLog.open(disk, DIRECTORY, SMALL, clean_shutdown=False, recovery_point=point)
        assert log.log_end_offset == point
        assert values(log) == RECORDS[:point]
        assert read == [f"{DIRECTORY}/{point:020d}.log"], "no complete segment is read"

    loop.run_until_complete(after())


@pytest.mark.conforms("LOG-2")
@pytest.mark.parametrize("complete_only", [True, False])
def test_a_segment_that_grows_again_during_a_flush_is_flushed_again(complete_only: bool) -> None:
    """A truncation makes a complete segment active again after the flush has started."""
    loop = new_loop()
    disk = SimulatedDisk(loop, random.Random(0), file_system=FileSystem.STRICT)

    async def life() -> int:
        log = await PartitionLog.open(disk, DIRECTORY, SMALL, clean_shutdown=False)
        await write(log, 1, *RECORDS[:30])
        flushing = loop.create_task(log.flush(complete_only=True) if complete_only else log.flush())
        await asyncio.sleep(0)
        last = log.segments[-2]
        await log.truncate_to(last.base_offset + 1)
        await flushing
        await write(log, 1, "after")
        assert log.segments[-1].base_offset == last.base_offset
        return await log.flush()

    end = loop.run_until_complete(life())
    disk.power_loss(random.Random(0), commit=False)

    async def after() -> None:
        log = await PartitionLog.open(disk, DIRECTORY, SMALL, clean_shutdown=False, recovery_point=end)
        assert log.log_end_offset == end

    loop.run_until_complete(after())


async def flush_under_way(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> tuple[asyncio.Task[int], HeldCommit]:
    """A flush of the complete segments that waits for a sync."""
    held = HeldCommit(monkeypatch, f"{DIRECTORY}/{0:020d}.log")
    flushing = asyncio.get_running_loop().create_task(log.flush(complete_only=True))
    await asyncio.to_thread(held.entered.wait, 60)
    return flushing, held


@pytest.mark.conforms("LOG-2")
async def test_no_sync_of_another_log_waits_for_a_complete_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.disk.SYNCED_AT_ONCE", 1)  # complete segments may keep all of these threads busy
    disk = RealDisk(str(tmp_path))
    log, other = await open_log(disk), await open_log(disk, directory="other-0")
    await write(log, 1, *RECORDS)
    await write(other, 1, "urgent")
    flushing, held = await flush_under_way(log, monkeypatch)
    urgent = asyncio.get_running_loop().create_task(other.flush())
    done, _ = await asyncio.wait([urgent], timeout=10)
    await write(log, 1, "the log goes on")
    assert log.recovery_point == 0
    held.go.set()
    assert done == {urgent}
    assert urgent.result() == 1
    assert await flushing == log.complete_end
    disk.close()


@pytest.mark.conforms("LOG-2")
async def test_a_log_that_is_closed_during_a_flush_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files stay open until the running sync has ended, also when no caller waits for it."""
    disk = RealDisk(str(tmp_path))
    log = await open_log(disk)
    await write(log, 1, *RECORDS)
    flushing, held = await flush_under_way(log, monkeypatch)
    flushing.cancel()
    closing = asyncio.get_running_loop().create_task(log.close())
    await asyncio.sleep(0.05)
    assert not closing.done()
    held.go.set()
    await closing
    disk.close()
    again = await open_log(RealDisk(str(tmp_path)), clean=True)
    assert values(again) == RECORDS


@pytest.mark.conforms("LOG-2")
async def test_a_sync_that_failed_in_the_background_fails_the_next_one_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel reports the error once; the syncs of one file take turns so that no later sync succeeds."""
    disk = RealDisk(str(tmp_path))
    file = disk.open("file", create=True)
    file.append([b"bytes"])
    entered, go, calls = threading.Event(), threading.Event(), list[int]()

    def fails_once(fd: int) -> None:
        calls.append(fd)
        if len(calls) == 1:
            entered.set()
            assert go.wait(60)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fails_once)
    monkeypatch.setattr(os, "fdatasync", fails_once)
    loop = asyncio.get_running_loop()
    first = loop.create_task(file.sync(in_background=True))
    await asyncio.to_thread(entered.wait, 60)
    second = loop.create_task(file.sync())
    await asyncio.sleep(0.05)
    assert not second.done()
    go.set()
    for sync in (first, second):
        with pytest.raises(OSError, match=r"sync failed|given up"):
            await sync
    assert len(calls) == 1
    disk.close()


@pytest.mark.conforms("LOG-2")
async def test_a_flush_of_a_deleted_log_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = RealDisk(str(tmp_path))
    log = await open_log(disk)
    await write(log, 1, *RECORDS)
    flushing, held = await flush_under_way(log, monkeypatch)
    deleting = asyncio.get_running_loop().create_task(log.delete())
    held.go.set()
    await flushing
    await deleting
    disk.close()
    assert not (tmp_path / DIRECTORY).exists()


@pytest.mark.conforms("LOG-3")
async def test_damage_in_front_of_the_recovery_point_costs_no_other_record(tmp_path: Path) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    await write(log, 1, *RECORDS)
    point = await log.flush(complete_only=True)
    first = tmp_path / DIRECTORY / f"{0:020d}.log"
    second = log.segments[1].base_offset
    data = bytearray(first.read_bytes())
    data[70] ^= 1
    first.write_bytes(data)
    disk = RealDisk(str(tmp_path))
    again = await PartitionLog.open(disk, DIRECTORY, SMALL, clean_shutdown=False, recovery_point=point)
    assert again.log_end_offset == len(RECORDS)
    found = again.read(second, 1 << 20, again.log_end_offset)
    assert found.endswith(RECORDS[-1].encode() + b"\0")
    with pytest.raises(OSError, match="not what was written"):
        again.read(0, 100, again.log_end_offset)
    with pytest.raises(DamagedLogError):
        await PartitionLog.open(disk, DIRECTORY, SMALL, clean_shutdown=False, recovery_point=point)
    assert first.read_bytes() == data

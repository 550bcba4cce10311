"""`file.delete.delay.ms`: files of removed segments are renamed, do not belong to the log, and are unlinked later."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from broker.disk import RealDisk
from broker.log.log import PartitionLog
from broker.log.log_config import LogConfig
from broker.log.segment import Segment
from simulator.disk import FileSystem, SimulatedDisk
from simulator.loop import new_loop
from tests.broker.log.making import DIRECTORY, batch, in_loop, open_log, values

pytestmark = pytest.mark.conforms("LOG-7")
CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=100, file_delete_delay_ms=60_000)
RECORDS = [f"value {number}" for number in range(40)]


async def written(disk: RealDisk | SimulatedDisk, config: LogConfig = CONFIG) -> PartitionLog:
    log = await PartitionLog.open(disk, DIRECTORY, config, clean_shutdown=False)
    log.deleted.added = lambda: None
    await log.start_leader_epoch(1)
    for value in RECORDS:
        log.append_as_leader(batch(value), 1)
    await log.flush()
    return log


def files(disk: RealDisk | SimulatedDisk, suffix: str = ".log.deleted") -> list[int]:
    return [int(name.partition(".")[0]) for name in disk.list(DIRECTORY) if name.endswith(suffix)]


async def compact(log: PartitionLog, disk: RealDisk) -> None:
    """Replace the first two segments by a copy of both."""
    old = log.segments[:2]
    cleaned = Segment(disk, DIRECTORY, 0, 100, suffix=".cleaned")
    for segment in old:
        for position, header in segment.intact_batches():
            cleaned.file.append([segment.file.read(position, header.size)])
            cleaned.next_offset, cleaned.size = header.next_offset, cleaned.size + header.size
    cleaned.finish()
    assert await log.replace_segments(old, cleaned, log.truncations)


async def retain(log: PartitionLog, disk: RealDisk) -> None:  # noqa: ARG001
    await log.delete_segments_before(log.segments[2].base_offset)


async def truncate(log: PartitionLog, disk: RealDisk) -> None:  # noqa: ARG001
    await log.truncate_to(log.segments[1].base_offset)


@pytest.mark.parametrize("remove", [retain, truncate, compact])
@in_loop
async def test_files_of_removed_segments_remain_under_another_name(
    tmp_path: Path, remove: Callable[[PartitionLog, RealDisk], Awaitable[None]]
) -> None:
    disk = RealDisk(str(tmp_path))
    log = await written(disk)
    old = {path.name: path.read_bytes() for path in (tmp_path / DIRECTORY).glob("*.log")}
    indexes = len(files(disk, ".positions"))
    await remove(log, disk)
    removed = {f"{base:020d}.log" for base in files(disk)}
    assert removed
    for name in removed:
        assert (tmp_path / DIRECTORY / f"{name}.deleted").read_bytes() == old[name]
    assert indexes - len(files(disk, ".positions")) <= len(files(disk, ".positions.deleted"))
    assert values(log) == RECORDS[log.log_start_offset : log.log_end_offset]
    log.deleted.unlink_due()
    assert files(disk), "not before its time"
    again = await open_log(disk, CONFIG)
    assert not files(disk, ".deleted"), "the next start unlinks what is left"
    assert values(again) == RECORDS[log.log_start_offset : log.log_end_offset]


@pytest.mark.parametrize("delay_ms", [0, 1000])
def test_files_are_unlinked_after_the_delay(delay_ms: int) -> None:
    loop = new_loop()
    disk = SimulatedDisk(loop, random.Random(0), file_system=FileSystem.EXT4)

    async def life() -> None:
        log = await written(disk)
        log.deleted.delay_ms = delay_ms
        await log.delete_segments_before(10)
        assert bool(files(disk)) == (delay_ms > 0)
        await asyncio.sleep(0.9)
        log.deleted.unlink_due()
        assert bool(files(disk)) == (delay_ms > 0)
        await asyncio.sleep(0.2)
        assert bool(files(disk)) == (delay_ms > 0), "no other part unlinks them"
        log.deleted.unlink_due()
        assert not files(disk, ".deleted")
        assert log.deleted.next_due is None

    loop.run_until_complete(life())


def test_a_second_segment_of_one_name_has_the_whole_delay() -> None:
    """A truncation can remove two segments with the same base offset, one after the other."""
    loop = new_loop()
    disk = SimulatedDisk(loop, random.Random(0), file_system=FileSystem.EXT4)

    async def life() -> None:
        log = await written(disk)
        last = log.segments[-1].base_offset
        await log.truncate_to(last - 1)
        await asyncio.sleep(50)
        while log.segments[-1].base_offset < last:
            log.append_as_leader(batch(RECORDS[log.log_end_offset]), 1)
        await log.truncate_to(last - 1)
        await asyncio.sleep(20)
        log.deleted.unlink_due()
        assert files(disk) == [last]

    loop.run_until_complete(life())


@pytest.mark.parametrize("file_system", list(FileSystem))
@pytest.mark.parametrize("truncates", [True, False])
def test_a_power_cut_at_any_moment_leaves_a_log_without_a_gap(file_system: FileSystem, truncates: bool) -> None:
    ends: set[tuple[int, int]] = set()
    for seed in range(40):
        loop, rng = new_loop(), random.Random(seed)
        disk = SimulatedDisk(loop, random.Random(seed), file_system=file_system)
        log = loop.run_until_complete(written(disk))
        removing = log.truncate_to(12) if truncates else log.delete_segments_before(30)
        task = loop.create_task(removing)
        loop.run_until_complete(asyncio.sleep(rng.uniform(0, 0.02)))
        disk.power_loss(rng)
        task.cancel()
        again = loop.run_until_complete(PartitionLog.open(disk, DIRECTORY, CONFIG, clean_shutdown=False))
        assert values(again) == RECORDS[again.log_start_offset : again.log_end_offset]
        assert not files(disk, ".deleted")
        assert (again.log_end_offset >= 12) if truncates else (again.log_end_offset == len(RECORDS))
        ends.add((again.log_start_offset, again.log_end_offset))
    assert len(ends) > 1, "cuts before and after"

"""Logs whose first records are only in remote storage, and a power cut at any step that creates such a log."""

import asyncio
import random
from collections.abc import Callable, Coroutine

import pytest

from broker.log.epochs import EpochEntry
from broker.log.log import PartitionLog
from broker.log.log_config import LogConfig
from broker.log.reading import OffsetOutOfRangeError
from broker.log.recovery import DamagedLogError
from broker.log.remote_start import StateBelow
from broker.producers.producer_state import NO_ID, ProducerState, Sequenced
from broker.protocol.records import Record, build_batch
from simulator.disk import FileSystem, SimulatedDisk
from simulator.loop import new_loop
from tests.stories import played_by

CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=100)
RECORDS = 40
Change = Callable[[PartitionLog], Coroutine[None, None, None]]
EPOCHS = [EpochEntry(1, 0), EpochEntry(3, 10), EpochEntry(4, 25)]


async def opened(disk: SimulatedDisk, *, clean: bool = False, point: int = 0) -> PartitionLog:
    return await PartitionLog.open(disk, "t-0", CONFIG, clean_shutdown=clean, recovery_point=point)


async def written(disk: SimulatedDisk) -> PartitionLog:
    """40 records of three epochs in several segments."""
    log = await opened(disk)
    for number in range(RECORDS):
        for epoch, start in EPOCHS:
            if number == start:
                await log.start_leader_epoch(epoch)
        log.append_as_leader(bytearray(build_batch([Record(0, 1, None, b"%d" % number)])), log.epochs.latest_epoch)
    await log.flush()
    return log


def below() -> StateBelow:
    producers = ProducerState(NO_ID)
    producers.record(Sequenced(7, 0, 5, 5), 99, 1, 0.0)
    return StateBelow(30, [EpochEntry(1, 0), EpochEntry(3, 40), EpochEntry(4, 90), EpochEntry(5, 100)], producers)


def run(story: Callable[[SimulatedDisk], Coroutine[None, None, None]]) -> None:
    loop = new_loop()
    loop.run_until_complete(story(SimulatedDisk(loop, random.Random(1))))


STORIES = played_by(run)


@pytest.mark.parametrize("clean", [True, False])
async def test_local_deletion_keeps_the_start_and_the_epochs_below_also_after_a_restart(
    disk: SimulatedDisk, /, clean: bool
) -> None:
    log = await written(disk)
    await log.delete_segments_before(30, keeps_start=True)
    local = log.local_start_offset
    for _ in range(2):
        assert (log.log_start_offset, log.local_start_offset) == (0, local)
        assert 10 < local <= 30
        assert list(log.epochs.entries) == EPOCHS
        with pytest.raises(OffsetOutOfRangeError):
            log.locate(local - 1, 100, RECORDS)
        assert log.locate(local, 100, RECORDS)
        if clean:
            await log.close()
        log = await opened(disk, clean=clean, point=RECORDS)


async def test_a_start_that_rises_below_the_local_segments_takes_epochs_with_it_and_stays_after_a_restart(
    disk: SimulatedDisk, /
) -> None:
    log = await written(disk)
    await log.delete_segments_before(30, keeps_start=True)
    local = log.local_start_offset
    assert await log.advance_start(12) == 12
    log = await opened(disk, point=RECORDS)
    assert (log.log_start_offset, log.local_start_offset) == (12, local)
    assert list(log.epochs.entries) == [EpochEntry(3, 12), EpochEntry(4, 25)]
    assert await log.advance_start(local + 1) == local + 1
    assert log.local_start_offset == local + 1


@pytest.mark.conforms("K1023-11", "K1023-12")
@pytest.mark.parametrize("clean", [True, False])
async def test_a_log_that_starts_above_has_start_end_epochs_and_producers_also_after_a_restart(
    disk: SimulatedDisk, /, clean: bool
) -> None:
    log = await written(disk)
    await log.start_above(100, below())
    for _ in range(2):
        assert (log.log_start_offset, log.local_start_offset, log.log_end_offset) == (30, 100, 100)
        assert list(log.epochs.entries) == [EpochEntry(1, 30), EpochEntry(3, 40), EpochEntry(4, 90)]
        assert log.producers.check([Sequenced(7, 0, 5, 5)], any_first=False) is not None
        assert log.durable_end_offset == 100
        if clean:
            await log.close()
        log = await opened(disk, clean=clean, point=100)
    fetched = bytearray(build_batch([Record(0, 1, None, b"next")], 100, 5))
    await log.replicate(fetched, 5)
    assert log.read(100, 1000, 101) == fetched
    assert log.epochs.entries[-1] == EpochEntry(5, 100)


async def test_a_log_that_starts_again_without_remote_records_does_not_claim_them_after_a_restart(
    disk: SimulatedDisk, /
) -> None:
    log = await opened(disk)
    await log.start_above(100, below())
    await log.truncate_fully_and_start_at(120)
    log = await opened(disk)
    assert (log.log_start_offset, log.local_start_offset, log.log_end_offset) == (120, 120, 120)


@pytest.mark.parametrize("damage", [None, b"garbage"])
async def test_epochs_of_remote_records_that_are_lost_or_damaged_take_the_replica_offline(
    disk: SimulatedDisk, /, damage: bytes | None
) -> None:
    log = await written(disk)
    await log.delete_segments_before(30, keeps_start=True)
    await log.close()
    if damage is None:
        disk.unlink("t-0/leader-epoch-checkpoint")
    else:
        await disk.replace_file("t-0/leader-epoch-checkpoint", damage)
    with pytest.raises(DamagedLogError, match="leader-epoch-checkpoint"):
        await opened(disk, clean=True)


async def starts_above(log: PartitionLog) -> None:
    await log.start_above(100, below())


async def lets_local_go(log: PartitionLog) -> None:
    await log.delete_segments_before(30, keeps_start=True)


async def starts_anew(log: PartitionLog) -> None:
    await log.delete_segments_before(30, keeps_start=True)
    await log.truncate_fully_and_start_at(50)


def after_a_cut(seed: int, file_system: FileSystem, change: Change) -> PartitionLog:
    """The log that is found when the power fails during a change of a written log."""
    loop, rng = new_loop(), random.Random(seed)
    disk = SimulatedDisk(loop, random.Random(seed), file_system=file_system)
    log = loop.run_until_complete(written(disk))
    task: asyncio.Task[None] = loop.create_task(change(log))
    loop.run_until_complete(asyncio.sleep(rng.uniform(0, 0.06)))
    disk.power_loss(rng)
    task.cancel()
    return loop.run_until_complete(opened(disk))


@pytest.mark.conforms("K1023-11")
@pytest.mark.parametrize("file_system", list(FileSystem))
def test_a_power_cut_while_a_log_starts_above_leaves_the_old_one_a_new_one_or_the_whole(
    file_system: FileSystem,
) -> None:
    seen = set()
    for seed in range(80):
        log = after_a_cut(seed, file_system, starts_above)
        found = (log.log_start_offset, log.local_start_offset, log.log_end_offset)
        if found == (30, 100, 100):
            assert log.epochs.entries[0] == EpochEntry(1, 30)
            assert log.producers.check([Sequenced(7, 0, 5, 5)], any_first=False) is not None
        else:  # of the old log a prefix may be left: its segments go from the end
            assert found[:2] == (0, 0), f"seed {seed}: {found}"
            assert found[2] <= RECORDS
        seen.add(found)
    assert {(0, 0, 0), (30, 100, 100)} <= seen


@pytest.mark.parametrize("file_system", list(FileSystem))
@pytest.mark.parametrize("change", [lets_local_go, starts_anew])
def test_a_power_cut_never_leaves_a_start_above_records_that_are_kept(file_system: FileSystem, change: Change) -> None:
    for seed in range(60):
        log = after_a_cut(seed, file_system, change)
        start, local, end = log.log_start_offset, log.local_start_offset, log.log_end_offset
        if end == RECORDS:
            assert (start, list(log.epochs.entries)) == (0, EPOCHS), f"seed {seed}"
            assert log.locate(local, 1 << 20, end)
        else:
            assert start == local, f"seed {seed}: {(start, local, end)}"

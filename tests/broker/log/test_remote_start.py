"""A log with its first records only in remote storage: its start is below its first segment."""

from pathlib import Path

import pytest

from broker.disk import RealDisk
from broker.log.epochs import EpochEntry
from broker.log.log import PartitionLog
from broker.log.reading import OffsetOutOfRangeError
from broker.producers.producer_state import ProducerState, Written
from tests.broker.log.making import DIRECTORY, SMALL, in_loop, open_log, write

STORIES = in_loop
PRODUCER = 77


async def reopened(tmp_path: Path, *, clean: bool, remote_start: int, start: int = 0, point: int = 0) -> PartitionLog:
    return await PartitionLog.open(
        RealDisk(str(tmp_path)),
        DIRECTORY,
        SMALL,
        clean_shutdown=clean,
        start_offset=start,
        remote_start=remote_start,
        recovery_point=point,
    )


async def with_remote_half(tmp_path: Path) -> PartitionLog:
    """A log of two epochs, from offset 0 to 60, without its first segments."""
    log = await open_log(RealDisk(str(tmp_path)))
    await write(log, 0, *(f"a{number}" for number in range(20)))
    await write(log, 3, *(f"b{number}" for number in range(40)))
    await log.flush()
    assert await log.delete_segments_before(30, keeps_start=True) == 0
    return log


async def test_deleting_local_segments_keeps_start_and_epochs(tmp_path: Path) -> None:
    log = await with_remote_half(tmp_path)
    assert log.log_start_offset == 0
    assert 20 < log.local_start_offset <= 30
    assert list(log.epochs.entries) == [EpochEntry(0, 0), EpochEntry(3, 20)]
    with pytest.raises(OffsetOutOfRangeError):
        log.locate(log.local_start_offset - 1, 100, 60)
    assert log.locate(log.local_start_offset, 100, 60)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("point", [0, 60])
async def test_a_restart_keeps_the_start_and_the_epochs_of_remote_records(
    tmp_path: Path, clean: bool, point: int
) -> None:
    log = await with_remote_half(tmp_path)
    local = log.local_start_offset
    await log.close()
    again = await reopened(tmp_path, clean=clean, remote_start=0, point=point)
    assert (again.log_start_offset, again.local_start_offset, again.log_end_offset) == (0, local, 60)
    assert list(again.epochs.entries) == [EpochEntry(0, 0), EpochEntry(3, 20)]


async def test_a_stored_start_above_the_remote_start_counts(tmp_path: Path) -> None:
    log = await with_remote_half(tmp_path)
    assert await log.advance_start(10) == 10
    await log.close()
    again = await reopened(tmp_path, clean=False, remote_start=0, start=10)
    assert again.log_start_offset == 10
    assert list(again.epochs.entries) == [EpochEntry(0, 10), EpochEntry(3, 20)]


async def test_without_remote_records_the_start_is_the_first_segment(tmp_path: Path) -> None:
    log = await with_remote_half(tmp_path)
    local = log.local_start_offset
    await log.close()
    (tmp_path / DIRECTORY / "remote-log-start").unlink()
    again = await open_log(RealDisk(str(tmp_path)))
    assert again.log_start_offset == again.local_start_offset == local
    assert list(again.epochs.entries) == [EpochEntry(3, local)]


async def test_a_moved_start_in_the_remote_part_removes_no_segment(tmp_path: Path) -> None:
    log = await with_remote_half(tmp_path)
    before = log.local_start_offset
    assert await log.advance_start(25) == 25
    assert log.local_start_offset == before
    assert list(log.epochs.entries) == [EpochEntry(3, 25)]
    assert await log.advance_start(50) == 50
    assert log.local_start_offset == 50


async def test_a_truncation_below_the_segments_keeps_remote_records(tmp_path: Path) -> None:
    log = await with_remote_half(tmp_path)
    assert await log.truncate_to(22) == 22
    assert (log.log_start_offset, log.local_start_offset, log.log_end_offset) == (0, 22, 22)
    assert list(log.epochs.entries) == [EpochEntry(0, 0), EpochEntry(3, 20)]
    assert await log.truncate_to(15) == 15
    assert list(log.epochs.entries) == [EpochEntry(0, 0)]
    await log.start_leader_epoch(9)
    await write(log, 9, "c")
    assert log.log_end_offset == 16


async def test_a_truncation_below_the_start_leaves_an_empty_log(tmp_path: Path) -> None:
    log = await with_remote_half(tmp_path)
    await log.advance_start(10)
    assert await log.truncate_to(5) == 5
    assert (log.log_start_offset, log.local_start_offset, log.log_end_offset) == (5, 5, 5)
    assert list(log.epochs.entries) == []


@pytest.mark.conforms("K1023-11")
@pytest.mark.conforms("K1023-12")
@pytest.mark.parametrize("clean", [True, False])
async def test_an_empty_log_starts_locally_behind_remote_records(tmp_path: Path, clean: bool) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    producers = ProducerState()
    producers.remember(PRODUCER, 0, Written(6, 39, 0, 1), 0.0)
    epochs = [EpochEntry(0, 5), EpochEntry(3, 20)]
    await log.truncate_fully_and_start_at(40, log_start=5, epochs=epochs, producers=producers)
    assert (log.log_start_offset, log.local_start_offset, log.log_end_offset) == (5, 40, 40)
    await write(log, 3, "c", "d")
    await log.close()
    again = await reopened(tmp_path, clean=clean, remote_start=5)
    assert (again.log_start_offset, again.local_start_offset, again.log_end_offset) == (5, 40, 42)
    assert list(again.epochs.entries) == epochs
    known = again.producers.find(PRODUCER)
    assert known is not None
    assert known.last.last_sequence == 6

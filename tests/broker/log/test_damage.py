"""Damage of data on disk: the log reports it, does not truncate for it, and does not report a crash as damage."""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from broker.disk import RealDisk
from broker.log.log import PartitionLog
from broker.log.recovery import DamagedLogError
from broker.log.recovery_points import RecoveryPoints
from broker.log.segment import Segment
from broker.protocol.records import BatchHeader, parse_header, validate_batch
from simulator.disk import FileSystem, SimulatedDisk
from simulator.loop import new_loop
from tests.broker.log.making import DIRECTORY, SMALL, in_loop, life_of, open_log, values, write

STORIES = in_loop
RECORDS = [f"value {number}" for number in range(60)]
KEY = ("log", 0)


async def killed(root: Path, start: int = 0) -> dict[Path, bytes]:
    """A log of several segments from `start` on, all of it on disk, whose process was killed; what its files hold."""
    log = await open_log(RealDisk(str(root)))
    await write(log, 1, *RECORDS[:30])
    await write(log, 2, *RECORDS[30:])
    assert await log.flush() == len(RECORDS)
    assert await log.advance_start(start) == start
    return contents(root)


def contents(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted((root / DIRECTORY).iterdir())}


def segments(files: dict[Path, bytes]) -> list[Path]:
    return [path for path in files if path.suffix == ".log"]


async def reopened(
    root: Path, recovery_point: int = len(RECORDS), *, start_offset: int = 0, clean: bool = False
) -> PartitionLog:
    return await PartitionLog.open(
        RealDisk(str(root)),
        DIRECTORY,
        SMALL,
        clean_shutdown=clean,
        recovery_point=recovery_point,
        start_offset=start_offset,
    )


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("indexes", [True, False])
async def test_a_flipped_bit_below_the_recovery_point_does_not_truncate_the_log(
    tmp_path: Path, seed: int, indexes: bool
) -> None:
    rng = random.Random(seed)
    files = await killed(tmp_path)
    for path in [path for path in files if path.suffix == ".positions" and not indexes]:
        path.unlink()
    damaged = rng.choice(segments(files))
    flip(damaged, 61 + rng.randrange(len(files[damaged]) - 61))
    before = contents(tmp_path)
    if indexes and damaged != segments(files)[-1]:
        # An old segment is not read at a start: the damage is found when it is first asked for.
        log = await reopened(tmp_path)
        assert log.log_end_offset == len(RECORDS)
        with pytest.raises(OSError, match="the bytes are not what was written"):
            values(log)
        assert before.items() - contents(tmp_path).items() == {
            (damaged.with_suffix(".positions"), before[damaged.with_suffix(".positions")])
        }, "only what says that it was whole"
        await log.close()
        with pytest.raises(DamagedLogError, match="restore the directory's files"):
            await reopened(tmp_path)
    else:
        with pytest.raises(DamagedLogError, match="restore the directory's files"):
            await reopened(tmp_path)
        assert contents(tmp_path) == before
    assert {path: path.read_bytes() for path in segments(files)} == {path: before[path] for path in segments(files)}


async def test_replicated_segments_are_verified_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await killed(tmp_path)
    log = await reopened(tmp_path)
    checked: list[int] = []

    def noted(data: bytes, position: int = 0, *, compacted: bool = False) -> BatchHeader:
        header = validate_batch(data, position, compacted=compacted)
        checked.append(header.base_offset)
        return header

    monkeypatch.setattr("broker.log.segment.validate_batch", noted)
    assert values(log) == RECORDS
    taken_over = len(checked)
    assert taken_over > len(RECORDS) // 2
    assert len(set(checked)) == taken_over
    assert values(log) == RECORDS
    assert len(checked) == taken_over, "nothing is read again for that"


async def test_in_a_log_with_lawful_gaps_the_batch_above_the_next_is_the_damaged_one(tmp_path: Path) -> None:
    """No CRC covers a base offset."""
    await killed(tmp_path)
    last = segments(contents(tmp_path))[-1]
    second = parse_header(last.read_bytes()).size
    flip(last, second + 6)  # 4,096 more
    gaps = replace(SMALL, compacted=True)
    log = await PartitionLog.open(RealDisk(str(tmp_path)), DIRECTORY, gaps, clean_shutdown=False)
    assert log.log_end_offset == int(last.stem) + 1
    assert log.recovered.reason is not None
    assert "follows that" in log.recovered.reason


async def test_damage_after_the_recovery_point_is_truncated_as_a_torn_write(tmp_path: Path) -> None:
    files = await killed(tmp_path)
    last = segments(files)[-1]
    flip(last, 70)
    log = await reopened(tmp_path, recovery_point=int(last.stem))
    assert log.log_end_offset == int(last.stem)
    assert log.recovered.reason is not None
    assert values(log) == RECORDS[: log.log_end_offset]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("which", [1, -1])
async def test_a_segment_that_is_missing_is_damage(tmp_path: Path, which: int, clean: bool) -> None:
    files = await killed(tmp_path)
    segments(files)[which].unlink()
    with pytest.raises(DamagedLogError):
        await reopened(tmp_path, clean=clean)


@pytest.mark.parametrize("start", [0, 2], ids=["whole", "starts inside its first segment"])
async def test_segments_below_the_recovery_point_are_not_read_again(
    tmp_path: Path, start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = await killed(tmp_path, start)
    assert segments(files)[0].stem == f"{0:020}"
    read: list[str] = []
    intact_batches = Segment.intact_batches

    def noted(segment: Segment, *, compacted: bool = False) -> Iterator[tuple[int, BatchHeader]]:
        read.append(segment.file.path)
        return intact_batches(segment, compacted=compacted)

    monkeypatch.setattr(Segment, "intact_batches", noted)
    log = await reopened(tmp_path, start_offset=start)
    assert [Path(path).name for path in read] == [segments(files)[-1].name]
    assert values(log) == RECORDS[start:]
    assert log.epochs.entries == ((1, start), (2, 30))


@pytest.mark.parametrize("file_system", list(FileSystem))
@pytest.mark.parametrize("seed", range(12))
def test_a_power_cut_does_not_count_as_damage(file_system: FileSystem, seed: int) -> None:
    """Any appends, syncs, truncations and checkpoints before it: the records below the checkpoint are there again."""
    loop = new_loop()
    rng = random.Random(seed)
    disk = SimulatedDisk(loop, random.Random(seed), file_system=file_system)
    protected = 0

    async def life() -> None:
        nonlocal protected
        points = RecoveryPoints(disk)
        point = points.of(KEY)
        protected += point > 0
        log = await PartitionLog.open(disk, DIRECTORY, SMALL, clean_shutdown=False, recovery_point=point)
        points.watch(KEY, log)
        log.before_cut = partial(points.lower, KEY)
        for _ in range(rng.randint(1, 8)):
            if rng.random() < 0.8:
                epoch = max(log.last_epoch, 0) + (rng.random() < 0.3)
                await write(log, epoch, *[f"{rng.random()}" * rng.randint(1, 10) for _ in range(rng.randint(0, 5))])
            if rng.random() < 0.5:
                await log.flush()
            if rng.random() < 0.5:
                await log.flush(complete_only=True)
            if rng.random() < 0.5:
                await points.write_durably()
            if rng.random() < 0.3:
                target = rng.randint(0, log.log_end_offset)
                if rng.random() < 0.2:
                    await log.truncate_fully_and_start_at(target)
                else:
                    await log.truncate_to(target)
        target = rng.randint(0, log.log_end_offset)
        last = [log.flush(), log.flush(complete_only=True), log.truncate_to(target), points.write_durably()]
        rng.shuffle(last)
        for work in last:
            loop.create_task(work)
        await asyncio.sleep(rng.random() * 0.01)

    processes = []
    for _ in range(8):
        processes.append(life_of(loop, life()))
        disk.power_loss(rng)
    assert protected


def test_a_flipped_bit_on_the_simulated_disk_is_damage_too() -> None:
    loop = new_loop()
    disk = SimulatedDisk(loop, random.Random(0))

    async def story() -> None:
        log = await PartitionLog.open(disk, DIRECTORY, SMALL, clean_shutdown=False)
        await write(log, 0, "a", "b")
        await log.flush()
        file = disk.open(f"{DIRECTORY}/{0:020d}.log")
        data = bytearray(file.read(0, file.size()))
        data[65] ^= 1
        file.truncate(0)
        file.append([bytes(data)])
        with pytest.raises(DamagedLogError, match="from offset 0 to 1 were on disk"):
            await PartitionLog.open(disk, DIRECTORY, SMALL, clean_shutdown=False, recovery_point=2)

    loop.run_until_complete(story())


def test_data_of_a_failed_sync_is_written_again_before_it_counts() -> None:
    """The kernel takes the pages for clean, and the next process's sync is good without them: no recovery point may
    rest on it, or a power cut would turn what it covers into damage."""
    loop = new_loop()
    disk = SimulatedDisk(loop, random.Random(0), file_system=FileSystem.EXT4)

    async def opened(recovery_point: int) -> PartitionLog:
        return await PartitionLog.open(disk, DIRECTORY, SMALL, clean_shutdown=False, recovery_point=recovery_point)

    async def until_a_sync_fails() -> None:
        log = await opened(0)
        await write(log, 1, *RECORDS[:3])
        assert await log.flush() == 3
        await write(log, 1, *RECORDS[3:6])
        disk.faults.failing = True
        with pytest.raises(OSError, match="Input/output"):
            await log.flush()
        disk.faults.failing = False

    async def next_process() -> None:
        log = await opened(3)
        assert log.recovery_point == 6

    async def after_the_power_cut() -> None:
        assert values(await opened(6)) == RECORDS[:6]

    loop.run_until_complete(until_a_sync_fails())
    loop.run_until_complete(next_process())
    disk.power_loss(random.Random(0), commit=False)
    loop.run_until_complete(after_the_power_cut())

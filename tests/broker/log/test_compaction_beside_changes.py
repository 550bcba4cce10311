"""Compaction beside other changes of a log: truncations, removed segments, damage and interrupted swaps."""

import asyncio
import errno
import gc
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from broker.disk import RealDisk
from broker.log.log_config import LogConfig
from broker.log.recovery import DamagedLogError
from broker.log.segment import Segment
from broker.protocol.records import (
    iter_batches,
)
from broker.replica.compactor import Cleaner, UncleanableError
from tests.broker.log.compacting import (
    DAY_MS,
    NOW_MS,
    SIZES,
    batch,
    compact,
    content,
    headers,
    left_over,
    open_log,
    write,
)
from tests.broker.log.making import DIRECTORY, in_loop, only_file

STORIES = in_loop

# --- what else happens to a log meanwhile


async def test_a_pass_ends_when_its_segments_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.replica.compactor.COST_PER_TURN", 1)
    for change in ("truncate_to", "advance_start"):
        log = await open_log(tmp_path / change)
        await write(log, 0, *(batch(("a", f"{number:050d}")) for number in range(40)))
        lock = asyncio.Lock()
        cleaning = asyncio.create_task(compact(log, tmp_path / change, lock=lock))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not cleaning.done()
        async with lock:
            await getattr(log, change)(20)
        before = content(log)
        assert not await cleaning
        assert content(log) == before
        assert await compact(log, tmp_path / change)
        assert len(content(log)) == 1


async def test_a_pass_that_read_before_a_truncation_replaces_no_segment(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await write(log, 0, *(batch(("a", f"{number}")) for number in range(4)))
    log.roll()
    before = log.truncations
    await log.truncate_to(3)
    assert not await log.replace_segments(log.segments[:1], log.segments[-1], before)


@pytest.mark.parametrize("reason", ["damage", "truncation", "refusal", "no descriptors"])
async def test_a_failed_pass_leaves_no_file_and_no_descriptor(
    tmp_path: Path, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.replica.compactor.COST_PER_TURN", 1)
    log = await open_log(tmp_path)
    await write(log, 0, *(batch(("a", f"{number:050d}")) for number in range(20)))
    log.roll()
    opened = len(os.listdir("/proc/self/fd"))

    async def replace(_old: Sequence[Segment], _cleaned: Segment, _truncations: int) -> bool:
        if reason == "no descriptors":
            raise OSError(errno.EMFILE, "Too many open files")
        return False

    cleaner = Cleaner(RealDisk(str(tmp_path)), log, wanted=lambda: True, replace=replace)
    cleaning = asyncio.create_task(
        cleaner.clean(log.log_end_offset, now_ms=NOW_MS, delete_retention_ms=DAY_MS, sizes=SIZES)
    )
    if reason in ("damage", "truncation"):
        while not left_over(tmp_path):  # noqa: ASYNC110 - a directory has no event for it
            await asyncio.sleep(0)
        if reason == "damage":
            path = tmp_path / DIRECTORY / f"{log.segments[-2].base_offset:020d}.log"
            path.write_bytes(path.read_bytes()[:-1] + b"x")
        else:
            await log.truncate_to(log.segments[-2].base_offset)
            opened -= 1  # that of the segment that grew
    error = {"damage": UncleanableError, "no descriptors": OSError}.get(reason)
    if error is None:
        assert not await cleaning
    else:
        with pytest.raises(error):
            await cleaning
    assert left_over(tmp_path) == []
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= opened


async def test_a_swap_that_fails_halfway_is_left_to_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await open_log(tmp_path)
    await write(log, 0, *(batch(("a", f"{number:050d}")) for number in range(10)))
    await log.flush()

    def fail(_: Segment) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Segment, "retire", fail)
    with pytest.raises(OSError, match="Input/output"):
        await compact(log, tmp_path)
    monkeypatch.undo()
    again = await open_log(tmp_path, point=10)
    assert [offset for offset, _, _ in content(again)] == [9]


# --- truncation and reading in what is left


async def test_a_truncation_into_a_hole_ends_behind_the_last_batch_before_it(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await write(log, 0, batch(("z", "0")), *(batch(("a", str(number))) for number in range(6)))
    assert await compact(log, tmp_path)
    assert headers(log) == [(0, 1, 1), (6, 7, 1)]
    assert await log.truncate_to(4) == 1
    assert log.log_end_offset == log.cleaned_to == 1
    again = await open_log(tmp_path, point=1)
    assert again.log_end_offset == 1


async def test_a_log_that_is_not_compacted_takes_no_holes(tmp_path: Path) -> None:
    log, strict = await open_log(tmp_path / "a"), await open_log(tmp_path / "b", LogConfig())
    await write(log, 0, batch(("z", "0")), *(batch(("a", str(number))) for number in range(6)))
    assert await compact(log, tmp_path / "a")
    info = await strict.replicate(log.read(0, 1 << 20, log.log_end_offset), limit_epoch=0)
    assert info.last_offset == 0


async def test_a_damaged_batch_is_not_given_a_new_checksum(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await write(log, 0, batch(("a", "1")), batch(("b", "2")))
    log.roll()
    path = sorted((tmp_path / DIRECTORY).glob("*.log"))[0]
    damaged = bytearray(path.read_bytes())
    damaged[-2] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(UncleanableError, match="CRC"):
        await compact(log, tmp_path)
    assert path.read_bytes() == damaged


@pytest.mark.parametrize(
    ("batch_number", "byte", "bit"),
    [(1, 12, 0), (1, 15, 1), (2, 7, 1), (2, 6, 0)],
    ids=["newer epoch", "other epoch", "offset too small", "offset past the segment"],
)
async def test_bit_rot_outside_of_checksums_is_not_written_into_compacted_segments(
    tmp_path: Path, batch_number: int, byte: int, bit: int
) -> None:
    """A segment that was closed cleanly is not read at the next start, and a rewritten batch has a valid checksum."""
    log = await open_log(tmp_path)
    await write(log, 4, batch(("a", "1")), batch(("a", "2")), batch(("b", "1")))
    log.roll()
    await write(log, 4, batch(("a", "3")))
    await log.close()
    path = tmp_path / DIRECTORY / f"{0:020d}.log"
    rotten = bytearray(path.read_bytes())
    starts = [position for position, _ in iter_batches(bytes(rotten))]
    rotten[starts[batch_number] + byte] ^= 1 << bit
    path.write_bytes(rotten)
    log = await open_log(tmp_path, clean=True)
    with pytest.raises(UncleanableError, match="offset"):
        await compact(log, tmp_path)
    assert path.read_bytes() == rotten
    assert left_over(tmp_path) == []
    await log.close()
    with pytest.raises(DamagedLogError):
        await open_log(tmp_path, clean=True, point=4)


async def test_a_log_during_a_truncation_of_epochs_does_not_count_as_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Epochs are removed before batches: in between a pass would find no epoch for batches that are removed next."""
    monkeypatch.setattr("broker.replica.compactor.COST_PER_TURN", 1)
    log = await open_log(tmp_path)
    await write(log, 0, batch(("z", "0")), batch(("a", "0")))
    await write(log, 1, *(batch(("a", f"{number:050d}")) for number in range(20)))
    log.roll()
    cleaner = Cleaner(RealDisk(str(tmp_path)), log, wanted=lambda: True, replace=log.replace_segments)
    write_epochs, cleaned = log.epochs.write_durably, list[bool]()

    async def compact_first() -> None:
        await write_epochs()
        cleaned.append(await cleaner.clean(log.log_end_offset, now_ms=NOW_MS, delete_retention_ms=DAY_MS, sizes=SIZES))

    monkeypatch.setattr(log.epochs, "write_durably", compact_first)
    await log.truncate_to(1)
    assert cleaned == [False]
    assert content(log) == [(0, "z", "0")]


# --- interrupted swaps


async def test_unfinished_segments_are_removed_and_swapped_ones_are_kept(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await write(log, 0, *(batch(("a", f"{number:050d}")) for number in range(10)))
    names = [segment.base_offset for segment in log.segments]
    await log.flush()
    directory = tmp_path / DIRECTORY
    kept = {path.name: path.read_bytes() for path in directory.iterdir()}
    assert await compact(log, tmp_path)
    swapped = only_file(tmp_path, "0000000.log").read_bytes()
    for path in directory.iterdir():
        path.unlink()
    for name, data in kept.items():
        (directory / name).write_bytes(data)
    first = f"{0:020d}.log"
    (directory / (first + ".cleaned")).write_bytes(swapped[:50])
    again = await open_log(tmp_path, point=10)
    assert [offset for offset, _, _ in content(again)] == list(range(10))
    assert [segment.base_offset for segment in again.segments] == names
    (directory / (first + ".swap")).write_bytes(swapped)
    again = await open_log(tmp_path, point=10)
    assert [offset for offset, _, _ in content(again)] == [9]
    assert not [path for path in directory.iterdir() if path.suffix in (".swap", ".cleaned")]
    (directory / (first + ".swap")).write_bytes(swapped[:-1])
    with pytest.raises(DamagedLogError, match=r"\.swap.*restore the file"):
        await open_log(tmp_path)

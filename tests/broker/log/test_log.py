"""A log in normal operation: append, read, roll, truncate, delete."""

import asyncio
import errno
import random
from pathlib import Path

import pytest

from broker.disk import RealDisk
from broker.log import segment
from broker.log.append_validation import OutOfOrderError, UnpreparedEpochError
from broker.log.log import PartitionLog
from broker.log.log_config import LogConfig
from broker.log.reading import OffsetOutOfRangeError
from broker.log.validation import BYTES_PER_RECORD, bytes_examined
from broker.ports import Buffer
from broker.protocol.records import (
    BatchHeader,
    CorruptBatch,
    Record,
    build_batch,
    iter_batches,
    parse_header,
    validate_batches,
)
from simulator.disk import FileSystem, SimulatedDisk
from simulator.loop import new_loop
from tests.broker.log.making import DIRECTORY, SMALL, HeldCommit, batch, in_loop, open_log, values, write

STORIES = in_loop
LARGE = LogConfig()


@pytest.mark.conforms("K101-1", "K101-13")
async def test_a_leader_stamps_offsets_and_its_epoch(tmp_path: Path) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    await log.start_leader_epoch(4)
    two = batch("a", "b", base=99, epoch=77) + batch("c", base=3, epoch=-1)
    assert log.append_as_leader(two, 4) == (0, 2, len(two))
    assert log.append_as_leader(batch("d"), 4)[:2] == (3, 3)
    headers = [header for _, header in iter_batches(log.read(0, 1000, 4))]
    assert [(header.base_offset, header.leader_epoch) for header in headers] == [(0, 4), (2, 4), (3, 4)]
    assert values(log) == ["a", "b", "c", "d"]


async def test_a_leader_needs_its_epoch_started(tmp_path: Path) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    await log.start_leader_epoch(4)
    for epoch in (3, 5):
        with pytest.raises(ValueError, match=f"epoch {epoch} was not started, the latest is 4"):
            log.append_as_leader(batch("a"), epoch)


@pytest.mark.parametrize("where", [17, 40, 63, -1], ids=["crc", "header", "record", "last byte"])
async def test_a_corrupt_append_is_not_written(tmp_path: Path, where: int) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    await write(log, 1, "kept")
    good, bad = batch("x"), batch("y")
    bad[where] ^= 1
    for damaged in (bad, good + bad, good + bad[:-1], good + bytearray(3), bytearray()):
        before = bytes(damaged)
        with pytest.raises(CorruptBatch):
            log.append_as_leader(damaged, 1)
        assert damaged == before, "nothing was stamped"
    assert values(log) == ["kept"]


@pytest.mark.conforms("K101-3", "H2")
async def test_becoming_leader_is_on_disk_before_any_record(tmp_path: Path) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    await write(log, 1, "a", "b")
    await log.start_leader_epoch(6)
    assert (tmp_path / DIRECTORY / "leader-epoch-checkpoint").read_text() == "0\n2\n1 0\n6 2\n"
    assert log.last_epoch == 6
    assert log.epochs.end_offset_for(6, log.log_end_offset) == (6, 2), "an epoch without records has an end"


@pytest.mark.conforms("K101-8")
async def test_a_follower_has_the_epoch_on_disk_before_the_data(tmp_path: Path) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    fetched = batch("a", base=0, epoch=1) + batch("b", base=1, epoch=1) + batch("c", base=2, epoch=4)
    with pytest.raises(UnpreparedEpochError):
        log.append_as_follower(fetched, 4)
    assert log.log_end_offset == 0
    await log.prepare_epochs(fetched, 4)
    assert (tmp_path / DIRECTORY / "leader-epoch-checkpoint").read_text() == "0\n2\n1 0\n4 2\n"
    assert log.log_end_offset == 0
    assert log.append_as_follower(memoryview(fetched).toreadonly(), 4)[:2] == (0, 2)
    assert log.append_as_follower(batch("d", base=3, epoch=4), 9)[:2] == (3, 3), "a known epoch needs no preparation"
    assert values(log) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("at_once", [2, 7, 30])
async def test_a_followers_segments_end_where_the_leaders_end(tmp_path: Path, at_once: int) -> None:
    leader = await open_log(RealDisk(str(tmp_path)), directory="leader-0")
    await write(leader, 1, *(f"{number}" * 40 for number in range(1, 31)))
    follower = await open_log(RealDisk(str(tmp_path)), directory="follower-0")
    for first in range(0, 30, at_once):
        await follower.replicate(leader.read(first, 1 << 20, min(30, first + at_once)), 1)
    borders = [(segment.base_offset, segment.size) for segment in leader.segments]
    assert [(segment.base_offset, segment.size) for segment in follower.segments] == borders
    assert max(size for _, size in borders) <= SMALL.segment_bytes
    assert len(borders) > 2
    assert values(follower) == values(leader)
    again = await open_log(RealDisk(str(tmp_path)), directory="follower-0")
    assert values(again) == values(leader)


async def test_a_followers_batch_larger_than_a_segment_has_a_segment_of_its_own(tmp_path: Path) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    fetched = b"".join(batch(value, base=at, epoch=1) for at, value in enumerate(["a", "b" * 1500, "c" * 1500, "d"]))
    await log.replicate(fetched, 1)
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2, 3]


async def test_replication_prepares_new_batches(tmp_path: Path) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    for epoch in (1, 1, 3):
        await log.replicate(batch("x", base=log.log_end_offset, epoch=epoch), 3)
    assert log.epochs.entries == ((1, 0), (3, 2))
    assert (tmp_path / DIRECTORY / "leader-epoch-checkpoint").read_text() == "0\n2\n1 0\n3 2\n"


@pytest.mark.conforms("H11")
async def test_a_follower_stops_at_its_known_epoch(tmp_path: Path) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    fetched = batch("a", base=0, epoch=1) + batch("b", base=1, epoch=2)
    assert (await log.replicate(fetched, 1))[:2] == (0, 0)
    assert log.epochs.entries == ((1, 0),), "the newer epoch is not registered either"
    assert log.append_as_follower(batch("b", base=1, epoch=2), 1) == (1, 0, 0)
    assert values(log) == ["a"]


@pytest.mark.conforms("H11")
async def test_a_follower_appends_only_intact_and_contiguous_batches(tmp_path: Path) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    await log.replicate(batch("a", base=0, epoch=2), 2)
    good = batch("b", base=1, epoch=2)
    damaged = batch("c", base=2, epoch=2)
    damaged[-1] ^= 1
    assert log.append_as_follower(good + damaged, 2)[:2] == (1, 1)
    with pytest.raises(CorruptBatch):
        log.append_as_follower(damaged, 2)
    for wrong in (batch("x", base=3, epoch=2), batch("x", base=1, epoch=2), batch("x", base=2, epoch=1)):
        with pytest.raises(OutOfOrderError, match="cannot follow offset 1 of epoch 2"):
            await log.replicate(wrong, 2)
    assert log.append_as_follower(batch("c", base=2, epoch=2) + batch("x", base=9, epoch=2), 2)[:2] == (2, 2)
    assert values(log) == ["a", "b", "c"]


async def test_reads_give_whole_batches_within_their_bounds(tmp_path: Path) -> None:
    log = await open_log(RealDisk(str(tmp_path)), LARGE)
    rng = random.Random(5)
    await log.start_leader_epoch(0)
    while log.size < 200_000:
        log.append_as_leader(batch(*["v" * rng.choice((1, 30, 900))] * rng.randint(1, 4)), 0)
    end = log.log_end_offset
    for _ in range(500):
        offset, limit, bound = rng.randrange(end), rng.choice((0, 100, 3000, 50_000)), rng.randrange(end + 1)
        slices = log.locate(offset, limit, bound)
        if bound <= offset:
            continue
        headers = validate_batches(b"".join(file.read(at, length) for file, at, length in slices))
        if headers:
            assert headers[0].base_offset <= offset <= headers[0].last_offset
            assert len(headers) == 1 or sum(header.size for header in headers) <= limit
            # Nothing at or past the bound: a batch is given whole or not at all.
            assert headers[-1].last_offset < bound
        else:
            first = parse_header(log.read(offset, 0, end))
            assert first.base_offset <= bound <= first.last_offset


async def test_a_limit_is_used_up_as_far_as_whole_batches_allow(tmp_path: Path) -> None:
    log = await open_log(RealDisk(str(tmp_path)), LARGE)
    await write(log, 0, *["v" * 100] * 100)
    one = log.size // 100
    assert [part.length for part in log.locate(10, 5 * one, 100)] == [5 * one]
    assert [part.length for part in log.locate(10, 6 * one - 1, 100)] == [5 * one]
    assert [part.length for part in log.locate(10, 1, 100)] == [one]
    assert log.locate(10, 1, 100, min_one=False) == []
    assert log.locate(100, 1000, 100) == []


async def test_offsets_outside_of_the_log_are_refused(tmp_path: Path) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    await write(log, 0, *"abcdefghijklmnopqrstuvwxyz")
    await log.delete_segments_before(20)
    start = log.log_start_offset
    assert 0 < start <= 20
    for offset in (start - 1, 27):
        with pytest.raises(OffsetOutOfRangeError, match=f"offset {offset} is not in {start} to 26"):
            log.locate(offset, 100, 26)


async def test_segments_roll_and_reads_cross_them(tmp_path: Path) -> None:
    log = await open_log(RealDisk(str(tmp_path)), SMALL)
    expected = [f"value {number}" for number in range(100)]
    await write(log, 0, *expected)
    segments = sorted(path.name for path in (tmp_path / DIRECTORY).glob("*.log"))
    assert len(segments) > 5
    assert all(path.stat().st_size <= 1000 for path in (tmp_path / DIRECTORY).glob("*.log"))
    assert values(log) == expected
    assert len(log.locate(0, 1 << 20, 100)) == len(segments)
    assert sum(part.length for part in log.locate(3, 2500, 100)) <= 2500
    with pytest.raises(OffsetOutOfRangeError):
        log.read(101, 10, 101)


@pytest.mark.conforms("K101-11")
async def test_deleting_segments_trims_the_epochs(tmp_path: Path) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    for epoch in range(5):
        await write(log, epoch, *["v" * 20] * 10)
    assert await log.delete_segments_before(0) == 0
    start = await log.delete_segments_before(25)
    assert 20 < start <= 25
    assert log.epochs.entries == ((2, start), (3, 30), (4, 40))
    lines = (tmp_path / DIRECTORY / "leader-epoch-checkpoint").read_text().splitlines()
    assert lines[2] == f"2 {start}"
    await log.delete_segments_before(1000)
    assert log.log_end_offset == 50
    assert log.epochs.latest_epoch == 4, "the newest segment and the live epoch stay"


async def test_flush_returns_the_durable_end_of_the_log(tmp_path: Path) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    await write(log, 0, "a", "b")
    assert log.durable_end_offset == 0
    flush = asyncio.create_task(log.flush())
    await asyncio.sleep(0)
    await write(log, 0, *["c" * 100] * 30)
    assert await flush >= 2
    assert await log.flush() == log.durable_end_offset == 32


@pytest.mark.conforms("K595-7")
def test_writes_during_a_sync_are_synced_after_a_roll() -> None:
    loop = new_loop()
    disk = SimulatedDisk(loop, random.Random(0))

    async def life() -> None:
        config = LogConfig(segment_bytes=400)
        log = await PartitionLog.open(disk, DIRECTORY, config, clean_shutdown=False)
        await write(log, 0, "x" * 100)
        flush = asyncio.create_task(log.flush())
        await asyncio.sleep(0)
        await write(log, 0, "y" * 100, "z" * 100)
        assert len(log.segments) == 2
        assert await flush == 1
        assert await log.flush() == 3
        assert [disk.durable_size(each.path) for each in log.segments] == [each.size for each in log.segments]

    loop.run_until_complete(life())


@pytest.mark.conforms("K595-7")
def test_a_flush_makes_the_name_of_a_new_segment_durable_too() -> None:
    loop = new_loop()
    disk = SimulatedDisk(loop, random.Random(0), file_system=FileSystem.STRICT)

    async def life() -> None:
        log = await PartitionLog.open(disk, DIRECTORY, LogConfig(segment_bytes=400), clean_shutdown=False)
        await write(log, 0, *["x" * 100] * 6)
        assert await log.flush() == 6
        assert len(log.segments) == 3
        assert [disk.durable(each.path) is not None for each in log.segments] == [True] * 3

    loop.run_until_complete(life())


@pytest.mark.conforms("K595-7")
async def test_other_records_at_offsets_that_were_durable_are_not_durable_before_a_flush(tmp_path: Path) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    await write(log, 0, *"abcdef")
    assert await log.flush() == 6
    await log.truncate_to(2)
    log.append_as_leader(batch("x"), 0)
    assert (log.durable_end_offset, log.recovery_point) == (2, 2)
    assert await log.flush() == 3


async def test_a_truncation_during_a_flush_takes_durability_back(tmp_path: Path) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    await write(log, 0, *"abcdef")
    flush = asyncio.create_task(log.flush())
    await asyncio.sleep(0)
    await log.truncate_to(2)
    log.append_as_leader(batch("x"), 0)
    assert log.durable_end_offset <= 2 or flush.done()
    assert await flush in (2, 3)
    assert await log.flush() == 3


@pytest.mark.conforms("K101-7")
async def test_a_flush_continues_without_truncated_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await open_log(RealDisk(str(tmp_path)), LogConfig(segment_bytes=200))
    await write(log, 0, *["x" * 100] * 6)
    held = HeldCommit(monkeypatch)
    flush = asyncio.create_task(log.flush())
    await asyncio.to_thread(held.entered.wait, 60)
    cut = asyncio.create_task(log.truncate_to(2))
    await asyncio.sleep(0)
    assert log.log_end_offset == 2, "later segments are removed, and their files closed"
    held.go.set()
    ends = await asyncio.wait_for(asyncio.gather(flush, cut), 60)
    assert list(ends) == [2, 2]
    log.append_as_leader(batch("y"), 0)
    assert await asyncio.wait_for(log.flush(), 60) == 3


async def test_a_disk_that_fails_to_sync_stops_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    await write(log, 0, "a")

    def fail(_fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("os.fdatasync", fail)
    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="Input/output error"):
        await log.flush()
    monkeypatch.undo()
    with pytest.raises(OSError, match="an earlier sync failed"):
        await log.flush()
    with pytest.raises(OSError, match="an earlier sync failed"):
        log.append_as_leader(batch("b"), 0)
    assert log.durable_end_offset == 0


@pytest.mark.conforms("K101-7")
async def test_truncation_removes_epochs_with_their_records(tmp_path: Path) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    for epoch in (1, 3, 5):
        await write(log, epoch, *[f"{epoch}-{number}" for number in range(20)])
    assert await log.truncate_to(30) == 30
    assert log.epochs.entries == ((1, 0), (3, 20))
    assert (tmp_path / DIRECTORY / "leader-epoch-checkpoint").read_text() == "0\n2\n1 0\n3 20\n"
    assert log.log_end_offset == log.durable_end_offset == 30
    assert values(log)[-1] == "3-9"
    await log.replicate(batch("new", base=30, epoch=6), 6)
    assert values(log)[-2:] == ["3-9", "new"]


async def test_a_batch_is_never_split(tmp_path: Path) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    await log.start_leader_epoch(0)
    log.append_as_leader(batch("a", "b"), 0)
    log.append_as_leader(batch("c", "d", "e"), 0)
    assert await log.truncate_to(4) == 2
    assert values(log) == ["a", "b"]


@pytest.mark.conforms("H9")
async def test_a_full_truncation_empties_the_log_at_its_new_start(tmp_path: Path) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    await write(log, 1, *["v" * 50] * 50)
    await log.truncate_fully_and_start_at(500)
    assert (log.log_start_offset, log.log_end_offset, log.durable_end_offset) == (500, 500, 500)
    assert log.epochs.entries == ()
    assert len(list((tmp_path / DIRECTORY).glob("*.log"))) == 1
    await log.replicate(batch("x", base=500, epoch=2), 2)
    assert values(log) == ["x"]
    assert await log.truncate_to(100) == 100
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)


async def test_a_lookup_by_time_reads_part_of_the_log(tmp_path: Path) -> None:
    log = await open_log(RealDisk(str(tmp_path)), LogConfig(20_000, 500))
    rng = random.Random(3)
    await log.start_leader_epoch(0)
    stamps = []
    for _ in range(600):
        stamp = rng.randrange(10_000)
        stamps.append(stamp)
        log.append_as_leader(batch("v", timestamp=stamp), 0)
    for wanted in [0, 1, 9_998, 10_001, *(rng.randrange(10_000) for _ in range(100))]:
        first = next(((offset, stamp) for offset, stamp in enumerate(stamps) if stamp >= wanted), None)
        assert log.offset_for_timestamp(wanted) == first
    await log.truncate_to(300)
    assert log.offset_for_timestamp(max(stamps[:300])) == (stamps.index(max(stamps[:300])), max(stamps[:300]))
    assert log.offset_for_timestamp(max(stamps[:300]) + 1) is None


async def test_the_largest_timestamp_is_found_by_reading_part_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await open_log(RealDisk(str(tmp_path)), LogConfig(20_000, 500))
    rng = random.Random(4)
    await log.start_leader_epoch(0)
    stamps = [rng.randrange(number, number + 100) for number in range(1_000)]
    for stamp in stamps:
        log.append_as_leader(batch("v", timestamp=stamp), 0)
    looked_at: list[int] = []

    def counted(data: Buffer, position: int = 0) -> BatchHeader:
        looked_at.append(position)
        return parse_header(data, position)

    monkeypatch.setattr(segment, "parse_header", counted)
    for start in (0, 500, 997):
        await log.advance_start(start)
        for offset in (start, start + 1, 998, 1_000, *(rng.randrange(start, 1_000) for _ in range(50))):
            looked_at.clear()
            largest = max(stamps[start:offset], default=None)
            first = None if largest is None else (stamps.index(largest, start), largest)
            assert log.max_timestamp_below(offset) == first
            assert start or len(looked_at) < 60, "some entries of the index"
        wanted = max(stamps[start:]) - 1
        looked_at.clear()
        assert log.offset_for_timestamp(wanted) == next(
            (at, stamp) for at, stamp in enumerate(stamps) if at >= start and stamp >= wanted
        )
        assert len(looked_at) < 60


async def test_records_read_for_a_time_lookup_are_counted(tmp_path: Path) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    await log.start_leader_epoch(0)
    many = build_batch([Record(number, 1_000 + number, None, b"v") for number in range(5_000)])
    log.append_as_leader(bytearray(many), 0)
    for look, asked in ((log.offset_for_timestamp, 5_999), (log.max_timestamp_below, 5_000)):
        before = bytes_examined()
        assert look(asked) == (4_999, 5_999)
        assert bytes_examined() - before == len(many) + 5_000 * BYTES_PER_RECORD


async def test_a_log_can_be_deleted(tmp_path: Path) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    await write(log, 1, *["v" * 50] * 50)
    await log.delete()
    assert RealDisk(str(tmp_path)).list("") == []


async def test_a_flush_during_a_deletion_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    await write(log, 1, *["v" * 50] * 50)
    held = HeldCommit(monkeypatch, ".log")
    flush = asyncio.create_task(log.flush())
    await asyncio.to_thread(held.entered.wait, 20)
    deletion = asyncio.create_task(log.delete())
    await asyncio.sleep(0)
    held.go.set()
    await deletion
    assert await flush == log.durable_end_offset

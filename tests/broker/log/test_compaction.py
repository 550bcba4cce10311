"""Compaction of a log: what stays, at which offsets, and what is known by it afterwards."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from broker.disk import RealDisk
from broker.errors import ErrorCode, ProtocolError
from broker.log import validation
from broker.log.cleaner import Cleanable, Cleaner, SegmentSizes, UncleanableError, cleanable
from broker.log.compaction import raw_records, rebuilt
from broker.log.deleted_files import DeletedFiles
from broker.log.log import PartitionLog
from broker.log.log_config import LogConfig
from broker.log.recovery import DamagedLogError
from broker.log.segment import Segment
from broker.log.segment_swap import CLEANED, SWAP, swap_in
from broker.log.validation import BatchClaims, admit_keyed
from broker.protocol.compression import open_records
from broker.protocol.records import (
    BATCH_HEADER_SIZE,
    BatchHeader,
    Record,
    build_batch,
    iter_batches,
)
from simulator.disk import FileSystem, SimulatedDisk
from simulator.loop import new_loop
from tests.broker.log.making import DIRECTORY, in_loop, only_file

CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=100, compacted=True)
SIZES = SegmentSizes(segment=100_000, index_interval=100)
DAY_MS = 86_400_000
NOW_MS = 1_000_000_000

Pair = tuple[str | None, str | None]


async def open_log(path: Path, config: LogConfig = CONFIG, *, clean: bool = False, point: int = 0) -> PartitionLog:
    return await PartitionLog.open(RealDisk(str(path)), DIRECTORY, config, clean_shutdown=clean, recovery_point=point)


def batch(*pairs: Pair, codec: int = 0, producer: int = -1, sequence: int = -1) -> bytearray:
    records = [Record(0, 1000, _bytes(key), _bytes(value)) for key, value in pairs]
    epoch = 0 if producer >= 0 else -1
    plain = build_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
    if not codec:
        return bytearray(plain)
    ((_, header),) = iter_batches(plain)
    return bytearray(rebuilt(header._replace(attributes=codec), list(raw_records(header, plain)), None))


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


async def write(log: PartitionLog, epoch: int, *batches: bytearray) -> None:
    """Lead an epoch, append batches."""
    if log.epochs.latest_epoch != epoch:
        await log.start_leader_epoch(epoch)
    for each in batches:
        log.append_as_leader(each, epoch)


async def compact(
    log: PartitionLog,
    path: Path,
    *,
    now_ms: int = NOW_MS,
    delete_retention_ms: int = DAY_MS,
    drops_epochs: bool = False,
    lock: asyncio.Lock | None = None,
) -> bool:
    """Begin a new segment, and compact all before it. `lock`: that of a partition, under which its log changes."""
    log.roll()

    async def replace(old: Sequence[Segment], cleaned: Segment, truncations: int) -> bool:
        async with lock or asyncio.Lock():
            return await log.replace_segments(old, cleaned, truncations)

    cleaner = Cleaner(RealDisk(str(path)), log, wanted=lambda: True, replace=replace, drops_epochs=drops_epochs)
    end = log.log_end_offset
    return await cleaner.clean(end, now_ms=now_ms, delete_retention_ms=delete_retention_ms, sizes=SIZES)


def content(log: PartitionLog) -> list[tuple[int, str | None, str | None]]:
    """Offset, key and value of every record; as a consumer reads them, from fetch to fetch."""
    found = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1, log.log_end_offset)
        for position, header in iter_batches(data):
            for record in raw_records(header, data[position:]):
                assert record.offset_delta <= header.last_offset_delta
                text = None if record.key is None else record.key.decode()
                found.append((header.base_offset + record.offset_delta, text, _value(record.rest, record.is_tombstone)))
            assert header.next_offset > offset, "a fetch that gives nothing new never ends"
            offset = header.next_offset
    return found


def _value(rest: bytes, is_tombstone: bool) -> str | None:
    """The value of the records that these tests write: short, and without headers."""
    if is_tombstone:
        return None
    key_length = max(rest[0] >> 1, 0) if not rest[0] & 1 else 0
    at = 1 + key_length
    return rest[at + 1 : at + 1 + (rest[at] >> 1)].decode()


def headers(log: PartitionLog) -> list[tuple[int, int, int]]:
    """Base offset, next offset and number of records of every batch."""
    data = b"".join(file.read(at, length) for file, at, length in log.locate(0, 1 << 30, log.log_end_offset))
    return [(header.base_offset, header.next_offset, header.records_count) for _, header in iter_batches(data)]


# --- what stays


@in_loop
async def test_of_each_key_the_latest_record_stays_at_its_offset(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await write(log, 0, batch(("a", "1"), ("b", "1"), ("a", "2")), batch(("c", "1")), batch(("a", "3"), ("b", "2")))
    assert await compact(log, tmp_path)
    await write(log, 0, batch(("c", "2")))
    assert content(log) == [(3, "c", "1"), (4, "a", "3"), (5, "b", "2"), (6, "c", "2")]
    assert (log.log_start_offset, log.log_end_offset, log.cleaned_to) == (0, 7, 6)
    assert headers(log) == [(0, 3, 0), (3, 4, 1), (4, 6, 2), (6, 7, 1)]  # the first is where the epoch begins


@in_loop
async def test_a_later_pass_takes_what_the_first_one_left(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await write(log, 0, batch(("a", "1")), batch(("b", "1")))
    assert await compact(log, tmp_path)
    assert content(log) == [(0, "a", "1"), (1, "b", "1")]
    await write(log, 0, batch(("a", "2")))
    assert await compact(log, tmp_path)
    assert content(log) == [(1, "b", "1"), (2, "a", "2")]


@in_loop
async def test_segments_that_fit_become_one_and_readers_of_the_old_ones_read_on(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await write(log, 0, *(batch(("key", f"{number:050d}")) for number in range(20)))
    assert len(log.segments) > 4
    before = log.locate(0, 1 << 30, log.log_end_offset)
    whole = b"".join(file.read(at, length) for file, at, length in before)
    assert await compact(log, tmp_path)
    assert len(log.segments) == 2
    assert b"".join(file.read(at, length) for file, at, length in before) == whole
    assert [offset for offset, _, _ in content(log)] == [19]
    assert sorted(path.name for path in (tmp_path / DIRECTORY).glob("*.log*")) == [
        "00000000000000000000.log",
        "00000000000000000020.log",
    ]


@in_loop
async def test_a_pass_that_changes_nothing_replaces_nothing(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await write(log, 0, batch(("a", "1")))
    log.roll()
    kept = log.segments[0]
    assert await compact(log, tmp_path)
    assert log.segments[0] is kept
    assert not list((tmp_path / DIRECTORY).glob("*.cleaned"))


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@in_loop
async def test_compressed_batches_are_opened_and_compressed_again(tmp_path: Path, codec: int) -> None:
    log = await open_log(tmp_path)
    await write(log, 0, batch(("a", "1"), ("b", "1"), codec=codec), batch(("a", "2"), codec=codec))
    assert await compact(log, tmp_path)
    assert content(log) == [(1, "b", "1"), (2, "a", "2")]
    data = log.read(0, 1 << 20, log.log_end_offset)
    assert [header.compression for _, header in iter_batches(data)] == [codec, codec]


@in_loop
async def test_records_without_a_key_go(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await write(log, 0, batch((None, "1"), ("a", "1")), batch(("b", "1")))
    assert await compact(log, tmp_path)
    assert content(log) == [(1, "a", "1"), (2, "b", "1")]


@pytest.mark.parametrize("codec", [0, 1])
def test_a_compacted_topic_takes_no_record_without_a_key(codec: int) -> None:
    for pairs, refused in (((("a", "1"), (None, "2")), True), ((("a", "1"), ("", None)), False)):
        data = bytes(batch(*pairs, codec=codec))
        ((_, header),) = iter_batches(data)
        claims = _claims(header)
        if not refused:
            assert admit_keyed(claims, memoryview(data)[BATCH_HEADER_SIZE:]) == 1000
            continue
        with pytest.raises(ProtocolError) as found:
            admit_keyed(claims, memoryview(data)[BATCH_HEADER_SIZE:])
        assert found.value.code is ErrorCode.INVALID_RECORD


def test_a_compressed_batch_is_opened_once(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    def watched(codec: int, data: bytes) -> bytes:
        opened.append(codec)
        return open_records(codec, data)

    monkeypatch.setattr(validation, "open_records", watched)
    data = bytes(batch(("a", "1"), ("b", "2"), codec=1))
    ((_, header),) = iter_batches(data)
    assert admit_keyed(_claims(header), memoryview(data)[BATCH_HEADER_SIZE:]) == 1000
    assert opened == [1]


def _claims(header: BatchHeader) -> BatchClaims:
    return BatchClaims(header.base_offset, *header[5:])


# --- tombstones


@in_loop
async def test_a_tombstone_outlives_the_record_and_goes_in_a_later_pass(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await write(log, 0, batch(("x", "1")), batch(("a", "1")), batch(("a", None)))
    assert await compact(log, tmp_path, delete_retention_ms=5_000)
    assert content(log) == [(0, "x", "1"), (2, "a", None)]
    await write(log, 0, batch(("b", "1")))
    assert await compact(log, tmp_path, now_ms=NOW_MS + 4_999, delete_retention_ms=5_000)
    assert content(log) == [(0, "x", "1"), (2, "a", None), (3, "b", "1")]
    await write(log, 0, batch(("c", "1")))
    assert await compact(log, tmp_path, now_ms=NOW_MS + 5_000, delete_retention_ms=5_000)
    assert content(log) == [(0, "x", "1"), (3, "b", "1"), (4, "c", "1")]
    assert log.log_end_offset == 5


@in_loop
async def test_a_batch_with_a_tombstone_keeps_the_times_of_its_records(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await write(log, 0, batch(("a", None), ("b", "1")))
    assert await compact(log, tmp_path)
    assert log.offset_for_timestamp(1000) == (0, 1000)
    assert log.offset_for_timestamp(1001) is None
    assert log.max_timestamp_below(2) == (0, 1000)


# --- what else happens to a log meanwhile


@in_loop
async def test_a_pass_ends_when_its_segments_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.log.cleaner.COST_PER_TURN", 1)
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


@in_loop
async def test_what_was_read_before_a_truncation_replaces_nothing(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await write(log, 0, *(batch(("a", f"{number}")) for number in range(4)))
    log.roll()
    before = log.truncations
    await log.truncate_to(3)
    assert not await log.replace_segments(log.segments[:1], log.segments[-1], before)


def left_over(path: Path) -> list[str]:
    """What a pass was writing."""
    return sorted(each.name for each in (path / DIRECTORY).iterdir() if each.suffix == ".cleaned")


@pytest.mark.parametrize("reason", ["damage", "truncation", "refusal", "no descriptors"])
@in_loop
async def test_a_pass_that_comes_to_nothing_leaves_nothing_and_no_open_file(
    tmp_path: Path, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.log.cleaner.COST_PER_TURN", 1)
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


@in_loop
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


# --- epochs


@pytest.mark.conforms("K101-11")
@in_loop
async def test_epochs_begin_where_they_began_also_for_who_reads_the_log_anew(tmp_path: Path) -> None:
    log, follower = await open_log(tmp_path / "leader"), await open_log(tmp_path / "follower")
    await lead_three_epochs(log)
    entries = log.epochs.entries
    assert await compact(log, tmp_path / "leader")
    assert log.epochs.entries == entries
    data = log.read(0, 1 << 20, log.log_end_offset)
    await follower.replicate(data, limit_epoch=9)
    assert (follower.epochs.entries, follower.log_end_offset) == (entries, log.log_end_offset)
    assert content(follower) == content(log)
    await log.flush()
    again = await open_log(tmp_path / "leader", point=log.log_end_offset)
    assert again.epochs.entries == entries


async def lead_three_epochs(log: PartitionLog) -> None:
    for epoch in (1, 4, 7):
        await write(log, epoch, batch(("a", f"{epoch}")), batch(("b", f"{epoch}")))


@pytest.mark.kills("compaction_drops_epochs")
@in_loop
async def test_without_the_first_batch_of_an_epoch_a_follower_keeps_what_it_should_cut_off(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await lead_three_epochs(log)
    assert log.epochs.end_offset_for(1, log.log_end_offset) == (1, 2)
    assert await compact(log, tmp_path, drops_epochs=True)
    again = await open_log(tmp_path)
    # A follower that has offsets 2 and 3 of epoch 1, which nobody committed, would ask, and keep them.
    assert again.epochs.end_offset_for(1, again.log_end_offset) != (1, 2)


# --- producers


@in_loop
async def test_what_is_known_of_a_producer_survives_compaction_and_crash(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await write(log, 0, batch(("z", "0")))
    for number in range(8):
        await write(log, 0, batch(("a", str(number)), producer=5, sequence=number))
    await write(log, 0, batch(("a", "last")))
    assert await compact(log, tmp_path)
    assert content(log) == [(0, "z", "0"), (9, "a", "last")]
    for path in (tmp_path / DIRECTORY).glob("*.snapshot"):
        path.unlink()
    again = await open_log(tmp_path)
    for number in range(3, 8):  # the last five are known again
        await again.start_leader_epoch(1)
        info = again.append_as_leader(batch(("a", str(number)), producer=5, sequence=number), 1)
        assert (info.base_offset, info.bytes) == (number + 1, 0)
    assert again.append_as_leader(batch(("a", "8"), producer=5, sequence=8), 1).base_offset == 10


@in_loop
async def test_what_is_known_of_nobody_does_not_keep_batches(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await write(log, 0, batch(("z", "0")), batch(("a", "1"), producer=5, sequence=0), batch(("a", "2")))
    log.producers.expire(float("inf"))
    assert await compact(log, tmp_path)
    assert headers(log) == [(0, 1, 1), (2, 3, 1)]


# --- truncation and reading in what is left


@in_loop
async def test_a_truncation_into_a_hole_ends_behind_the_last_batch_before_it(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await write(log, 0, batch(("z", "0")), *(batch(("a", str(number))) for number in range(6)))
    assert await compact(log, tmp_path)
    assert headers(log) == [(0, 1, 1), (6, 7, 1)]
    assert await log.truncate_to(4) == 1
    assert log.log_end_offset == log.cleaned_to == 1
    again = await open_log(tmp_path, point=1)
    assert again.log_end_offset == 1


@in_loop
async def test_a_log_that_is_not_compacted_takes_no_holes(tmp_path: Path) -> None:
    log, strict = await open_log(tmp_path / "a"), await open_log(tmp_path / "b", LogConfig())
    await write(log, 0, batch(("z", "0")), *(batch(("a", str(number))) for number in range(6)))
    assert await compact(log, tmp_path / "a")
    info = await strict.replicate(log.read(0, 1 << 20, log.log_end_offset), limit_epoch=0)
    assert info.last_offset == 0


@in_loop
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
@in_loop
async def test_what_no_checksum_covers_is_not_written_anew_where_it_has_rotted(
    tmp_path: Path, batch_number: int, byte: int, bit: int
) -> None:
    """A segment that was closed cleanly is not read at the next start, and what a pass writes anew is believed."""
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


@in_loop
async def test_a_log_whose_epochs_are_being_cut_is_not_taken_for_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The epochs go first, then the batches: in between a pass would miss those of what is about to go."""
    monkeypatch.setattr("broker.log.cleaner.COST_PER_TURN", 1)
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


@in_loop
async def test_what_was_being_written_goes_and_what_was_being_swapped_stays(tmp_path: Path) -> None:
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


# --- which logs, and how far


class View:
    def __init__(self, size: int, next_offset: int, max_timestamp: int = 0) -> None:
        self.size, self.next_offset, self.max_timestamp = size, next_offset, max_timestamp


SEGMENTS = [View(100, 10, 100), View(300, 20, 200), View(100, 30, 300), View(50, 35, 400)]


@pytest.mark.parametrize(
    ("first_dirty", "high_watermark", "now_ms", "lag_ms", "expected"),
    [
        (0, 35, 400, 0, Cleanable(30, 1.0)),
        (10, 35, 400, 0, Cleanable(30, 0.8)),
        (20, 29, 400, 0, Cleanable(20, 0.0)),
        (10, 29, 400, 0, Cleanable(20, 0.75)),
        (0, 35, 400, 200, Cleanable(20, 1.0)),
        (0, 35, 400, 301, Cleanable(0, 0.0)),
        (0, 35, -1, 0, Cleanable(30, 1.0)),
        (0, 35, -1, 1, Cleanable(0, 0.0)),
        (30, 35, 400, 0, Cleanable(30, 0.0)),
    ],
)
def test_how_dirty_a_log_is(
    first_dirty: int, high_watermark: int, now_ms: int, lag_ms: int, expected: Cleanable
) -> None:
    assert cleanable(SEGMENTS, first_dirty, high_watermark, now_ms, lag_ms) == expected


@pytest.mark.parametrize("delay_ms", [0, 1000])
def test_what_takes_the_place_of_segments_is_on_the_disk_by_name_before_they_go(
    monkeypatch: pytest.MonkeyPatch, delay_ms: int
) -> None:
    loop = new_loop()
    disk = SimulatedDisk(loop, random.Random(0), file_system=FileSystem.STRICT)
    unlink, rename, gone = disk.unlink, disk.rename, list[str]()

    def note(path: str) -> None:
        if path in names:
            assert disk.durable(f"{names[0]}{SWAP}") is not None
            gone.append(path)

    def unlinked(path: str) -> None:
        note(path)
        unlink(path)

    def renamed(source: str, target: str) -> None:
        note(source)
        rename(source, target)

    names = [f"{DIRECTORY}/{base:020d}.log" for base in (0, 1)]

    async def life() -> None:
        disk.make_directory(DIRECTORY)
        await disk.sync_directory("")
        old = [Segment(disk, DIRECTORY, base, 200) for base in (0, 1)]
        cleaned = Segment(disk, DIRECTORY, 0, 200, suffix=CLEANED)
        cleaned.file.append([b"compacted"])
        cleaned.finish()
        await cleaned.file.sync()
        monkeypatch.setattr(disk, "unlink", unlinked)
        monkeypatch.setattr(disk, "rename", renamed)
        deleted = DeletedFiles(disk, delay_ms)
        deleted.added = lambda: None
        await swap_in(disk, DIRECTORY, cleaned, old, deleted)

    loop.run_until_complete(life())
    assert gone == names

"""Compaction of a log: the records that stay, their offsets, epochs and producers."""

import random
from pathlib import Path
from typing import Any

import pytest

from broker.errors import ErrorCode, ProtocolError
from broker.log import validation
from broker.log.deleted_files import DeletedFiles
from broker.log.log import PartitionLog
from broker.log.segment import Segment
from broker.log.segment_swap import CLEANED, SWAP, swap_in
from broker.log.validation import BatchClaims, admit_keyed
from broker.protocol.compression import open_records
from broker.protocol.records import (
    BATCH_HEADER_SIZE,
    BatchHeader,
    iter_batches,
)
from broker.replica.compactor import Cleanable, cleanable
from simulator.disk import FileSystem, SimulatedDisk
from simulator.loop import new_loop
from tests.broker.log.compacting import (
    NOW_MS,
    batch,
    compact,
    content,
    headers,
    open_log,
    write,
)
from tests.broker.log.making import DIRECTORY, in_loop

STORIES = in_loop

# --- what stays


async def test_the_latest_record_of_each_key_stays_at_its_offset(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await write(log, 0, batch(("a", "1"), ("b", "1"), ("a", "2")), batch(("c", "1")), batch(("a", "3"), ("b", "2")))
    assert await compact(log, tmp_path)
    await write(log, 0, batch(("c", "2")))
    assert content(log) == [(3, "c", "1"), (4, "a", "3"), (5, "b", "2"), (6, "c", "2")]
    assert (log.log_start_offset, log.log_end_offset, log.cleaned_to) == (0, 7, 6)
    assert headers(log) == [(0, 3, 0), (3, 4, 1), (4, 6, 2), (6, 7, 1)]  # the first is the start of the epoch


async def test_a_later_pass_compacts_the_rest_of_the_first_one(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await write(log, 0, batch(("a", "1")), batch(("b", "1")))
    assert await compact(log, tmp_path)
    assert content(log) == [(0, "a", "1"), (1, "b", "1")]
    await write(log, 0, batch(("a", "2")))
    assert await compact(log, tmp_path)
    assert content(log) == [(1, "b", "1"), (2, "a", "2")]


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


async def test_a_pass_without_changes_replaces_no_segment(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await write(log, 0, batch(("a", "1")))
    log.roll()
    kept = log.segments[0]
    assert await compact(log, tmp_path)
    assert log.segments[0] is kept
    assert not list((tmp_path / DIRECTORY).glob("*.cleaned"))


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
async def test_compressed_batches_are_opened_and_compressed_again(tmp_path: Path, codec: int) -> None:
    log = await open_log(tmp_path)
    await write(log, 0, batch(("a", "1"), ("b", "1"), codec=codec), batch(("a", "2"), codec=codec))
    assert await compact(log, tmp_path)
    assert content(log) == [(1, "b", "1"), (2, "a", "2")]
    data = log.read(0, 1 << 20, log.log_end_offset)
    assert [header.compression for _, header in iter_batches(data)] == [codec, codec]


async def test_records_without_a_key_are_removed(tmp_path: Path) -> None:
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


async def test_a_tombstone_outlives_the_record_and_is_removed_in_a_later_pass(tmp_path: Path) -> None:
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


async def test_a_batch_with_a_tombstone_keeps_the_times_of_its_records(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await write(log, 0, batch(("a", None), ("b", "1")))
    assert await compact(log, tmp_path)
    assert log.offset_for_timestamp(1000) == (0, 1000)
    assert log.offset_for_timestamp(1001) is None
    assert log.max_timestamp_below(2) == (0, 1000)


# --- epochs


@pytest.mark.conforms("K101-11")
async def test_epochs_keep_their_start_offsets_for_a_follower_and_after_a_restart(tmp_path: Path) -> None:
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
async def test_without_the_first_batch_of_an_epoch_a_follower_keeps_diverging_records(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await lead_three_epochs(log)
    assert log.epochs.end_offset_for(1, log.log_end_offset) == (1, 2)
    assert await compact(log, tmp_path, drops_epochs=True)
    again = await open_log(tmp_path)
    # A follower with the uncommitted offsets 2 and 3 of epoch 1 would query, and keep them.
    assert again.epochs.end_offset_for(1, again.log_end_offset) != (1, 2)


# --- producers


async def test_producer_state_survives_compaction_and_crash(tmp_path: Path) -> None:
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


async def test_expired_producers_do_not_retain_batches(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await write(log, 0, batch(("z", "0")), batch(("a", "1"), producer=5, sequence=0), batch(("a", "2")))
    log.producers.expire(float("inf"))
    assert await compact(log, tmp_path)
    assert headers(log) == [(0, 1, 1), (2, 3, 1)]


# --- which logs, and how far


class View:
    def __init__(self, size: int, next_offset: int, max_timestamp: int = 0) -> None:
        self.size, self.next_offset, self.max_timestamp = size, next_offset, max_timestamp


SEGMENTS: Any = [View(100, 10, 100), View(300, 20, 200), View(100, 30, 300), View(50, 35, 400)]


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
def test_the_dirty_ratio_of_a_log_is_computed(
    first_dirty: int, high_watermark: int, now_ms: int, lag_ms: int, expected: Cleanable
) -> None:
    assert cleanable(SEGMENTS, first_dirty, high_watermark, now_ms, lag_ms) == expected


@pytest.mark.parametrize("delay_ms", [0, 1000])
def test_compacted_segments_are_durable_before_the_old_ones_are_removed(
    monkeypatch: pytest.MonkeyPatch, delay_ms: int
) -> None:
    loop = new_loop()
    disk = SimulatedDisk(loop, random.Random(0), file_system=FileSystem.STRICT)
    unlink, rename, removed = disk.unlink, disk.rename, list[str]()

    def note(path: str) -> None:
        if path in names:
            assert disk.durable(f"{names[0]}{SWAP}") is not None
            removed.append(path)

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
    assert removed == names

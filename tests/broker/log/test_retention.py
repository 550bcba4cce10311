"""The segments that retention removes, and logs that start inside a segment."""

from pathlib import Path
from typing import NamedTuple

import pytest

from broker.disk import RealDisk
from broker.log.epochs import EpochEntry
from broker.log.log import PartitionLog
from broker.log.log_config import LogConfig
from broker.log.reading import OffsetOutOfRangeError
from broker.protocol.records import Record, build_batch
from broker.replica.partition import expired_below
from tests.broker.log.making import in_loop

STORIES = in_loop
NOW = 1_000_000


class Segment(NamedTuple):
    size: int
    next_offset: int
    max_timestamp: int


SEGMENTS = [Segment(100, 10, NOW - 300), Segment(100, 20, NOW - 200), Segment(100, 30, NOW - 100), Segment(50, 35, NOW)]


@pytest.mark.parametrize(
    ("retention_ms", "retention_bytes", "high_watermark", "expected"),
    [
        (-1, -1, 35, None),
        (300, -1, 35, None),
        (299, -1, 35, 10),
        (150, -1, 35, 20),
        (150, -1, 19, 10),
        (150, -1, 9, None),
        (0, -1, 35, 30),
        (-1, 350, 35, None),
        (-1, 349, 35, None),  # what is left shall not be less than was asked for
        (-1, 250, 35, 10),
        (-1, 149, 35, 20),
        (-1, 0, 35, 30),  # never the segment that grows
        (-1, 0, 20, 20),
        (250, 0, 35, 30),
    ],
)
def test_expired_segments_are_found_by_time_and_size(
    retention_ms: int, retention_bytes: int, high_watermark: int, expected: int | None
) -> None:
    found = expired_below(SEGMENTS, high_watermark, NOW, retention_ms=retention_ms, retention_bytes=retention_bytes)
    assert found == expected


def test_time_alone_takes_the_last_segment_too() -> None:
    assert expired_below(SEGMENTS, 35, NOW + 1000, retention_ms=999, retention_bytes=-1) == 35
    assert expired_below(SEGMENTS, 34, NOW + 1000, retention_ms=999, retention_bytes=-1) == 30


def test_without_timestamps_no_segment_expires() -> None:
    assert expired_below(SEGMENTS, 35, -1, retention_ms=0, retention_bytes=-1) is None
    no_timestamps = [segment._replace(max_timestamp=-1) for segment in SEGMENTS]
    assert expired_below(no_timestamps, 35, NOW, retention_ms=0, retention_bytes=-1) is None


async def a_log(path: Path, **opening: int) -> PartitionLog:
    return await PartitionLog.open(RealDisk(str(path)), "t-0", LogConfig(200, 1), clean_shutdown=False, **opening)


async def filled(path: Path) -> PartitionLog:
    """Ten batches of two records each, in the epochs 0, 3 (from offset 6) and 5 (from offset 12)."""
    log = await a_log(path)
    for number in range(10):
        epoch = 0 if number < 3 else 3 if number < 6 else 5
        await log.start_leader_epoch(epoch)
        records = [Record(0, 100 * number + index, None, b"v" * 20) for index in (1, 0)]
        log.append_as_leader(bytearray(build_batch(records)), epoch)
    await log.flush()
    return log


@pytest.mark.conforms("K101-11", "H27")
async def test_a_start_inside_a_batch_is_served_and_earlier_offsets_are_not(tmp_path: Path) -> None:
    log = await filled(tmp_path)
    before = len(log.segments)
    assert await log.advance_start(7) == 7
    assert len(log.segments) < before
    assert log.log_start_offset == 7
    assert log.epochs.entries == (EpochEntry(3, 7), EpochEntry(5, 12))
    assert log.locate(7, 1 << 20, 20)
    with pytest.raises(OffsetOutOfRangeError):
        log.locate(6, 1 << 20, 20)
    assert log.offset_for_timestamp(0) == (7, 300)
    assert await log.advance_start(3) == 7
    assert await log.advance_start(99) == 20
    assert log.log_end_offset == 20


@pytest.mark.conforms("K101-11")
@pytest.mark.parametrize("kept", [0, 7, 8, 99])
async def test_the_start_is_found_again_after_a_crash(tmp_path: Path, kept: int) -> None:
    log = await filled(tmp_path)
    await log.advance_start(7)
    first = log.segments[0].base_offset
    again = await a_log(tmp_path, start_offset=kept)
    assert again.log_start_offset == max(kept, first)
    assert again.log_end_offset == max(kept, 20), "offsets below the start were deleted: no other record gets them"
    if kept in (7, 8):
        assert again.epochs.entries == (EpochEntry(3, kept), EpochEntry(5, 12))


async def test_a_truncation_inside_the_first_batch_leaves_an_empty_log(tmp_path: Path) -> None:
    log = await filled(tmp_path)
    await log.advance_start(7)
    assert await log.truncate_to(7) == 6, "batches are never split"
    assert log.log_start_offset == log.log_end_offset == 6


async def test_the_largest_timestamp_is_found_among_committed_records(tmp_path: Path) -> None:
    log = await filled(tmp_path)
    assert log.max_timestamp_below(20) == (18, 901)
    assert log.max_timestamp_below(19) == (16, 801)
    assert log.max_timestamp_below(1) is None
    await log.advance_start(20)
    assert log.max_timestamp_below(20) is None

"""`segment.ms`: a segment is complete when a record more than this later than its first batch follows."""

import asyncio
import random
from dataclasses import replace
from pathlib import Path

import pytest

from broker.disk import RealDisk
from broker.log.log import PartitionLog
from broker.log.log_config import LogConfig
from broker.protocol.records import NO_TIMESTAMP
from simulator.disk import FileSystem, SimulatedDisk
from simulator.loop import new_loop
from tests.broker.log.making import DIRECTORY, batch, in_loop, open_log

pytestmark = pytest.mark.conforms("LOG-6")
STORIES = in_loop
AGE = LogConfig(segment_ms=1000)


def append(log: PartitionLog, timestamp: int) -> list[int]:
    """Append a record; the base offsets of the segments after it."""
    log.append_as_leader(batch("value", timestamp=timestamp), 1)
    return [segment.base_offset for segment in log.segments]


async def test_the_first_batch_and_the_new_one_decide(tmp_path: Path) -> None:
    log = await open_log(RealDisk(str(tmp_path)), AGE)
    await log.start_leader_epoch(1)
    assert append(log, 5000) == [0]
    assert append(log, 6000) == [0], "exactly segment.ms later"
    assert append(log, 1) == [0], "an earlier record completes nothing"
    assert append(log, 6001) == [0, 3]
    assert append(log, 7001) == [0, 3]
    assert append(log, 7002) == [0, 3, 5]


@pytest.mark.parametrize("held", [0, 1])
async def test_the_batches_of_one_fetch_complete_segments_as_single_ones_do(tmp_path: Path, held: int) -> None:
    log = await open_log(RealDisk(str(tmp_path)), AGE)
    times = [5000, 6000, 1, 6001, 7001, 7002]
    fetched = [batch("value", base=at, epoch=1, timestamp=time) for at, time in enumerate(times)]
    for some in (fetched[:held], fetched[held:]):
        await log.replicate(b"".join(some), 1)
    assert [segment.base_offset for segment in log.segments] == [0, 3, 5]


@pytest.mark.parametrize("clean", [True, False])
async def test_a_restart_and_a_truncation_do_not_renew_a_segment(tmp_path: Path, clean: bool) -> None:
    disk = RealDisk(str(tmp_path))
    log = await open_log(disk, AGE)
    await log.start_leader_epoch(1)
    for timestamp in (5000, 5500, 5600):
        append(log, timestamp)
    await log.truncate_to(1)
    await log.close()
    again = await open_log(disk, AGE, clean=clean)
    assert append(again, 6000) == [0]
    assert append(again, 6001) == [0, 2]
    await again.truncate_to(0)
    await again.start_leader_epoch(1)
    assert append(again, 9000) == [0]
    assert append(again, 9999) == [0], "another first batch counts"
    assert append(again, 10_001) == [0, 2]


def test_without_timestamps_the_clock_decides() -> None:
    loop = new_loop()
    disk = SimulatedDisk(loop, random.Random(0), file_system=FileSystem.EXT4)

    async def life() -> None:
        log = await PartitionLog.open(disk, DIRECTORY, AGE, clean_shutdown=False)
        await log.start_leader_epoch(1)
        await asyncio.sleep(5)
        assert append(log, NO_TIMESTAMP) == [0], "an empty segment stays"
        assert append(log, NO_TIMESTAMP) == [0, 1]
        await asyncio.sleep(0.9)
        assert append(log, NO_TIMESTAMP) == [0, 1]
        await asyncio.sleep(0.2)
        assert append(log, NO_TIMESTAMP) == [0, 1, 3]

    loop.run_until_complete(life())


async def test_followers_complete_segments_too_and_settings_can_change(tmp_path: Path) -> None:
    log = await open_log(RealDisk(str(tmp_path)), LogConfig())
    for offset, timestamp in enumerate((0, 1 << 50)):
        await log.replicate(batch("value", base=offset, epoch=1, timestamp=timestamp), 1)
    assert len(log.segments) == 1, "without a limit"
    log.configure(lambda config: replace(config, segment_ms=1000))
    await log.replicate(batch("value", base=2, epoch=1, timestamp=1 << 50), 1)
    assert [segment.base_offset for segment in log.segments] == [0, 2]

"""Segments that retention removes, and a power cut at any moment: a log starts later than before, and has no gap."""

import asyncio
import random

import pytest

from broker.log.log import PartitionLog
from broker.log.log_config import LogConfig
from broker.protocol.records import Record, build_batch, iter_batches
from simulator.disk import FileSystem, SimulatedDisk
from simulator.loop import new_loop

CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=100)
RECORDS = 40
KEPT_FROM = 30


async def written(disk: SimulatedDisk) -> PartitionLog:
    log = await PartitionLog.open(disk, "t-0", CONFIG, clean_shutdown=False)
    await log.start_leader_epoch(1)
    for number in range(RECORDS):
        log.append_as_leader(bytearray(build_batch([Record(0, 1, None, b"%d" % number)])), 1)
    await log.flush()
    return log


def after_a_cut(seed: int, file_system: FileSystem) -> PartitionLog:
    """The log that is found when the power fails while its first segments are removed."""
    loop, rng = new_loop(), random.Random(seed)
    disk = SimulatedDisk(loop, random.Random(seed), file_system=file_system)
    log = loop.run_until_complete(written(disk))
    task = loop.create_task(log.delete_segments_before(KEPT_FROM))
    loop.run_until_complete(asyncio.sleep(rng.uniform(0, 0.02)))
    disk.power_loss(rng)
    task.cancel()
    return loop.run_until_complete(PartitionLog.open(disk, "t-0", CONFIG, clean_shutdown=False, recovery_point=RECORDS))


@pytest.mark.parametrize("file_system", list(FileSystem))
def test_a_power_cut_leaves_every_record_from_the_log_start(file_system: FileSystem) -> None:
    begins = set()
    for seed in range(60):
        log = after_a_cut(seed, file_system)
        begins.add(log.log_start_offset)
        data = log.read(log.log_start_offset, 1 << 30, RECORDS)
        offsets = [header.base_offset for _, header in iter_batches(data)]
        assert offsets == list(range(log.log_start_offset, RECORDS))
        assert log.log_start_offset <= KEPT_FROM
    assert len(begins) > 3, "some cuts come before, some in the middle and some behind"

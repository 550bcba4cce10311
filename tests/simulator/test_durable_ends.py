"""The durable part of a log by the oracles' count: the records that a power cut would leave, from its start."""

import random

import pytest

from broker.log.log import PartitionLog
from simulator.disk import SimulatedDisk
from simulator.loop import new_loop
from simulator.oracles.log_copy import CopiedLog
from tests.broker.log.making import SMALL, write
from tests.simulator.storm import storm

SEVERAL_SEGMENTS = {"log.flush.interval.messages": "1", "log.segment.bytes": "4096"}


def _only_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush leaves out what was rolled since the last one."""
    flush = PartitionLog.flush

    async def planted(log: PartitionLog) -> int:
        log._unsynced.segments[:] = [log._active]
        return await flush(log)

    monkeypatch.setattr(PartitionLog, "flush", planted)


@pytest.mark.parametrize("whole", [True, False])
def test_a_log_is_durable_up_to_its_first_unsynced_record(monkeypatch: pytest.MonkeyPatch, whole: bool) -> None:
    if not whole:
        _only_the_newest(monkeypatch)
    loop = new_loop()
    disk = SimulatedDisk(loop, random.Random(0))
    copy = CopiedLog("log-0")

    async def life() -> int:
        log = await PartitionLog.open(disk, "log-0", SMALL, clean_shutdown=False)
        await write(log, 0, *map(str, range(40)))
        assert len(log.segments) > 2
        await log.flush()
        copy.follow(log)
        assert copy.end == log.log_end_offset
        assert copy.durable_end(disk) == copy.durable_end(disk), "what it remembers changes nothing"
        return log.log_end_offset

    end = loop.run_until_complete(life())
    reckoned = copy.durable_end(disk)
    disk.power_loss(random.Random(0), commit=False)
    copy.read_from(disk)
    assert (reckoned, copy.end) == ((end, end) if whole else (0, 0))


def test_segments_that_were_removed_are_not_missed() -> None:
    loop = new_loop()
    disk = SimulatedDisk(loop, random.Random(0))
    copy = CopiedLog("log-0")

    async def life() -> None:
        log = await PartitionLog.open(disk, "log-0", SMALL, clean_shutdown=False)
        await write(log, 0, *map(str, range(40)))
        await log.flush()
        copy.follow(log)
        for segment in log.segments[:-1]:
            await log.advance_start(segment.next_offset)
            assert copy.durable_end(disk) == log.log_end_offset, "no record has followed that"
            copy.follow(log)
            assert copy.durable_end(disk) == log.log_end_offset
        await write(log, 0, "later")
        copy.follow(log)
        assert copy.durable_end(disk) == log.log_end_offset - 1

    loop.run_until_complete(life())


def test_a_flush_that_omits_a_segment_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    _only_the_newest(monkeypatch)
    oracle = "committed-not-durable"
    cluster = storm(
        1, "tier_above_hw", faults=["pause"], seconds=2.5, writers=10, properties=SEVERAL_SEGMENTS, until=oracle
    )
    assert oracle in {finding.oracle for finding in cluster.watch.findings.found}

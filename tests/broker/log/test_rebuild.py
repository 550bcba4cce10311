"""A rebuild of a log during changes by others: the result agrees with the batches, or the others' state stays."""

import asyncio
from pathlib import Path

import pytest

from broker.disk import RealDisk
from broker.log import recovery
from broker.log.log import PartitionLog
from broker.log.log_config import LogConfig
from broker.protocol.records import Record, build_batch
from tests.broker.log.making import DIRECTORY, in_loop

PRODUCER = 7
CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=100)


@pytest.fixture(autouse=True)
def _pauses_behind_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "SCAN_BYTES", 1)


async def led(path: Path) -> PartitionLog:
    """Twelve batches of one producer, in two epochs and several segments."""
    log = await PartitionLog.open(RealDisk(str(path)), DIRECTORY, CONFIG, clean_shutdown=False)
    for number in range(12):
        epoch = number // 6
        if log.last_epoch != epoch:
            await log.start_leader_epoch(epoch)
        record = Record(0, 1, None, b"v" * 30)
        log.append_as_leader(
            bytearray(build_batch([record], producer_id=PRODUCER, producer_epoch=0, base_sequence=number)), epoch
        )
    await log.flush()
    log.epochs.clear()
    log.producers = type(log.producers)()
    assert len(log.segments) > 3
    return log


@pytest.mark.conforms("K704-5")
@in_loop
async def test_rebuilt_epochs_and_producers_agree_with_the_batches(tmp_path: Path) -> None:
    log = await led(tmp_path)
    assert await log.rebuild(5, lambda: True)
    assert log.epochs.entries == ((0, 0), (1, 6), (5, 12))
    assert log.producers.find(PRODUCER) is not None


@pytest.mark.conforms("K704-9", "K101-1")
@in_loop
async def test_changes_of_a_later_role_during_a_rebuild_are_kept(tmp_path: Path) -> None:
    """The role ends at any moment of the rebuild: its successor truncates the log and starts an epoch of its own."""
    outcomes = set()
    for turns in range(60):
        log = await led(tmp_path / str(turns))
        wanted = True
        reading = asyncio.create_task(log.rebuild(5, lambda: wanted))  # noqa: B023 - asked in this turn only
        for _ in range(turns):
            await asyncio.sleep(0)
        if log.last_epoch == 5:
            assert await reading
            outcomes.add(True)
            continue
        wanted = False
        await log.truncate_to(2)
        await log.start_leader_epoch(6)
        assert not await reading
        assert log.epochs.entries == ((6, 2),)
        assert log.producers.find(PRODUCER) is None
        outcomes.add(False)
    assert outcomes == {True, False}

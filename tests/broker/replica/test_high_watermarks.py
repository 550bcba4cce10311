"""The stored high watermarks of a broker: never beyond the end of the remaining log."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.disk import RealDisk
from broker.log.checkpoint import OffsetCheckpoint
from broker.replica.offset_checkpoints import HIGH_WATERMARKS_FILE, HighWatermarks
from broker.trace import Tracer
from tests.broker.replica.cluster import TOPIC, Cluster, tell, until
from tests.stories import played_by, run_by

KEY = (TOPIC, 0)


def on_disk(root: Path) -> dict[tuple[str, int], int]:
    return OffsetCheckpoint(RealDisk(str(root)), HIGH_WATERMARKS_FILE).read()


def isr(cluster: Cluster) -> set[int]:
    return set(cluster.committed.topics[TOPIC].partitions[0].isr)


@pytest.mark.conforms("K101-15")
@played_by(tell, "tmp_path", high_watermark_checkpoint_interval_ms=60000, replica_lag_time_max_ms=20000)
async def test_a_high_watermark_from_before_a_lossy_truncation_is_not_used_after_a_restart(
    cluster: Cluster, /, tmp_path: Path
) -> None:
    await cluster.start(1, 2, 3)
    await cluster.create_topic([1, 2, 3])
    await cluster.nodes[1].produce("a", "b")
    await until(lambda: all(node.partition().high_watermark == 2 for node in cluster.nodes.values()))
    cluster.cut |= {(1, 2), (2, 1), (1, 3), (3, 1)}
    cluster.elect(2, isr=[2, 3])
    await cluster.hear(2, 3)
    await cluster.nodes[2].produce(*"cdefghij")
    await cluster.nodes[2].manager._high_watermarks.write_durably()
    assert on_disk(tmp_path / "n2") == {KEY: 10}
    cluster.elect(1, uncleanly=True)
    await cluster.hear()  # before the links are restored: no replica fetches under the old epoch now
    cluster.cut.clear()
    await until(lambda: isr(cluster) == {1, 2, 3})
    cluster.cut |= {(1, 3), (3, 1)}  # 3 is in the ISR, and slow: nothing more is committed
    for number in range(12):
        await cluster.nodes[1].produce(f"k{number}", acks=1)
    await until(lambda: cluster.nodes[2].partition().log.log_end_offset == 14)
    await cluster.kill(2)
    await cluster.start(2)
    assert cluster.nodes[2].partition().log.log_end_offset == 14
    assert cluster.nodes[2].partition().high_watermark <= cluster.nodes[1].partition().high_watermark == 2


@played_by(tell, "tmp_path", high_watermark_checkpoint_interval_ms=60000)
async def test_records_missing_after_recovery_stay_uncommitted_for_a_later_process(
    cluster: Cluster, /, tmp_path: Path
) -> None:
    await cluster.start(1)
    await cluster.create_topic([1])
    await cluster.nodes[1].produce("a")
    await cluster.nodes[1].produce("b")
    await cluster.nodes[1].manager._high_watermarks.write_durably()
    await cluster.kill(1)
    log = tmp_path / "n1" / f"{TOPIC}-0" / f"{0:020}.log"
    log.write_bytes(log.read_bytes()[:-1])
    await cluster.start(1)
    assert cluster.nodes[1].partition().log.log_end_offset == 1
    assert cluster.nodes[1].partition().high_watermark == 1
    assert on_disk(tmp_path / "n1") == {KEY: 1}, "before anything is fetched to where the record was"


def replica(high_watermark: int, kept_end: int) -> Any:
    return SimpleNamespace(key=KEY, high_watermark=high_watermark, log=SimpleNamespace(kept_end=kept_end))


def written_by(disk: RealDisk, *replicas: Any) -> HighWatermarks:
    return HighWatermarks(disk, lambda: replicas, Tracer(1, lambda: 0, lambda _: None))


@run_by(asyncio.run)
async def test_a_cut_waits_for_the_write_that_is_under_way_and_takes_it_back(tmp_path: Path) -> None:
    disk, log = RealDisk(str(tmp_path)), replica(10, 10)
    marks = written_by(disk, log)
    raising = asyncio.create_task(marks.write_durably())
    await asyncio.sleep(0)
    log.log.kept_end = 4
    await marks.lower(KEY, 4)
    assert raising.done()
    assert on_disk(tmp_path) == {KEY: 4}
    disk.close()


@run_by(asyncio.run)
async def test_unchanged_high_watermarks_are_not_written(tmp_path: Path) -> None:
    disk, log = RealDisk(str(tmp_path)), replica(3, 10)
    await written_by(disk, log).write_durably()
    before = (tmp_path / HIGH_WATERMARKS_FILE).stat().st_ino
    again = written_by(disk, log)
    await again.forget_what_is_lost()
    await again.lower(KEY, 3)
    await again.write_durably()
    assert (tmp_path / HIGH_WATERMARKS_FILE).stat().st_ino == before
    disk.close()

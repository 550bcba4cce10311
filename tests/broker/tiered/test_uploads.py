"""The upload of a stretch that starts inside a local segment, because the log starts there."""

import asyncio
from pathlib import Path

import pytest

from broker.disk import RealDisk
from broker.log.log import PartitionLog
from broker.log.log_config import LogConfig
from broker.protocol.records import Record, build_batch
from broker.tiered.object_store import DirectoryStore
from broker.tiered.remote_index import RemoteIndex
from broker.tiered.segments import INDEX, RemotePartition
from broker.tiered.uploads import MissingStretch, SourceGoneError, Upload
from tests.stories import run_by

TIMESTAMPS = (3_000, 1_000, 2_000, 500)
PARTITION = RemotePartition("log", b"0123456789abcdef", 0)


async def closed_log(path: Path) -> PartitionLog:
    """A log whose first segment has a batch for each timestamp, in ms; its index knows each batch."""
    config = LogConfig(index_interval_bytes=1)
    log = await PartitionLog.open(RealDisk(str(path)), "log-0", config, clean_shutdown=False)
    await log.start_leader_epoch(0)
    for timestamp in TIMESTAMPS:
        log.append_as_leader(bytearray(build_batch([Record(0, timestamp, None, b"value")])), 0)
    log.roll()
    await log.flush()
    return log


@pytest.mark.parametrize(
    ("first", "largest", "before"),
    [(0, 3_000, [-1, 3_000, 3_000, 3_000, 3_000]), (1, 2_000, [-1, 1_000, 2_000, 2_000]), (3, 500, [-1, 500])],
)
@run_by(asyncio.run)
async def test_timestamps_of_a_stretch_exclude_the_batches_before_it(
    tmp_path: Path, first: int, largest: int, before: list[int]
) -> None:
    log = await closed_log(tmp_path)
    (tmp_path / "store").mkdir()
    store = DirectoryStore(str(tmp_path / "store"))
    upload = Upload(log, MissingStretch(log.segments[0], first))
    await upload.read_timestamps()
    segment = upload.remote_segment("ab" * 16, PARTITION, broker=1, epoch=0)
    assert (segment.base_offset, segment.max_timestamp) == (first, largest)
    segment = await upload.put(store, "cluster", segment)
    data = await store.get(segment.object_name("cluster", INDEX), 0, 1 << 20)
    assert [entry.timestamp for entry in RemoteIndex.decode(data)._entries] == before
    await log.close()


@run_by(asyncio.run)
async def test_a_stretch_of_a_removed_segment_is_not_read(tmp_path: Path) -> None:
    log = await closed_log(tmp_path)
    upload = Upload(log, MissingStretch(log.segments[0], 1))
    await log.advance_start(4)
    with pytest.raises(SourceGoneError):
        await upload.read_timestamps()

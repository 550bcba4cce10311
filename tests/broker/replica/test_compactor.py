"""The stored ends of compaction: never beyond the records that a truncation has left."""

import asyncio

import pytest

from broker.log.log import PartitionLog
from broker.protocol.records import Record, build_batch
from broker.replica.compactor import CHECKPOINT_FILE, Compactor
from broker.replica.partition_work import PartitionWork
from broker.topic_settings import TopicSettings
from tests.broker.replica.test_followed_partition import Bench, tell
from tests.stories import played_by

STORIES = played_by(tell, "tmp_path")
COMPACTED = "0\n1\nlog 0 4\n"


def keyed(epoch: int, *offsets: int) -> bytes:
    """One record at each offset, one batch each, of a key of its own."""
    return b"".join(
        build_batch([Record(0, 0, b"%d" % offset, b"v")], base_offset=offset, leader_epoch=epoch) for offset in offsets
    )


async def compacted(bench: Bench) -> Compactor:
    """A follower's log of six records with the first four compacted."""
    it = await bench.fetching(3)
    await it.append(keyed(3, 0, 1, 2, 3), high_watermark=4)
    log = bench.partition.log
    log.roll()
    it.fetch_offset = log.log_end_offset
    await it.append(keyed(3, 4, 5), high_watermark=4)
    await log.flush()
    made = compactor(bench)
    await made.start()
    await made.compact()
    assert (bench.path.parent / CHECKPOINT_FILE).read_text() == COMPACTED
    return made


def compactor(bench: Bench) -> Compactor:
    partition = bench.partition
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    partition.configure(TopicSettings.of(settings, bench.config))
    made = Compactor(disk=bench.disk, work=PartitionWork(), partitions=lambda: [partition], now_ms=lambda: 1)

    async def lower(offset: int) -> None:
        await made.lower(partition.key, offset)

    partition.log.before_cut = lower
    return made


@pytest.mark.parametrize("passes", [0, 1])
async def test_records_after_a_truncation_are_compacted_after_a_kill(bench: Bench, /, passes: int) -> None:
    made = await compacted(bench)
    cut = bench.partition.log._cut
    seen: list[str] = []

    def watched(end: int) -> None:
        seen.append((bench.path.parent / CHECKPOINT_FILE).read_text())
        cut(end)

    bench.partition.log._cut = watched  # type: ignore[method-assign]
    await bench.partition.log.truncate_to(1)
    assert seen == ["0\n1\nlog 0 1\n"], "it is lowered first"
    for _ in range(passes):
        await made.compact()
    it = await bench.fetching(4)
    await it.append(keyed(4, 1, 2, 3, 4), high_watermark=5)
    await bench.partition.log.flush()
    await bench.open(checkpoint=5)
    await compactor(bench).start()
    assert bench.partition.log.cleaned_to == 1


async def test_a_pass_that_ends_during_a_truncation_records_the_remaining_end(bench: Bench, /) -> None:
    made = await compacted(bench)
    log = bench.partition.log
    writing, go = asyncio.Event(), asyncio.Event()

    async def held(offset: int) -> None:
        await made.lower(bench.partition.key, offset)
        writing.set()
        await go.wait()

    async def cut() -> int:
        async with bench.partition.lock:
            return await log.truncate_to(1)

    log.before_cut = held
    cutting = asyncio.create_task(cut())
    await writing.wait()
    log.cleaned_to = 4  # as a pass does that has found nothing to change
    await made.compact()
    assert (bench.path.parent / CHECKPOINT_FILE).read_text() == "0\n1\nlog 0 1\n"
    go.set()
    assert await cutting == 1
    assert log.cleaned_to == 1


async def test_a_crash_lowers_the_compaction_checkpoint_to_the_remaining_log(bench: Bench, /) -> None:
    await compacted(bench)
    for name in sorted(bench.path.glob("*.log"))[1:]:
        name.unlink()
    first = bench.path / f"{0:020}.log"
    first.write_bytes(first.read_bytes()[:-1])
    await bench.open()
    end = bench.partition.log.log_end_offset
    assert end < 4
    await compactor(bench).start()
    assert (bench.path.parent / CHECKPOINT_FILE).read_text() == f"0\n1\nlog 0 {end}\n"


async def test_an_uncompacted_log_writes_no_checkpoint(bench: Bench, /) -> None:
    it = await bench.fetching(3)
    await it.append(keyed(3, 0, 1), high_watermark=2)
    await compactor(bench).start()
    await bench.partition.log.truncate_to(1)
    assert isinstance(bench.partition.log, PartitionLog)
    assert not (bench.path.parent / CHECKPOINT_FILE).exists()

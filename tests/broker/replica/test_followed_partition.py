"""A partition's real log under the follower's hand: late answers, batches that do not fit, power cuts in between."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from broker.config import BrokerConfig, Endpoint
from broker.controller.image import PartitionImage
from broker.disk import RealDisk
from broker.errors import ErrorCode
from broker.listeners import plaintext
from broker.log.log import PartitionLog
from broker.log.log_config import LogConfig
from broker.protocol.records import Record, build_batch, parse_header
from broker.replica.background import Background
from broker.replica.followed_partition import FollowedPartition
from broker.replica.follower import AskEpochEnd, Phase
from broker.replica.partition import Partition
from broker.trace import Tracer
from tests.stories import played_by


def batches(*epochs: int, base: int = 0) -> bytes:
    """One record per epoch given, one batch each, as a leader sends them."""
    return b"".join(
        build_batch([Record(0, 0, None, b"%d" % offset)], base_offset=offset, leader_epoch=epoch)
        for offset, epoch in enumerate(epochs, base)
    )


class Bench:
    """One follower, its directory, and what went wrong with the disk."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.path = path / "log-0"
        self.disk = RealDisk(str(path))
        self.config = BrokerConfig(
            node_id=2,
            listeners=(plaintext("h", 9092),),
            voters=(Endpoint(1, "h", 9092),),
            log_dir=str(path),
            **settings,
        )
        self.failures: list[OSError] = []
        self.events: list[dict[str, Any]] = []

    async def open(self, checkpoint: int = 0) -> Partition:
        self.partition = Partition(
            topic="log",
            index=0,
            topic_id=b"0123456789abcdef",
            log=await PartitionLog.open(self.disk, "log-0", LogConfig(), clean_shutdown=False),
            high_watermark=checkpoint,
            config=self.config,
            tracer=Tracer(2, lambda: 0, self.events.append),
            background=Background(),
            on_disk_failure=self.failures.append,
        )
        return self.partition

    async def follow(self, leader_epoch: int, leader: int = 1) -> FollowedPartition:
        state = PartitionImage(leader, leader_epoch, leader_epoch, (1, 2), (1, 2))
        return FollowedPartition(self.partition, await self.partition.follow(state))

    async def fetching(self, leader_epoch: int) -> FollowedPartition:
        """A follower whose log matches the leader's as it is."""
        it = await self.follow(leader_epoch)
        question = await it.next_question()
        if question is not None:
            await it.epoch_end_answered(question.epoch, self.partition.log.log_end_offset)
        assert it.follower.phase is Phase.FETCHING
        it.fetch_offset = self.partition.log.log_end_offset
        return it

    @property
    def epoch_file(self) -> list[str]:
        return (self.path / "leader-epoch-checkpoint").read_text().splitlines()[2:]


def tell(path: Path, story: Callable[[Bench], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        bench = Bench(path, **settings)
        await bench.open()
        try:
            await story(bench)
        finally:
            bench.disk.close()

    asyncio.run(run())


STORIES = played_by(tell, "tmp_path")


@pytest.mark.conforms("H11")
async def test_batches_of_an_unknown_epoch_are_omitted(bench: Bench, /) -> None:
    it = await bench.fetching(3)
    await it.append(batches(2, 3, 4), high_watermark=3)
    assert bench.partition.log.log_end_offset == 2
    assert it.follower.high_watermark == 2


@pytest.mark.conforms("H11")
@pytest.mark.parametrize("damage", ["crc", "gap"])
async def test_a_batch_that_does_not_fit_is_refused(bench: Bench, /, damage: str) -> None:
    it = await bench.fetching(3)
    sent = bytearray(batches(3, base=1 if damage == "gap" else 0))
    if damage == "crc":
        sent[-1] ^= 1
    with pytest.raises(ValueError, match=r"CRC|cannot follow"):
        await it.append(sent, high_watermark=1)
    assert bench.partition.log.log_end_offset == 0
    assert it.follower.high_watermark == 0


@pytest.mark.conforms("H11", "H7")
async def test_an_answer_that_belongs_to_an_earlier_role_is_dropped(bench: Bench, /) -> None:
    late = await bench.fetching(3)
    await late.append(batches(3), high_watermark=0)
    late.fetch_offset = 1
    await bench.follow(4)
    await late.append(batches(3, base=1), high_watermark=2)
    await late.epoch_end_answered(3, 0)
    assert not late.current
    assert bench.partition.log.log_end_offset == 1
    assert bench.partition.high_watermark == 0


@pytest.mark.conforms("H7", "K101-7")
@pytest.mark.parametrize("does", ["append", "truncate"])
async def test_a_role_that_ended_while_waiting_for_the_log_leaves_it_unchanged(bench: Bench, /, does: str) -> None:
    before = await bench.fetching(3)
    await before.append(batches(3), high_watermark=0)
    late = await (bench.fetching(4) if does == "append" else bench.follow(4))
    async with bench.partition.lock:
        following = asyncio.create_task(bench.follow(5))
        await asyncio.sleep(0)
        assert late.current, "the new role waits for the log, too"
        answer = late.append(batches(4, base=1), 2) if does == "append" else late.epoch_end_answered(3, 0)
        waiting = asyncio.create_task(answer)
        await asyncio.sleep(0)
    await following
    await waiting
    assert (bench.partition.log.log_end_offset, bench.epoch_file) == (1, ["3 0"])


@pytest.mark.conforms("K101-8")
async def test_a_new_epoch_is_in_the_file_before_its_records_are_in_the_log(bench: Bench, /) -> None:
    it = await bench.fetching(3)
    log = bench.partition.log
    seen: list[tuple[list[str], int]] = []
    write = log.epochs.write_durably

    async def watched() -> None:
        await write()
        seen.append((bench.epoch_file, log.log_end_offset))

    log.epochs.write_durably = watched  # type: ignore[method-assign]
    await it.append(batches(3, 3), high_watermark=0)
    assert seen == [(["3 0"], 0)]
    assert log.log_end_offset == 2


@pytest.mark.conforms("K101-8")
async def test_no_new_role_starts_between_an_epoch_and_its_records(bench: Bench, /) -> None:
    it = await bench.fetching(3)
    appending = asyncio.ensure_future(it.append(batches(3), high_watermark=0))
    await asyncio.sleep(0)  # it waits for the epoch file now
    await bench.follow(4)
    assert bench.partition.log.log_end_offset == 1
    await appending
    assert bench.partition.log.log_end_offset == 1


@pytest.mark.conforms("K101-7", "H8")
async def test_a_truncation_trims_epochs_first_and_persists_over_a_restart(bench: Bench, /) -> None:
    it = await bench.fetching(5)
    await it.append(batches(2, 2, 4), high_watermark=1)
    it = await bench.follow(6)
    assert await it.next_question() == AskEpochEnd(4)
    await it.epoch_end_answered(2, 1)  # the leader has epoch 2 up to 1, and nothing of 4
    assert it.follower.phase is Phase.FETCHING
    assert bench.epoch_file == ["2 0"]
    partition = await bench.open()
    assert partition.log.log_end_offset == 1
    assert partition.log.epochs.latest_epoch == 2
    (cut,) = [event for event in bench.events if event["event"] == "truncated" and event["leader_epoch"] == 6]
    assert (cut["from_offset"], cut["to_offset"], cut["rule"], cut["lossy"]) == (3, 1, "epoch", False)


@pytest.mark.conforms("H9")
async def test_a_full_truncation_raises_the_high_watermark_to_the_new_start(bench: Bench, /) -> None:
    it = await bench.fetching(3)
    await it.append(batches(3), high_watermark=1)
    assert await it.out_of_range(leader_log_start=40)
    log = bench.partition.log
    assert (log.log_start_offset, log.log_end_offset, bench.partition.high_watermark) == (40, 40, 40)
    assert bench.epoch_file == []


async def test_a_disk_error_ends_the_partition_and_is_reported(bench: Bench, /) -> None:
    it = await bench.fetching(3)

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    bench.partition.log.append_as_follower = fail  # type: ignore[method-assign, assignment]
    await it.append(batches(3), high_watermark=0)
    assert [error.errno for error in bench.failures] == [5]
    assert bench.partition.role is None
    assert bench.partition.error is ErrorCode.KAFKA_STORAGE_ERROR


@played_by(tell, "tmp_path", log_flush_interval_messages=1)
async def test_with_a_required_flush_acks_1_means_durable(bench: Bench, /) -> None:
    partition = bench.partition
    await partition.lead(PartitionImage(2, 1, 1, (2,), (1, 2)), 1)
    appended = [partition.append(bytearray(batches(0)), acks, 5.0) for acks in (0, 1, -1)]
    assert appended[0].done is None
    assert partition.leader.high_watermark == 0
    for it in appended[1:]:
        assert it.done is not None
        assert await it.done is ErrorCode.NONE
    assert partition.log.durable_end_offset == partition.leader.high_watermark == 3


@played_by(tell, "tmp_path", log_flush_interval_messages=1)
async def test_a_new_leader_counts_only_the_durable_part_of_its_log(bench: Bench, /) -> None:
    it = await bench.fetching(1)
    await it.append(batches(1, 1), high_watermark=0)
    assert bench.partition.log.durable_end_offset == 0
    await bench.partition.lead(PartitionImage(2, 2, 2, (2,), (1, 2)), 1)
    assert bench.partition.log.durable_end_offset == bench.partition.leader.high_watermark == 2


@played_by(tell, "tmp_path", log_flush_interval_messages=1)
async def test_a_failed_flush_acknowledges_no_record(bench: Bench, /) -> None:
    partition = bench.partition
    await partition.lead(PartitionImage(2, 1, 1, (2,), (1, 2)), 1)

    async def fail() -> int:
        raise OSError(5, "Input/output error")

    partition.log.flush = fail  # type: ignore[method-assign, assignment]
    appended = partition.append(bytearray(batches(0)), -1, 5.0)
    assert appended.done is not None
    assert await appended.done is ErrorCode.REQUEST_TIMED_OUT
    assert partition.high_watermark == 0
    assert len(bench.failures) == 1


@pytest.mark.conforms("K101-12")
async def test_a_high_watermark_above_the_recovered_log_is_lowered(bench: Bench, /) -> None:
    it = await bench.fetching(3)
    await it.append(batches(3, 3), high_watermark=2)
    segment = bench.path / "00000000000000000000.log"
    segment.write_bytes(segment.read_bytes()[:-1])
    partition = await bench.open(checkpoint=2)
    assert partition.log.log_end_offset == partition.high_watermark == 1


@pytest.mark.conforms("K101-1")
async def test_a_leader_stamps_its_epoch_over_the_producers(bench: Bench, /) -> None:
    partition = bench.partition
    await partition.lead(PartitionImage(2, 7, 1, (2,), (1, 2)), 1)
    partition.append(bytearray(batches(3)), 1, 5.0)
    stored = parse_header(partition.log.read(0, 1 << 20, 1))
    assert (stored.base_offset, stored.leader_epoch) == (0, 7)


async def test_a_start_under_a_former_leader_reports_no_epoch_of_it(bench: Bench, /) -> None:
    """The answer of the object store came after the next leader's epoch had started."""
    former = await bench.follow(2)
    latest = await bench.follow(3)
    former.waits_for("no progress for 3 s")
    latest.waits_for("the leader does not know yet what it has in remote storage")
    waits = [event["leader_epoch"] for event in bench.events if event["event"] == "bootstrap_waits"]
    assert waits == [3]

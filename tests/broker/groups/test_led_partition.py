"""A coordinator answers while it leads the partition and after it has read its committed records."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest

from broker.controller.image import MetadataImage
from broker.coordinator.group_coordinator import GroupCoordinator
from broker.coordinator.led_partition import LedPartition
from broker.coordinator.offsets_topic import OFFSETS_TOPIC
from broker.errors import ErrorCode, ProtocolError
from broker.groups.commits import answer_to_all
from broker.groups.group_settings import GroupSettings
from broker.groups.shard import Shard
from broker.mutants import Mutants
from broker.protocol.messages.group_records import OffsetCommitKey, OffsetCommitValue, record
from broker.protocol.messages.metadata_records import MetadataRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from broker.protocol.messages.offset_apis import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from broker.protocol.records import Record, build_batch
from broker.protocol.schema import Topic
from broker.replica.background import Background
from broker.replica.partition import Partition
from tests.broker.replica.cluster import TOPIC, Cluster, Node, until
from tests.stories import played_by, run_by

STORIES = run_by(asyncio.run)
OFFSETS_ID = b"id of offsets   "


def coordinator(
    node: Node, *, shard: Shard | None = None, reading: asyncio.Lock | None = None, defects: list[str] | None = None
) -> LedPartition:
    """That of the partition that a broker leads."""
    return LedPartition(
        node.partition(),
        node.leader,
        shard or Shard(GroupSettings(), random.Random(1), lambda: 0, lambda *_: True),
        lease_valid=lambda: True,
        wall_ms=lambda: 0,
        commit_timeout_s=5.0,
        max_batch_bytes=1 << 20,
        background=Background(None if defects is None else lambda text, _: defects.append(text)),
        reading=reading or asyncio.Lock(),
        acknowledges_early=False,
    )


def refusal(led: LedPartition) -> ErrorCode:
    with pytest.raises(ProtocolError) as refused:
        led.check()
    return refused.value.code


@pytest.mark.conforms("CG-4")
async def test_a_coordinator_answers_from_committed_records_while_it_leads(tmp_path: Path) -> None:
    async with Cluster(tmp_path, replica_fetch_wait_max_ms=60_000, replica_lag_time_max_ms=60_000) as cluster:
        await cluster.start(1, 2)
        await cluster.create_topic([1, 2])
        key, value = record(OffsetCommitKey("g", "t", 0), OffsetCommitValue(7, -1, "", 0))
        batch = bytearray(build_batch([Record(0, 0, key, value)]))
        assert (await cluster.nodes[1].manager.produce(TOPIC, 0, batch, -1, 5.0)).error is ErrorCode.NONE
        cluster.cut.add((1, 2))
        cluster.elect(2)
        await cluster.hear()
        led = coordinator(cluster.nodes[2])
        for _ in range(10):
            await asyncio.sleep(0)  # it could have read all there is
        assert refusal(led) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "it has not heard that the record is committed"
        cluster.cut.clear()
        await until(lambda: led.loaded)
        led.check()
        asked = OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopic("t", [0])])
        assert led.shard.fetch(asked).topics[0].partitions[0].committed_offset == 7
        cluster.elect(1)
        await cluster.hear()
        assert refusal(led) is ErrorCode.NOT_COORDINATOR
        led.close()


def an_offset(group: str, offset: int) -> bytearray:
    """A batch with one offset of partition 0 of topic t."""
    key, value = record(OffsetCommitKey(group, "t", 0), OffsetCommitValue(offset, -1, "", 0))
    return bytearray(build_batch([Record(0, 0, key, value)]))


@contextlib.asynccontextmanager
async def without_answers_of_the_follower(directory: Path) -> AsyncIterator[tuple[Cluster, Node, LedPartition]]:
    """A led partition whose commits wait, because the other replica gets no record."""
    async with Cluster(directory, replica_fetch_wait_max_ms=60_000, replica_lag_time_max_ms=60_000) as cluster:
        await cluster.start(1, 2)
        await cluster.create_topic([1, 2])
        led = coordinator(cluster.nodes[1])
        await until(lambda: led.loaded)
        cluster.cut.add((2, 1))
        yield cluster, cluster.nodes[1], led


async def test_a_commit_that_is_answered_late_and_committed_in_the_same_turn_is_shown(tmp_path: Path) -> None:
    async with without_answers_of_the_follower(tmp_path) as (cluster, node, led):
        place = OffsetCommitRequestPartition(0, 7, -1, "")
        request = OffsetCommitRequest("g", -1, "", topics=[Topic("t", [place])])
        answer = led.ask(
            lambda now, ticket: led.shard.commit(now, ticket, request), lambda code: answer_to_all(request, code)
        )
        node.partition().commits.fail(ErrorCode.REQUEST_TIMED_OUT)
        epoch = cluster.committed.brokers[2].epoch
        node.partition().replica_fetched(2, epoch, node.partition().log.log_end_offset, 0)
        said: Any = await answer
        assert said.topics[0].partitions[0].error_code == ErrorCode.NONE
        asked = OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopic("t", [0])])
        assert led.shard.fetch(asked).topics[0].partitions[0].committed_offset == 7
        led.close()


@pytest.mark.conforms("CG-3")
async def test_the_first_of_two_pending_commits_is_shown_at_its_commit(tmp_path: Path) -> None:
    async with without_answers_of_the_follower(tmp_path) as (cluster, node, led):

        def commit(offset: int) -> asyncio.Future[Any]:
            place = OffsetCommitRequestPartition(0, offset, -1, "")
            request = OffsetCommitRequest("g", -1, "", topics=[Topic("t", [place])])
            return led.ask(
                lambda now, ticket: led.shard.commit(now, ticket, request),
                lambda code: answer_to_all(request, code),
            )

        first, second = commit(7), commit(8)
        epoch, end = cluster.committed.brokers[2].epoch, node.partition().log.log_end_offset
        node.partition().replica_fetched(2, epoch, end - 1, 0)
        await first
        assert not second.done()
        asked = OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopic("t", [0])])
        assert led.shard.fetch(asked).topics[0].partitions[0].committed_offset == 7
        node.partition().replica_fetched(2, epoch, end, 0)
        await second
        led.close()


def test_a_failed_request_leaves_no_state(tmp_path: Path) -> None:
    refused: list[ErrorCode] = []

    def refuse(code: ErrorCode) -> NoReturn:
        refused.append(code)
        raise AssertionError("no reader waits")

    def fails(_now: float, _ticket: int) -> NoReturn:
        raise ValueError("a defect")

    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            await cluster.start(1)
            await cluster.create_topic([1])
            led = coordinator(cluster.nodes[1])
            await until(lambda: led.loaded)
            with pytest.raises(ValueError, match="a defect"):
                led.ask(fails, refuse)
            led.close()

    asyncio.run(story())
    assert refused == []


class Heard(Shard):
    """Records each record that it decodes."""

    def __init__(self, heard: Callable[[], None]) -> None:
        super().__init__(GroupSettings(), random.Random(1), lambda: 0, lambda *_: True)
        self._heard = heard

    def replay(self, key: bytes, value: bytes | None) -> None:
        super().replay(key, value)
        self._heard()


def test_one_loading_coordinator_reads_in_a_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.coordinator.led_partition.LOAD_BYTES", 1)  # a batch in a turn
    reads: list[tuple[int, int]] = []
    turn = 0

    async def story() -> None:
        def heard(number: int) -> None:
            reads.append((turn, number))

        def begin_turn() -> None:
            nonlocal turn
            turn += 1
            asyncio.get_running_loop().call_soon(begin_turn)

        async with Cluster(tmp_path) as cluster:
            await cluster.start(1)
            await cluster.create_topic([1])
            for number in range(3):
                assert (
                    await cluster.nodes[1].manager.produce(TOPIC, 0, an_offset(f"g{number}", 7), -1, 5.0)
                ).error is (ErrorCode.NONE)
            cluster.elect(1)
            await cluster.hear()
            begin_turn()
            reading = asyncio.Lock()
            several = [
                coordinator(cluster.nodes[1], shard=Heard(partial(heard, number)), reading=reading)
                for number in range(4)
            ]
            await until(lambda: all(led.loaded for led in several))
            for led in several:
                led.close()

    asyncio.run(story())
    assert len(reads) == 12
    assert len({turn for turn, _ in reads}) == 12, "each has a turn for itself"
    assert [its for _, its in reads[:4]] == [0, 1, 2, 3], "no reader waits until another has read all"


def test_a_partition_revoked_during_its_load_is_not_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.coordinator.led_partition.LOAD_BYTES", 1)  # a batch in a turn
    records: list[None] = []
    defects: list[str] = []

    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            await cluster.start(1)
            await cluster.create_topic([1])
            for number in range(3):
                batch = an_offset(f"g{number}", 7)
                assert (await cluster.nodes[1].manager.produce(TOPIC, 0, batch, -1, 5.0)).error is ErrorCode.NONE
            cluster.elect(1)
            await cluster.hear()
            reading = asyncio.Lock()
            shard = Heard(lambda: records.append(None))
            async with reading:
                led = coordinator(cluster.nodes[1], shard=shard, reading=reading, defects=defects)
                await asyncio.sleep(0)
            (loading,) = (task for task in asyncio.all_tasks() if task.get_name().startswith("loading"))
            async with reading:
                assert len(records) == 1
                cluster.delete_topic()
                await cluster.hear()  # the replica is gone; the group coordinator hears of it only after that
            await asyncio.wait([loading])
            assert not led.loaded
            led.close()

    asyncio.run(story())
    assert len(records) == 1
    assert defects == []


class Broker:
    """The group coordinator of one broker. Its partition of offsets is one in which group g has committed 7 for t."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.leads = False
        self.image = MetadataImage()
        self._learn(TopicRecord(OFFSETS_TOPIC, OFFSETS_ID))
        self.hears_of_a_leader(1, node.leader.leader_epoch)
        self.hears_that_t_is_created(b"the first t     ")
        replicas: Any = self
        unused: Any = None
        self.groups = GroupCoordinator(
            config=node.config,
            replicas=replicas,
            peers=unused,
            controller_id=lambda: None,
            lease_valid=lambda: True,
            wall_ms=lambda: 0,
            rng=random.Random(1),
            tracer=unused,
            mutants=Mutants(),
            on_defect=lambda *_: None,
        )

    def partition(self, _topic: str, _index: int) -> Partition | None:
        """What the coordinator asks its replicas for."""
        return self._node.partition() if self.leads else None

    def hears_that_t_is_created(self, topic_id: bytes) -> None:
        self.topic_id = topic_id
        self._learn(TopicRecord("t", topic_id), PartitionRecord(partition_id=0, topic_id=topic_id))

    def hears_of_a_leader(self, leader: int, leader_epoch: int) -> None:
        self._learn(PartitionRecord(partition_id=0, topic_id=OFFSETS_ID, leader=leader, leader_epoch=leader_epoch))

    def hears_that_t_is_deleted(self) -> None:
        self._learn(RemoveTopicRecord(self.topic_id))

    def _learn(self, *records: MetadataRecord) -> None:
        for each in records:
            self.image.apply(each, self.image.offset + 1)

    async def commits(self, offset: int) -> ErrorCode:
        place = OffsetCommitRequestPartition(0, offset, -1, "")
        request = OffsetCommitRequest("g", -1, "", topics=[Topic("t", [place])])
        answer: Any = await self.groups.ask(
            "g",
            lambda shard, now, ticket: shard.commit(now, ticket, request),
            lambda code: answer_to_all(request, code),
        )
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    async def committed(self) -> int:
        """What the coordinator shows once it has loaded."""
        asked = OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopic("t", [0])])

        def shown() -> int | None:
            try:
                return self.groups.shard_of("g").fetch(asked).topics[0].partitions[0].committed_offset
            except ProtocolError:
                return None

        await until(lambda: shown() is not None)
        found = shown()
        assert found is not None
        return found


async def is_deleted_while_it_loads(broker: Broker) -> None:
    broker.leads = True
    broker.groups.apply(broker.image)
    broker.hears_that_t_is_deleted()
    broker.groups.apply(broker.image)


async def is_created_anew_while_it_loads(broker: Broker) -> None:
    broker.leads = True
    broker.groups.apply(broker.image)
    broker.hears_that_t_is_deleted()
    broker.hears_that_t_is_created(b"the second t    ")
    broker.groups.apply(broker.image)


async def is_deleted_with_the_change_of_leader(broker: Broker) -> None:
    broker.groups.apply(broker.image)
    broker.leads = True
    broker.hears_that_t_is_deleted()
    broker.groups.apply(broker.image)


async def is_deleted_before_the_change_of_leader(broker: Broker) -> None:
    broker.groups.apply(broker.image)
    broker.hears_that_t_is_deleted()
    broker.groups.apply(broker.image)
    broker.leads = True
    broker.groups.apply(broker.image)


async def is_created_anew_before_the_change_of_leader(broker: Broker) -> None:
    await is_deleted_before_the_change_of_leader(broker)
    broker.leads = False
    broker.hears_that_t_is_created(b"the second t    ")
    broker.groups.apply(broker.image)
    broker.leads = True
    broker.groups.apply(broker.image)


async def is_created_anew_with_the_change_of_leader(broker: Broker) -> None:
    broker.groups.apply(broker.image)
    broker.leads = True
    broker.hears_that_t_is_deleted()
    broker.hears_that_t_is_created(b"the second t    ")
    broker.groups.apply(broker.image)


async def has_never_been_heard_of(broker: Broker) -> None:
    broker.hears_that_t_is_deleted()
    broker.leads = True
    broker.groups.apply(broker.image)


def tell_of_a_broker(path: Path, story: Callable[[Broker], Awaitable[None]]) -> None:
    async def tell() -> None:
        async with Cluster(path) as cluster:
            await cluster.start(1)
            await cluster.create_topic([1])
            assert (
                await cluster.nodes[1].manager.produce(TOPIC, 0, an_offset("g", 7), -1, 5.0)
            ).error is ErrorCode.NONE
            cluster.elect(1)
            await cluster.hear()
            broker = Broker(cluster.nodes[1])
            await story(broker)
            broker.groups.stop()

    asyncio.run(tell())


BY_A_BROKER = played_by(tell_of_a_broker, "tmp_path")


@pytest.mark.parametrize(
    ("topic", "offset"),
    [
        (is_deleted_while_it_loads, -1),
        (is_created_anew_while_it_loads, -1),
        (is_deleted_with_the_change_of_leader, -1),
        (is_deleted_before_the_change_of_leader, -1),
        # The coordinator before may have taken the offset for the new topic.
        (is_created_anew_with_the_change_of_leader, 7),
        (is_created_anew_before_the_change_of_leader, 7),
        # It may only be that this broker does not know it.
        (has_never_been_heard_of, 7),
    ],
    ids=lambda it: getattr(it, "__name__", None),
)
@BY_A_BROKER
async def test_a_later_coordinator_removes_offsets_of_a_topic_deleted_before_its_term(
    broker: Broker, /, topic: Callable[[Broker], Awaitable[None]], offset: int
) -> None:
    await topic(broker)
    assert await broker.committed() == offset


@BY_A_BROKER
async def test_offsets_of_a_new_topic_are_accepted_after_those_of_its_predecessor_are_removed(
    broker: Broker, /
) -> None:
    broker.leads = True
    broker.groups.apply(broker.image)
    assert await broker.committed() == 7
    broker.hears_that_t_is_deleted()
    broker.hears_that_t_is_created(b"the second t    ")
    assert await broker.commits(1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "its replicas follow the image first"
    broker.groups.apply(broker.image)
    assert await broker.committed() == -1
    assert await broker.commits(1) is ErrorCode.NONE
    broker.groups.apply(broker.image)
    assert await broker.committed() == 1


@BY_A_BROKER
async def test_a_coordinator_refuses_offsets_after_news_of_a_later_leader(broker: Broker, /) -> None:
    broker.leads = True
    broker.groups.apply(broker.image)
    assert await broker.committed() == 7
    broker.hears_of_a_leader(2, 9)
    assert await broker.commits(8) is ErrorCode.NOT_COORDINATOR, "what it hears next, that leader may not know yet"

"""A turn of the event loop does a bounded share of any frame: counted in entries, not in seconds."""

import asyncio
from collections.abc import Iterator
from typing import Any

import cramjam
import pytest

from broker.errors import ErrorCode
from broker.log.validation import BYTES_PER_RECORD
from broker.protocol.messages.cluster_apis import MetadataRequest, MetadataRequestTopic
from broker.protocol.messages.config_apis import BROKER, TOPIC, DescribeConfigsRequest, DescribeConfigsResource
from broker.protocol.messages.credential_apis import DescribeUserScramCredentialsRequest, UserName
from broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from broker.protocol.messages.group_apis import DeleteGroupsRequest, DescribeGroupsRequest, FindCoordinatorRequest
from broker.protocol.messages.offset_apis import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from broker.protocol.messages.producer_apis import PartitionProduceData, ProduceRequest, TopicProduceData
from broker.protocol.messages.topic_apis import CreatableTopic, CreateTopicsRequest
from broker.protocol.records import Record, build_batch
from broker.protocol.request import Request
from broker.protocol.schema import Topic
from broker.server import broker_node
from broker.server.client import PeerConnector
from broker.server.dispatch import DECODED_FOR_ONE
from broker.server.work_budget import (
    ENTRIES_PER_TURN,
    EXAMINED_PER_ENTRY,
    MOST_ENTRIES_ELSEWHERE,
    UNNOTICED,
    Turns,
    Work,
)
from simulator.client import SimulatedClient
from simulator.cluster import SimulatedCluster
from tests.broker.clients.poison import ZSTD, made, record
from tests.stories import run_by

MANY = 20_000
# What decoding the frame counts for comes on top in the turn in which it arrives; so does one resource's configuration.
MOST_IN_A_TURN = ENTRIES_PER_TURN + 2 * MANY // DECODED_FOR_ONE + 50


class Counted(Turns):
    """Remembers how many entries each turn had."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: list[int] = [0]

    def spend(self, entries: int) -> None:
        super().spend(entries)
        self.turns[-1] += entries

    def _next(self) -> None:
        super()._next()
        self.turns.append(0)


def many_offsets(topics: int = 1) -> ListOffsetsRequest:
    partitions = [ListOffsetsPartition(partition_index=index % 3, timestamp=-1) for index in range(MANY // topics)]
    return ListOffsetsRequest(replica_id=-1, topics=[Topic(name="t", partitions=partitions)] * topics)


REQUESTS: dict[str, tuple[Request[Any], int]] = {
    "ListOffsets": (many_offsets(), 6),
    "ListOffsets of many topics": (many_offsets(topics=MANY), 6),
    "OffsetForLeaderEpoch": (
        OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[
                OffsetForLeaderTopic(
                    topic="t", partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=1)] * MANY
                )
            ],
        ),
        4,
    ),
    "DescribeConfigs of brokers": (
        DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=BROKER, resource_name="1")] * MANY),
        4,
    ),
    "DescribeConfigs of topics": (
        DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=TOPIC, resource_name=f"x{n}") for n in range(MANY)]
        ),
        4,
    ),
    "Metadata of the same topic": (MetadataRequest(topics=[MetadataRequestTopic(name="t")] * MANY), 12),
    "Metadata of unknown topics": (
        MetadataRequest(topics=[MetadataRequestTopic(name=f"x{n}") for n in range(MANY)]),
        12,
    ),
    "Metadata of all": (MetadataRequest(topics=None), 12),
    "FindCoordinator": (FindCoordinatorRequest(coordinator_keys=["g"] * MANY), 4),
    "FindCoordinator of long names": (FindCoordinatorRequest(coordinator_keys=["g" * 30_000] * 50), 4),
    "OffsetFetch": (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(f"g{n}", topics=[]) for n in range(MANY)]), 8),
    "DescribeGroups": (DescribeGroupsRequest(groups=[f"g{n}" for n in range(MANY)]), 5),
    "DeleteGroups": (DeleteGroupsRequest(groups_names=["g"] * MANY), 2),
}
TOO_MANY: dict[str, tuple[Request[Any], int]] = {
    "Fetch": (
        FetchRequest(topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=0)] * (MANY + 1))]),
        12,
    ),
    "Produce": (
        ProduceRequest(
            acks=-1,
            topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(records=None)] * (MANY + 1))],
        ),
        9,
    ),
    "CreateTopics": (CreateTopicsRequest(topics=[CreatableTopic(name="t")] * (MOST_ENTRIES_ELSEWHERE + 1)), 7),
}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedCluster]:
    monkeypatch.setattr(broker_node, "Turns", Counted)
    with SimulatedCluster(1, 1) as made:
        yield made


@pytest.mark.parametrize("name", REQUESTS)
def test_a_large_request_is_answered_in_turns(cluster: SimulatedCluster, name: str) -> None:
    request, version = REQUESTS[name]

    async def story() -> None:
        cluster.start()
        await cluster.ready()
        await SimulatedClient(cluster.addresses).create_topic("t", 3, 1)
        known = cluster.node("n1").image.topics["t"].partitions
        known.update(dict.fromkeys(range(3, 5_000), known[0]))
        counted = cluster.node("n1").doors.turns
        assert isinstance(counted, Counted)
        counted.turns = [0]
        peers = PeerConnector(-1, cluster.addresses, response_max_bytes=64 << 20)
        await peers.request(1, request, 30.0, version)
        assert max(counted.turns) <= MOST_IN_A_TURN
        assert sum(counted.turns) >= 4_000
        peers.close()

    cluster.run(story())


@pytest.mark.parametrize("name", TOO_MANY)
def test_more_entries_than_any_client_needs_cost_the_connection(cluster: SimulatedCluster, name: str) -> None:
    request, version = TOO_MANY[name]

    async def story() -> None:
        cluster.start()
        await cluster.ready()
        peers = PeerConnector(-1, cluster.addresses, response_max_bytes=64 << 20)
        with pytest.raises(ConnectionError):
            await peers.request(1, request, 30.0, version)
        (rejected,) = cluster.journal.of("connection_rejected")
        assert "more entries than one message may have" in str(rejected["reason"])
        peers.close()

    cluster.run(story())


def test_compressed_batches_of_producers_are_opened_in_turns(cluster: SimulatedCluster) -> None:
    """Each batch has some hundred bytes and expands to 4 MB; the next request finds all of them appended."""
    batch = made(bytes(cramjam.zstd.compress(record(0, bytes(4 << 20)))), count=1, attributes=ZSTD)

    def produce(partitions: range, records: bytes) -> ProduceRequest:
        data = [PartitionProduceData(index=index, records=records) for index in partitions]
        return ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=data)])

    async def story() -> None:
        cluster.start()
        await cluster.ready()
        await SimulatedClient(cluster.addresses).create_topic("t", 10, 1)
        counted = cluster.node("n1").doors.turns
        assert isinstance(counted, Counted)
        counted.turns = [0]
        peers = PeerConnector(-1, cluster.addresses, response_max_bytes=64 << 20)
        small = made(record(0), count=1)
        many, next_one = await asyncio.gather(
            peers.request(1, produce(range(10), batch), 30.0, 9),
            peers.request(1, produce(range(9, 10), small), 30.0, 9),
        )
        of_one = (4 << 20) // EXAMINED_PER_ENTRY
        assert sum(counted.turns) >= 10 * of_one
        assert max(counted.turns) <= ENTRIES_PER_TURN + of_one + 50
        found = [(it.error_code, it.base_offset) for it in many.responses[0].partition_responses]
        assert found == [(ErrorCode.NONE, 0)] * 10
        assert next_one.responses[0].partition_responses[0].base_offset == 1
        peers.close()

    cluster.run(story())


def test_an_answer_that_is_made_at_once_counts_for_its_length(cluster: SimulatedCluster) -> None:
    request = DescribeUserScramCredentialsRequest(users=[UserName(f"{number:0128}") for number in range(1_000)])

    async def story() -> None:
        cluster.start()
        await cluster.ready()
        counted = cluster.node("n1").doors.turns
        assert isinstance(counted, Counted)
        peers = PeerConnector(-1, cluster.addresses, response_max_bytes=64 << 20)
        counted.turns = [0]
        await peers.request(1, request, 30.0, 0)
        assert sum(counted.turns) >= 1_000
        peers.close()

    cluster.run(story())


def test_records_read_for_a_time_lookup_count_in_the_turn(cluster: SimulatedCluster) -> None:
    records = 10_000
    batch = build_batch([Record(number, 1_000 + number, None, b"v") for number in range(records)])
    last = ListOffsetsPartition(partition_index=0, timestamp=1_000 + records - 1)
    request = ListOffsetsRequest(replica_id=-1, topics=[Topic(name="t", partitions=[last] * 50)])

    async def story() -> None:
        cluster.start()
        await cluster.ready()
        await SimulatedClient(cluster.addresses).create_topic("t", 1, 1)
        peers = PeerConnector(-1, cluster.addresses, response_max_bytes=64 << 20)
        data = [PartitionProduceData(index=0, records=batch)]
        produce = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t", partition_data=data)])
        await peers.request(1, produce, 30.0, 9)
        counted = cluster.node("n1").doors.turns
        assert isinstance(counted, Counted)
        counted.turns = [0]
        found = await peers.request(1, request, 30.0, 6)
        of_one = (len(batch) + records * BYTES_PER_RECORD) // EXAMINED_PER_ENTRY
        assert sum(counted.turns) >= 50 * of_one
        assert max(counted.turns) <= ENTRIES_PER_TURN + of_one + 50
        assert {it.offset for it in found.topics[0].partitions} == {records - 1}
        peers.close()

    cluster.run(story())


@run_by(asyncio.run)
async def test_large_requests_take_turns() -> None:
    turns = Turns()
    order: list[str] = []

    def work(name: str) -> Work[str]:
        for _ in range(3 * ENTRIES_PER_TURN):
            yield
        order.append(name)
        return name

    def little() -> Work[str]:
        yield
        return "little"

    large = [asyncio.create_task(turns.finish(work(name))) for name in "ab"]
    await asyncio.sleep(0)
    assert turns.is_over
    assert await turns.finish(little()) == "little"
    assert order == [], "small requests do not wait for large ones"
    assert await asyncio.gather(*large) == ["a", "b"]


@run_by(asyncio.run)
async def test_a_turn_has_all_its_entries_but_the_few_that_turns_before_it_had() -> None:
    turns = Counted()
    for _ in range(UNNOTICED):
        turns.spend(1)
        await asyncio.sleep(0)
    assert turns.turns == [UNNOTICED], "too few calls to be counted"
    turns.spend(ENTRIES_PER_TURN - UNNOTICED)
    assert turns.is_over
    await asyncio.sleep(0)
    assert turns.turns == [ENTRIES_PER_TURN, 0]
    turns.spend(ENTRIES_PER_TURN - 1)
    assert not turns.is_over

"""Requests of administrators to any broker, in the simulated world: configurations, retention, logs, partitions."""

import asyncio

import pytest

from broker.errors import ErrorCode
from broker.protocol.api import ApiKey, advertised_api_keys
from broker.protocol.messages.cluster_apis import DescribeLogDirsRequest, MetadataRequest, MetadataRequestTopic
from broker.protocol.messages.config_apis import (
    SET,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    ListConfigResourcesRequest,
)
from broker.protocol.messages.group_apis import (
    ABSENT,
    TRANSACTION_KEY,
    ConsumerGroupHeartbeatRequest,
    FindCoordinatorRequest,
)
from broker.protocol.messages.offset_apis import (
    MAX_TIMESTAMP,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    ListOffsetsPartition,
    ListOffsetsRequest,
)
from broker.protocol.messages.partition_apis import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
)
from broker.protocol.messages.producer_apis import InitProducerIdRequest
from broker.protocol.messages.topic_apis import CreatePartitionsRequest, CreatePartitionsTopic
from broker.protocol.schema import Topic
from broker.replica.leader import PartitionLeader
from broker.replica.partition import Partition
from broker.server.broker_node import BrokerNode
from simulator.client import RefusedError, SimulatedClient
from simulator.cluster import SimulatedCluster
from tests.broker.server.asking import Asking, ready
from tests.simulator.stories import in_cluster

TOPIC = "log"
SMALL = {"min.insync.replicas": "2", "log.segment.bytes": "4096", "log.retention.check.interval.ms": "500"}
SYNCED = {**SMALL, "log.flush.interval.messages": "1"}


def running(cluster: SimulatedCluster) -> list[BrokerNode]:
    return [machine.node for machine in cluster.machines.values() if machine.node is not None]


def replicas(cluster: SimulatedCluster, index: int = 0) -> list[Partition]:
    """Every broker's replica of a partition."""
    found = [node.replicas._partitions.get((TOPIC, index)) for node in running(cluster)]
    return [partition for partition in found if partition is not None]


def in_sync(cluster: SimulatedCluster) -> bool:
    """Whether every broker has heard that all replicas of the partition are in sync."""
    states = [node.image.partition(TOPIC, 0) for node in running(cluster)]
    return all(state is not None and len(state.isr) == len(state.replicas) for state in states)


async def configure(client: Asking, broker: int, key: str, value: str, resource: tuple[int, str] = (2, TOPIC)) -> None:
    asked = IncrementalAlterConfigsResource(*resource, [IncrementalAlterableConfig(key, SET, value)])
    request = IncrementalAlterConfigsRequest([asked])
    response = await client.ask(broker, request, 1)
    assert response.responses[0].error_code == ErrorCode.NONE, response


async def written(cluster: SimulatedCluster, batches: int = 12, size: int = 1000) -> tuple[Asking, SimulatedClient]:
    """A topic with batches of two records, at the oldest time there is, over several segments."""
    client, asking = SimulatedClient(cluster.addresses), await ready(cluster)
    await client.create_topic(TOPIC, 1)
    for number in range(batches):
        await client.produce(TOPIC, 0, [b"%04d" % number * (size // 4), b"second"])
    end = 2 * batches
    await cluster.until(lambda: [it.high_watermark for it in replicas(cluster)] == [end] * 3)
    return asking, client


async def delete(client: Asking, broker: int, offset: int) -> tuple[int, int]:
    request = DeleteRecordsRequest([Topic(TOPIC, [DeleteRecordsPartition(0, offset)])], 5_000)
    response = await client.ask(broker, request, 2)
    (result,) = response.topics[0].partitions
    return result.error_code, result.low_watermark


@in_cluster(1, properties=SMALL)
async def test_a_configuration_holds_on_every_broker_and_is_described(cluster: SimulatedCluster, /) -> None:
    client, _ = await written(cluster, 1)
    await configure(client, 2, "max.message.bytes", "500")
    await configure(client, 3, "flush.messages", "1")
    for broker in (1, 2, 3):
        request = DescribeConfigsRequest([DescribeConfigsResource(2, TOPIC, None)])
        node = cluster.node(f"n{broker}")
        await cluster.until(lambda node=node: len(node.image.configs(TOPIC)) == 2)  # type: ignore[misc]
        response = await client.ask(broker, request, 4)
        shown = {entry.name: (entry.value, entry.config_source) for entry in response.results[0].configs}
        assert shown["max.message.bytes"] == ("500", 1)
        assert shown["flush.messages"] == ("1", 1)
        assert shown["segment.bytes"] == ("4096", 4)
        assert shown["retention.ms"] == ("-1", 5)
        assert shown["unclean.leader.election.enable"] == ("false", 5)
    await cluster.until(lambda: all(it.flush_before_commit for it in replicas(cluster)))
    writer = SimulatedClient(cluster.addresses)
    with pytest.raises(RefusedError) as refused:
        await writer.produce(TOPIC, 0, [b"x" * 600])
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    await writer.produce(TOPIC, 0, [b"x" * 300])


@pytest.mark.conforms("H16")
@in_cluster(1, properties=SMALL)
async def test_the_clusters_minimum_is_changed_on_every_broker_and_described(cluster: SimulatedCluster, /) -> None:
    """1: the topic's own; 3: for all brokers; 4: from this broker's file."""
    client, _ = await written(cluster, 1)

    async def described(broker: int, resource: int, name: str) -> list[tuple[str | None, int]]:
        asked = DescribeConfigsResource(resource, name, ["min.insync.replicas"])
        answer = await client.ask(broker, DescribeConfigsRequest([asked], True), 4)
        (entry,) = answer.results[0].configs
        assert not entry.read_only
        assert (entry.value, entry.config_source) == (entry.synonyms[0].value, entry.synonyms[0].source)
        return [(each.value, each.source) for each in entry.synonyms]

    assert await described(1, 2, TOPIC) == await described(1, 4, "1") == [("2", 3), ("2", 4)]
    await configure(client, 2, "min.insync.replicas", "1", (4, ""))
    await cluster.until(lambda: all(it.image.defaults["min.insync.replicas"] == "1" for it in running(cluster)))
    for broker in (1, 2, 3):
        assert await described(broker, 2, TOPIC) == await described(broker, 4, "") == [("1", 3), ("2", 4)]
    led = [it.role for it in replicas(cluster) if isinstance(it.role, PartitionLeader)]
    await cluster.until(lambda: [it.min_insync_replicas for it in led] == [1])
    await configure(client, 3, "min.insync.replicas", "3")
    await cluster.until(lambda: [it.min_insync_replicas for it in led] == [3])
    await cluster.until(lambda: all(it.image.configs(TOPIC) for it in running(cluster)))
    assert await described(1, 2, TOPIC) == [("3", 1), ("1", 3), ("2", 4)]


@pytest.mark.conforms("K101-11")
@pytest.mark.parametrize(("key", "value"), [("retention.ms", "1000"), ("retention.bytes", "5000")])
@in_cluster(2, properties=SMALL)
async def test_retention_moves_the_start_of_every_replica(cluster: SimulatedCluster, /, key: str, value: str) -> None:
    client, reader = await written(cluster)
    assert all(len(it.log.segments) > 3 for it in replicas(cluster))
    await configure(client, 1, key, value)

    def moved() -> bool:
        starts = {(it.log.log_start_offset, it.log.segments[0].base_offset) for it in replicas(cluster)}
        (only, *others) = starts
        return not others and only[0] == only[1] > 0

    await cluster.until(moved)
    for it in replicas(cluster):
        assert it.log.log_start_offset <= it.high_watermark == 24
        assert it.log.epochs.entries[0].start_offset == it.log.log_start_offset
        if key == "retention.bytes":
            assert 5_000 <= it.log.size < 5_000 + 4_096
        else:
            assert it.log.log_start_offset == 24
    assert await reader.produce(TOPIC, 0, [b"after"]) == 24


@pytest.mark.conforms("K101-11")
@pytest.mark.parametrize("seed", range(3))
@in_cluster("seed", properties=SYNCED)
async def test_deleted_records_stay_deleted_on_every_replica_under_faults(cluster: SimulatedCluster, /) -> None:
    client, reader = await written(cluster)
    leader = await reader.leader_of(TOPIC, 0)
    assert await delete(client, leader % 3 + 1, 5) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert await delete(client, leader, 99) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert await delete(client, leader, 15) == (ErrorCode.NONE, 15)  # inside a batch
    assert await delete(client, leader, 3) == (ErrorCode.NONE, 15)
    with pytest.raises(RefusedError) as refused:
        await reader.fetch(TOPIC, 0, 14)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await reader.fetch(TOPIC, 0, 15)).records[0].offset == 15
    await cluster.until(lambda: [it.log.log_start_offset for it in replicas(cluster)] == [15] * 3)
    cluster.power_loss()
    cluster.start()
    await cluster.ready()
    leader = await reader.leader_of(TOPIC, 0)
    client, reader = Asking(cluster), SimulatedClient(cluster.addresses)
    await cluster.until(lambda: in_sync(cluster))
    await reader.produce(TOPIC, 0, [b"after"])
    leader = await reader.leader_of(TOPIC, 0)
    assert await delete(client, leader, 0) == (ErrorCode.NONE, 15)
    assert await delete(client, leader, -1) == (ErrorCode.NONE, 25)


@in_cluster(3, nodes=4, properties=SMALL)
async def test_an_added_replica_starts_at_the_leaders_log_start(cluster: SimulatedCluster, /) -> None:
    """The leader's log starts inside a batch; a new follower gets the whole batch."""
    client, reader = await written(cluster)
    leader = await reader.leader_of(TOPIC, 0)
    assert (await delete(client, leader, 15))[0] == ErrorCode.NONE
    state = cluster.node("n1").image.partition(TOPIC, 0)
    assert state is not None
    (new,) = {1, 2, 3, 4} - set(state.replicas)
    leaving = next(replica for replica in state.replicas if replica != leader)
    wanted = [replica for replica in state.replicas if replica != leaving] + [new]
    topic = Topic(TOPIC, [ReassignablePartition(0, wanted)])
    answer = await client.ask(leaving, AlterPartitionReassignmentsRequest(5_000, topics=[topic]), 1)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE

    def there() -> bool:
        now = cluster.node("n1").image.partition(TOPIC, 0)
        return now is not None and set(now.replicas) == set(wanted) == set(now.isr)

    await cluster.until(there)
    listed = await client.ask(new, ListPartitionReassignmentsRequest(), 0)
    assert listed.topics == []
    await reader.produce(TOPIC, 0, [b"after"])
    copy = cluster.node(f"n{new}").replicas._partitions[TOPIC, 0]
    await cluster.until(lambda: copy.log.log_end_offset == 25)
    assert copy.log.log_start_offset == 15
    await cluster.until(lambda: (TOPIC, 0) not in cluster.node(f"n{leaving}").replicas._partitions)
    records = (await reader.fetch(TOPIC, 0, 15)).records
    assert records[0].offset == 15


@in_cluster(4, properties=SMALL)
async def test_more_partitions_can_be_written_and_take_space(cluster: SimulatedCluster, /) -> None:
    client, reader = await written(cluster, 2)
    request = CreatePartitionsRequest([CreatePartitionsTopic(TOPIC, 3, None)], 5_000)
    response = await client.ask(2, request, 3)
    assert response.results[0].error_code == ErrorCode.NONE
    assert await reader.read_all(TOPIC, 2) == []
    await reader.produce(TOPIC, 2, [b"there"])
    assert [record.value for record in await reader.read_all(TOPIC, 2)] == [b"there"]
    await cluster.until(lambda: len(replicas(cluster, 2)) == 3)
    described = await client.ask(1, DescribeLogDirsRequest(None), 4)
    (directory,) = described.results
    sizes = {it.partition_index: it.partition_size for it in directory.topics[0].partitions}
    assert sizes[0] > 2_000
    assert sizes[1] == 0


@in_cluster(5, properties=SMALL)
async def test_the_record_with_the_largest_timestamp_is_found(cluster: SimulatedCluster, /) -> None:
    client, reader = await written(cluster, 3)
    leader = await reader.leader_of(TOPIC, 0)
    asked = Topic(TOPIC, [ListOffsetsPartition(0, timestamp=MAX_TIMESTAMP)])
    request = ListOffsetsRequest(replica_id=-1, topics=[asked])
    response = await client.ask(leader, request, 7)
    found = response.topics[0].partitions[0]
    assert (found.error_code, found.offset, found.timestamp) == (ErrorCode.NONE, 0, 0)


@pytest.mark.parametrize("allowed", [False, True])
def test_automatic_topic_creation_needs_the_setting(allowed: bool) -> None:
    properties = {"auto.create.topics.enable": str(allowed).lower(), "num.partitions": "2"}
    with SimulatedCluster(6, properties=properties) as cluster:

        async def story() -> None:
            client = await ready(cluster)

            async def ask(name: str, *, create: bool) -> int:
                request = MetadataRequest([MetadataRequestTopic(name=name)], create)
                return (await client.ask(2, request, 12)).topics[0].error_code

            assert await ask("asked", create=False) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await ask("asked", create=True)
            await ask("bad name", create=True)
            await ask("__consumer_offsets", create=True)
            await asyncio.sleep(1)
            assert ("asked" in cluster.node("n1").image.topics) is allowed
            assert "bad name" not in cluster.node("n1").image.topics
            assert "__consumer_offsets" not in cluster.node("n1").image.topics, "its coordinators have it made"
            if allowed:
                assert await ask("asked", create=True) == ErrorCode.NONE
                assert len(cluster.node("n3").image.topics["asked"].partitions) == 2

        cluster.run(story())


@in_cluster(1, properties=SMALL)
async def test_the_configurable_resources_are_listed_and_have_descriptions(cluster: SimulatedCluster, /) -> None:
    """KIP-1142. `kafka-configs --describe` asks for each type of entity, also where none has settings."""
    client, _ = await written(cluster, 1)

    async def listed(version: int, *types: int) -> tuple[int, list[tuple[str, int]]]:
        asked = ListConfigResourcesRequest(list(types))
        answer = await client.ask(2, asked, version)
        return answer.error_code, [(each.resource_name, each.resource_type) for each in answer.config_resources]

    brokers = [("1", 4), ("2", 4), ("3", 4)]
    assert await listed(1, 2) == (ErrorCode.NONE, [(TOPIC, 2)])
    assert await listed(1, 4, 4) == (ErrorCode.NONE, brokers)
    assert await listed(1) == (ErrorCode.NONE, [*brokers, *((name, 8) for name, _ in brokers), (TOPIC, 2)])
    assert await listed(1, 16, 32) == await listed(0) == (ErrorCode.NONE, [])
    assert await listed(1, 2, 3) == (ErrorCode.UNSUPPORTED_VERSION, [])
    others = [DescribeConfigsResource(type_, name, None) for type_, name in ((8, "2"), (16, "any"), (32, "any"))]
    answer = await client.ask(2, DescribeConfigsRequest(others), 4)
    assert [(each.error_code, each.configs) for each in answer.results] == [(ErrorCode.NONE, [])] * 3


@pytest.mark.conforms("NS-1")
def test_the_heartbeat_of_the_new_group_protocol_is_refused() -> None:
    assert ApiKey.CONSUMER_GROUP_HEARTBEAT in {api.api_key for api in advertised_api_keys()}
    with SimulatedCluster(1, 1) as cluster:

        async def story() -> None:
            asking = await ready(cluster)
            for version, names in ((0, ["log"]), (1, None)):
                request = ConsumerGroupHeartbeatRequest(group_id="g", subscribed_topic_names=names)
                answer = await asking.ask(1, request, version)
                assert (answer.error_code, answer.assignment) == (ErrorCode.UNSUPPORTED_VERSION, ABSENT)
                assert "group.protocol=classic" in (answer.error_message or "")

        cluster.run(story())


@pytest.mark.conforms("K98-9")
@pytest.mark.parametrize("version", [1, 4])
@in_cluster(1, 1)
async def test_a_transactional_producer_finds_the_broker_that_refuses_it(
    cluster: SimulatedCluster, /, version: int
) -> None:
    asking = await ready(cluster)
    request = FindCoordinatorRequest(key="t", key_type=TRANSACTION_KEY, coordinator_keys=["t"])
    answer = await asking.ask(1, request, version)
    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.error_code, found.node_id) == (ErrorCode.NONE, 1)
    init = InitProducerIdRequest(transactional_id="t")
    refusal = await asking.ask(1, init, 4)
    assert refusal.error_code == ErrorCode.UNSUPPORTED_VERSION

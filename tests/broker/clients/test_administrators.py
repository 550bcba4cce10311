"""Unmodified administrators' clients, at a broker that need not be the controller."""

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic
from kafka.admin import KafkaAdminClient

from tests.broker.clients.harness import PATIENCE, Cluster, cluster, until

TOPIC = "administered"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("administered"), 3) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 3, config={"retention.ms": "86400000"})])[TOPIC].result(PATIENCE)
        producer = Producer({"bootstrap.servers": running.bootstrap})
        for number in range(20):
            producer.produce(TOPIC, b"%d" % number, partition=0, timestamp=1_000 + (number * 7) % 20)
        assert producer.flush(PATIENCE) == 0
        yield running


@pytest.fixture(params=[1, 2, 3])
def admin(nodes: Cluster, request: pytest.FixtureRequest) -> AdminClient:
    """A client that knows one broker at first."""
    return AdminClient({"bootstrap.servers": nodes.brokers[request.param].address})


def described(admin: AdminClient) -> dict[str, ConfigEntry]:
    resource = ConfigResource(ResourceType.TOPIC, TOPIC)
    entries: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(PATIENCE)
    return entries


def altered(admin: AdminClient, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE)


def test_topics_are_configured_through_any_broker(admin: AdminClient) -> None:
    value = str(500_000 + hash(admin) % 1_000)
    altered(admin, "max.message.bytes", value)
    until(lambda: described(admin)["max.message.bytes"].value == value, "the broker that is asked has learned it")
    assert not described(admin)["max.message.bytes"].is_default
    assert described(admin)["retention.ms"].value == "86400000"
    assert described(admin)["segment.bytes"].is_default
    with pytest.raises(KafkaException, match="INVALID_CONFIG"):
        altered(admin, "retention.ms", "soon")


def test_the_record_with_the_largest_timestamp(admin: AdminClient) -> None:
    asked = TopicPartition(TOPIC, 0)
    largest = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
    found = admin.list_offsets({asked: largest})[asked].result(PATIENCE)
    assert (found.offset, found.timestamp) == (17, 1_019)


def test_partitions_are_added(admin: AdminClient) -> None:
    before = len(admin.list_topics(TOPIC, timeout=PATIENCE).topics[TOPIC].partitions)
    admin.create_partitions([NewPartitions(TOPIC, before + 1)])[TOPIC].result(PATIENCE)
    until(
        lambda: len(admin.list_topics(TOPIC, timeout=PATIENCE).topics[TOPIC].partitions) == before + 1,
        "the broker that is asked has learned of the partition",
    )
    with pytest.raises(KafkaException, match="INVALID_PARTITIONS"):
        admin.create_partitions([NewPartitions(TOPIC, 1)])[TOPIC].result(PATIENCE)


def test_records_are_deleted(nodes: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
    asked = TopicPartition(TOPIC, 0, 5)
    assert admin.delete_records([asked])[asked].result(PATIENCE).low_watermark == 5
    earliest = TopicPartition(TOPIC, 0)
    first = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
    assert admin.list_offsets({earliest: first})[earliest].result(PATIENCE).offset == 5


@pytest.mark.conforms("K595-44")
@pytest.mark.parametrize("broker", [1, 2, 3])
def test_the_quorum_and_the_logs_are_described_by_any_broker(nodes: Cluster, broker: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=nodes.brokers[broker].address)
    try:
        (partition,) = admin.describe_metadata_quorum()["topics"][0]["partitions"]
        assert partition["leader_id"] in nodes.brokers
        assert [voter["replica_id"] for voter in partition["current_voters"]] == [1, 2, 3]
        directories = admin.describe_log_dirs()
        sizes = [
            found["partition_size"]
            for each in directories
            for directory in each["log_dirs"]
            for topic in directory["topics"]
            for found in topic["partitions"]
        ]
        assert any(size > 0 for size in sizes)
    finally:
        admin.close()


def test_a_producers_first_record_creates_the_topic_when_enabled(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with cluster(tmp_path_factory.mktemp("made"), 1, auto_create_topics_enable="true") as running:
        errors: list[object] = []
        producer = Producer({"bootstrap.servers": running.bootstrap})
        producer.produce("made", b"value", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(PATIENCE) == 0
        assert errors == [None]

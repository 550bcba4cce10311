"""The common Kafka clients create a topic, produce with every kind of acknowledgement, and read it back."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.structs import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonTopicPartition
from kafka.admin import KafkaAdminClient
from kafka.admin import NewTopic as PythonNewTopic

from tests.broker.clients.harness import PATIENCE, Cluster, cluster

ACKS: list[int | str] = [0, 1, "all"]
Roundtrip = Callable[[str, str, "int | str", list[bytes]], list[bytes]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("one")) as nodes:
        yield nodes


def confluent(bootstrap: str, topic: str, acks: int | str, values: list[bytes]) -> list[bytes]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(PATIENCE)
    failures: list[object] = []

    def delivered(error: object, message: Message) -> None:  # noqa: ARG001
        if error is not None:
            failures.append(error)

    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks})
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=delivered)
    assert producer.flush(PATIENCE) == 0
    assert failures == []
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    received: list[bytes] = []
    while len(received) < len(values):
        message = consumer.poll(PATIENCE)
        assert message is not None, f"{len(received)} of {len(values)} arrived"
        assert message.error() is None, message.error()
        received.append(message.value() or b"")
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE) == (0, len(values))
    consumer.close()
    return received


def kafka_python(bootstrap: str, topic: str, acks: int | str, values: list[bytes]) -> list[bytes]:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([PythonNewTopic(topic, 1, 1)])
    admin.close()
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks=acks, enable_idempotence=False)
    futures = [producer.send(topic, value, partition=0) for value in values]
    producer.flush(PATIENCE)
    if acks != 0:
        assert [future.get(PATIENCE).offset for future in futures] == list(range(len(values)))
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest")
    consumer.assign([PythonTopicPartition(topic, 0)])
    received: list[bytes] = []
    while len(received) < len(values):
        batch = consumer.poll(timeout_ms=int(PATIENCE * 1000))
        assert batch, f"{len(received)} of {len(values)} arrived"
        received += [record.value for records in batch.values() for record in records]
    consumer.close()
    return received


def aiokafka(bootstrap: str, topic: str, acks: int | str, values: list[bytes]) -> list[bytes]:
    async def run() -> list[bytes]:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        await admin.create_topics([AioNewTopic(topic, 1, 1)])
        await admin.close()
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks=acks)
        await producer.start()
        for value in values:
            await producer.send_and_wait(topic, value, partition=0)
        await producer.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest")
        consumer.assign([AioTopicPartition(topic, 0)])
        await consumer.start()
        received = [(await consumer.getone()).value for _ in values]
        await consumer.stop()
        return received

    return asyncio.run(asyncio.wait_for(run(), PATIENCE))


@pytest.mark.parametrize("acks", ACKS)
@pytest.mark.parametrize("roundtrip", [confluent, kafka_python, aiokafka], ids=lambda f: f.__name__)
def test_a_client_reads_its_records(broker: Cluster, roundtrip: Roundtrip, acks: int | str) -> None:
    values = [b"%05d" % number for number in range(200)] + [bytes(50_000)]
    topic = f"{roundtrip.__name__}-{acks}"
    assert roundtrip(broker.bootstrap, topic, acks, values) == values


def test_metadata_and_errors_as_confluent_sees_them(broker: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("described", 3, 1)])["described"].result(PATIENCE)
    metadata = admin.list_topics(timeout=PATIENCE)
    assert len(str(metadata.cluster_id)) == 22
    assert metadata.controller_id == 1
    assert set(metadata.topics["described"].partitions) == {0, 1, 2}
    assert all(partition.leader == 1 for partition in metadata.topics["described"].partitions.values())
    error = admin.list_topics("missing", timeout=PATIENCE).topics["missing"].error
    assert error is not None
    assert error.name() == "UNKNOWN_TOPIC_OR_PART"
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([NewTopic("described", 1, 1)])["described"].result(PATIENCE)
    with pytest.raises(KafkaException, match="INVALID_REPLICATION_FACTOR"):
        admin.create_topics([NewTopic("too-many", 1, 2)])["too-many"].result(PATIENCE)
    admin.delete_topics(["described"])["described"].result(PATIENCE)
    assert "described" not in admin.list_topics(timeout=PATIENCE).topics


@pytest.mark.rotating(3, among="real brokers")
def test_acknowledged_records_survive_a_kill_and_a_clean_stop(tmp_path: Path) -> None:
    with cluster(tmp_path) as nodes:
        broker = nodes.brokers[1]
        values = [b"%d" % number for number in range(500)]
        assert confluent(nodes.bootstrap, "first", "all", values) == values
        broker.kill()
        broker.start()
        broker.wait_ready()
        assert read_all(nodes.bootstrap, "first", len(values)) == values
        assert confluent(nodes.bootstrap, "second", "all", values) == values
        assert broker.terminate() == 0
        broker.start()
        broker.wait_ready()
        assert read_all(nodes.bootstrap, "first", len(values)) == values
        assert read_all(nodes.bootstrap, "second", len(values)) == values


def read_all(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    received: list[bytes] = []
    while len(received) < count:
        message = consumer.poll(PATIENCE)
        assert message is not None, f"{len(received)} of {count} arrived"
        if message.error() is None:
            received.append(message.value() or b"")
    consumer.close()
    return received

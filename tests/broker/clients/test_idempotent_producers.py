"""Idempotent producers of the common clients, at their default settings."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import UnsupportedVersionError
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaProducer
from kafka.errors import KafkaError as UnexpectedKafkaError

from broker.protocol.records import iter_batches
from tests.broker.clients.harness import PATIENCE, Cluster, cluster, until

COUNT = 300


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("one"), offsets_topic_replication_factor=1) as nodes:
        yield nodes


def make_topic(nodes: Cluster, topic: str, replicas: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
    admin.create_topics([NewTopic(topic, 1, replicas)])[topic].result(PATIENCE)


def confluent(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(COUNT):
        producer.produce(topic, b"%d" % number, partition=0)
        producer.poll(0)
    assert producer.flush(PATIENCE) == 0


def kafka_python(bootstrap: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    assert producer.config["enable_idempotence"]
    futures = [producer.send(topic, b"%d" % number, partition=0) for number in range(COUNT)]
    assert [future.get(PATIENCE).offset for future in futures] == list(range(COUNT))
    producer.close()


def aiokafka(bootstrap: str, topic: str) -> None:
    async def run() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
        await producer.start()
        sent = [await producer.send(topic, b"%d" % number, partition=0) for number in range(COUNT)]
        await asyncio.gather(*sent)
        await producer.stop()

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


def read(bootstrap: str, topic: str, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE)
    assert end == count
    found: list[int] = []
    while len(found) < count:
        message = consumer.poll(PATIENCE)
        assert message is not None
        assert message.error() is None
        found.append(int(message.value() or b"-1"))
    consumer.close()
    return found


def headers(nodes: Cluster, topic: str) -> list[tuple[int, int, int]]:
    """Producer id, epoch and sequence of each batch on the first broker."""
    log = nodes.brokers[1].log_dir / f"{topic}-0" / f"{0:020d}.log"
    return [(it.producer_id, it.producer_epoch, it.base_sequence) for _, it in iter_batches(log.read_bytes())]


@pytest.mark.conforms("K98-1")
def test_clients_write_under_ids_of_their_own(broker: Cluster) -> None:
    ids = set()
    for produce in (confluent, kafka_python, aiokafka):
        topic = produce.__name__
        make_topic(broker, topic)
        produce(broker.bootstrap, topic)
        assert read(broker.bootstrap, topic, COUNT) == list(range(COUNT))
        found = headers(broker, topic)
        assert {epoch for _, epoch, _ in found} == {0}
        assert found[0][2] == 0
        ids |= {producer_id for producer_id, _, _ in found}
    assert len(ids) == 3
    assert min(ids) >= 0


@pytest.mark.conforms("K98-9")
def test_a_transactional_producer_gets_an_error_that_names_no_missing_right(broker: Cluster) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "t"})
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(5.0)
    assert refused.value.args[0].code() == KafkaError.UNSUPPORTED_VERSION

    with pytest.raises(UnexpectedKafkaError, match="UnsupportedVersion"):
        KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="t").init_transactions()

    async def start() -> None:
        other = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="t")
        try:
            await other.start()
        finally:
            await other.stop()

    with pytest.raises(UnsupportedVersionError):
        asyncio.run(asyncio.wait_for(start(), PATIENCE))


@pytest.mark.conforms("NS-1")
def test_a_consumer_of_the_new_group_protocol_gets_an_error(broker: Cluster) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "group.protocol": "consumer"})
    consumer.subscribe(["any"])
    errors: list[KafkaError] = []

    def refused() -> bool:
        message = consumer.poll(0.1)
        if message is not None and (error := message.error()) is not None:
            errors.append(error)
        return any(error.code() == KafkaError._FATAL for error in errors)

    until(refused, "the consumer gets a fatal error")
    assert "API version not supported" in errors[-1].str()
    consumer.close()


@pytest.mark.rotating(3, among="real brokers")
@pytest.mark.conforms("K98-3", "K98-6", "K98-8")
def test_no_record_is_duplicated_when_leaders_are_killed(tmp_path: Path) -> None:
    with cluster(tmp_path, 3, min_insync_replicas=2, broker_session_timeout_ms=2000, broker_lease_ms=1500) as nodes:
        make_topic(nodes, "log", 3)
        outcomes: list[object] = []

        def delivered(error: object, message: Message) -> None:  # noqa: ARG001
            outcomes.append(error)

        producer = Producer({"bootstrap.servers": nodes.bootstrap, "enable.idempotence": True, "linger.ms": 1})
        sent = 0
        for victim in (1, 2, 3, 1):
            for _ in range(500):
                producer.produce("log", b"%d" % sent, partition=0, on_delivery=delivered)
                sent += 1
            until(lambda: producer.poll(0.01) and outcomes, "the first is acknowledged")
            nodes.brokers[victim].kill()
            nodes.brokers[victim].start()
            nodes.brokers[victim].wait_ready()
        assert producer.flush(PATIENCE) == 0
        assert outcomes == [None] * sent
        assert read(nodes.bootstrap, "log", sent) == list(range(sent))

"""Clients in Python, unmodified and with their default settings: only the brokers' addresses, a group's name and its
start position are given."""

import asyncio
import importlib.metadata
import time
from collections.abc import Awaitable, Callable
from functools import partial

import aiokafka
import aiokafka.admin
import confluent_kafka
import kafka
import kafka.admin
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from tests.broker.clients.harness import Cluster, until
from tests.compatibility.trials import Trial

PATIENCE_S = 60.0
RECORDS, PARTITIONS = 300, 3


def values(client: str) -> list[bytes]:
    return [b"%s-%d" % (client.encode(), number) for number in range(RECORDS)]


def expect(found: object, wanted: object, what: str) -> None:
    assert found == wanted, f"{what}: {found!r} instead of {wanted!r}"


def read_to(wanted: list[bytes], poll: Callable[[], list[bytes]]) -> str:
    """Poll until as many records came as were sent; they must be the same ones."""
    found: list[bytes] = []
    end = time.monotonic() + PATIENCE_S
    while len(found) < len(wanted):
        assert time.monotonic() < end, f"{len(found)} of {len(wanted)} records came within {PATIENCE_S:g} s"
        found += poll()
    expect(sorted(found), sorted(wanted), "the records")
    return f"{len(found)} records of {PARTITIONS} partitions, each once"


# --- confluent-kafka


def confluent_admin(nodes: Cluster) -> str:
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
    topic = NewTopic("confluent", PARTITIONS)
    admin.create_topics([topic])["confluent"].result(PATIENCE_S)
    known = admin.list_topics(timeout=PATIENCE_S).topics["confluent"]
    expect(len(known.partitions), PARTITIONS, "partitions")
    resource = ConfigResource(ResourceType.TOPIC, "confluent")
    configs = admin.describe_configs([resource])[resource].result(PATIENCE_S)
    cluster = admin.describe_cluster().result(PATIENCE_S)
    return f"created a topic of {PARTITIONS} partitions; {len(configs)} configs; {len(cluster.nodes)} brokers described"


def confluent_producer(nodes: Cluster) -> str:
    producer = confluent_kafka.Producer({"bootstrap.servers": nodes.bootstrap})
    failed: list[object] = []

    def delivered(error: object, _: object) -> None:
        failed.extend([error] if error is not None else [])

    for value in values("confluent"):
        producer.produce("confluent", value, key=value, on_delivery=delivered)
    expect((producer.flush(PATIENCE_S), failed), (0, []), "left over and failed")
    return f"{RECORDS} records acknowledged"


def confluent_consumer(nodes: Cluster) -> str:
    settings = {"bootstrap.servers": nodes.bootstrap, "group.id": "confluent", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe(["confluent"])

    def poll() -> list[bytes]:
        found = []
        for message in consumer.consume(100, 1.0):
            assert message.error() is None, message.error()
            found.append(message.value() or b"")
        return found

    try:
        seen = read_to(values("confluent"), poll)
    finally:
        consumer.close()  # which commits
    places = [confluent_kafka.TopicPartition("confluent", number) for number in range(PARTITIONS)]
    after = confluent_kafka.Consumer(settings)
    committed = after.committed(places, PATIENCE_S)
    after.close()
    expect(sum(place.offset for place in committed), RECORDS, "committed offsets")
    return f"{seen}; offsets committed"


def confluent_groups(nodes: Cluster) -> str:
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
    listed = admin.list_consumer_groups().result(PATIENCE_S)
    assert "confluent" in {group.group_id for group in listed.valid}, listed.valid
    admin.delete_consumer_groups(["confluent"])["confluent"].result(PATIENCE_S)
    admin.delete_topics(["confluent"])["confluent"].result(PATIENCE_S)
    return "the group listed and deleted, the topic deleted"


# --- kafka-python


def kafka_python_admin(nodes: Cluster) -> str:
    admin = kafka.admin.KafkaAdminClient(bootstrap_servers=nodes.bootstrap)
    admin.create_topics([kafka.admin.NewTopic("kafka-python", PARTITIONS, 3)])
    # Which broker is asked is the client's choice, and as with Kafka one may not have heard of the topic yet.
    until(lambda: "kafka-python" in admin.list_topics(), "the topic is listed")
    described = admin.describe_cluster()
    admin.close()
    return f"created a topic; {len(described['brokers'])} brokers described"


def kafka_python_producer(nodes: Cluster) -> str:
    producer = kafka.KafkaProducer(bootstrap_servers=nodes.bootstrap)
    sent = [producer.send("kafka-python", value, key=value) for value in values("kafka-python")]
    for future in sent:
        future.get(PATIENCE_S)
    producer.close()
    return f"{RECORDS} records acknowledged"


def kafka_python_consumer(nodes: Cluster) -> str:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=nodes.bootstrap, group_id="kafka-python", auto_offset_reset="earliest"
    )
    # It may join a group before it has metadata of its topics, and then assign nothing for good.
    expect(consumer.partitions_for_topic("kafka-python"), set(range(PARTITIONS)), "partitions of the topic")
    consumer.subscribe(["kafka-python"])

    def poll() -> list[bytes]:
        return [record.value for records in consumer.poll(1000).values() for record in records]

    try:
        seen = read_to(values("kafka-python"), poll)
        consumer.commit()
        ends = [consumer.committed(kafka.TopicPartition("kafka-python", number)) for number in range(PARTITIONS)]
        expect(sum(end or 0 for end in ends), RECORDS, "committed offsets")
    finally:
        consumer.close()
    return f"{seen}; offsets committed"


# --- aiokafka


async def aiokafka_admin(nodes: Cluster) -> str:
    admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=nodes.bootstrap)
    await admin.start()
    try:
        await admin.create_topics([aiokafka.admin.NewTopic("aiokafka", PARTITIONS, 3)])
        async with asyncio.timeout(PATIENCE_S):
            while "aiokafka" not in await admin.list_topics():  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.1)
    finally:
        await admin.close()
    return "created and listed a topic"


async def aiokafka_producer(nodes: Cluster) -> str:
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=nodes.bootstrap) as producer:
        sent = [await producer.send("aiokafka", value, key=value) for value in values("aiokafka")]
        await asyncio.wait_for(asyncio.gather(*sent), PATIENCE_S)
    return f"{RECORDS} records acknowledged"


async def aiokafka_consumer(nodes: Cluster) -> str:
    wanted = values("aiokafka")
    found: list[bytes] = []
    async with aiokafka.AIOKafkaConsumer(
        "aiokafka", bootstrap_servers=nodes.bootstrap, group_id="aiokafka", auto_offset_reset="earliest"
    ) as consumer:
        async with asyncio.timeout(PATIENCE_S):
            while len(found) < len(wanted):
                records = await consumer.getmany(timeout_ms=1000)
                found += [record.value for some in records.values() for record in some]
        await consumer.commit()
    expect(sorted(found), sorted(wanted), "the records")
    return f"{len(found)} records of {PARTITIONS} partitions, each once; offsets committed"


def _awaited(trial: Callable[[Cluster], Awaitable[str]], nodes: Cluster) -> str:
    async def body() -> str:
        return await trial(nodes)

    return asyncio.run(body())


def _version(package: str) -> str:
    return importlib.metadata.version(package)


def _librdkafka() -> str:
    return f"{_version('confluent-kafka')}, librdkafka {confluent_kafka.libversion()[0]}"


_KAFKA_PYTHON = partial(_version, "kafka-python")
_AIOKAFKA = partial(_version, "aiokafka")

TRIALS = (
    Trial("confluent-kafka", "AdminClient: topics, configs, cluster", _librdkafka, confluent_admin),
    Trial("confluent-kafka", "Producer", _librdkafka, confluent_producer),
    Trial("confluent-kafka", "Consumer in a group", _librdkafka, confluent_consumer),
    Trial("confluent-kafka", "AdminClient: groups, deletions", _librdkafka, confluent_groups),
    Trial("kafka-python", "KafkaAdminClient", _KAFKA_PYTHON, kafka_python_admin),
    Trial("kafka-python", "KafkaProducer", _KAFKA_PYTHON, kafka_python_producer),
    Trial("kafka-python", "KafkaConsumer in a group", _KAFKA_PYTHON, kafka_python_consumer),
    Trial("aiokafka", "AIOKafkaAdminClient", _AIOKAFKA, partial(_awaited, aiokafka_admin)),
    Trial("aiokafka", "AIOKafkaProducer", _AIOKAFKA, partial(_awaited, aiokafka_producer)),
    Trial("aiokafka", "AIOKafkaConsumer in a group", _AIOKAFKA, partial(_awaited, aiokafka_consumer)),
)

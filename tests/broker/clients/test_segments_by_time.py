"""Segments of a real broker: complete by age, and unlinked after a delay or at the next start."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from broker.errors import ErrorCode
from tests.broker.clients.harness import PATIENCE, BrokerProcess, cluster, until
from tests.broker.clients.poison import TWO, made, produce

HOUR = 3_600_000
DEFAULTS = {
    "file.delete.delay.ms": "60000",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "segment.ms": "604800000",
}
"""Of a topic of Apache Kafka 4.1.1, by `kafka-configs.sh --describe --all`."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with cluster(tmp_path_factory.mktemp("segments")) as nodes:
        yield nodes.brokers[1]


def create(broker: BrokerProcess, topic: str, **config: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": broker.address})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(topic, 1, 1, config=settings)])[topic].result(PATIENCE)
    return admin


def write(broker: BrokerProcess, topic: str, *timestamps: int) -> None:
    """Two records of each timestamp."""
    for timestamp in timestamps:
        response = produce(("127.0.0.1", broker.port), made(TWO, timestamp=timestamp), topic)
        assert response is not None
        assert response.error_code == ErrorCode.NONE


def names(broker: BrokerProcess, topic: str, suffix: str) -> list[int]:
    return sorted(int(path.name.partition(".")[0]) for path in Path(broker.log_dir, f"{topic}-0").glob(f"*{suffix}"))


@pytest.mark.conforms("LOG-6")
def test_the_defaults_are_those_of_kafka_and_can_be_set(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic("defaults", 1, 1, config=DEFAULTS)])["defaults"].result(PATIENCE)
    create(broker, "unset")
    for topic in ("defaults", "unset"):
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found = admin.describe_configs([resource])[resource].result(PATIENCE)
        assert {key: found[key].value for key in DEFAULTS} == DEFAULTS


@pytest.mark.conforms("LOG-6")
def test_a_record_that_is_more_than_an_hour_later_starts_a_segment(broker: BrokerProcess) -> None:
    now = time.time_ns() // 1_000_000
    create(broker, "hours", segment_ms=str(HOUR))
    write(broker, "hours", now - 3 * HOUR, now - 2 * HOUR, now - 2 * HOUR + 1, now - HOUR + 1, now)
    assert names(broker, "hours", ".log") == [0, 4, 8]


@pytest.mark.conforms("LOG-7")
def test_files_of_deleted_records_remain_until_the_delay_ends_or_the_broker_restarts(
    broker: BrokerProcess,
) -> None:
    admins = {
        topic: create(broker, topic, segment_ms="1", file_delete_delay_ms=delay)
        for topic, delay in (("soon", "1"), ("late", "3600000"))
    }
    for topic, admin in admins.items():
        write(broker, topic, 1000, 2000, 3000)
        assert names(broker, topic, ".log") == [0, 2, 4]
        place = TopicPartition(topic, 0, 4)
        assert admin.delete_records([place])[place].result(PATIENCE).low_watermark == 4
        assert names(broker, topic, ".log") == [4]
    until(lambda: not names(broker, "soon", ".deleted"), "the delay of a millisecond is over")
    assert names(broker, "late", ".log.deleted") == [0, 2]
    broker.kill()
    broker.start()
    broker.wait_ready()
    assert names(broker, "late", ".deleted") == []
    assert names(broker, "late", ".log") == [4]

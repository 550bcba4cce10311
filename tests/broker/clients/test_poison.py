"""A faulty producer affects only itself: the broker refuses its batches, and every consumer continues."""

import importlib.util
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaConsumer, TopicPartition

from broker.errors import ErrorCode
from tests.broker.clients.harness import PATIENCE, BrokerProcess, cluster, until
from tests.broker.clients.poison import (
    BOMB,
    HONEST,
    KAFKA,
    OPENED_BY_CRAMJAM,
    OTHERWISE,
    POISON,
    TOPIC,
    all_poison,
    produce,
)
from tests.broker.clients.test_one_broker import read_all

CRAMJAM = importlib.util.find_spec("cramjam") is not None


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with cluster(tmp_path_factory.mktemp("poison")) as nodes:
        admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(PATIENCE)
        broker = nodes.brokers[1]
        until(lambda: answer(broker, POISON["a wrong CRC"]) is ErrorCode.CORRUPT_MESSAGE, "the partition is led")
        yield broker


def expected(name: str) -> ErrorCode:
    if name in OPENED_BY_CRAMJAM:
        return ErrorCode.INVALID_RECORD if CRAMJAM else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    return OTHERWISE.get(name, KAFKA[name])


def answer(broker: BrokerProcess, records: bytes) -> ErrorCode:
    response = produce(("127.0.0.1", broker.port), records)
    assert response is not None, "the broker hung up"
    assert (response.base_offset >= 0) == (response.error_code == ErrorCode.NONE)
    return ErrorCode(response.error_code)


def test_poison_is_refused_and_consumers_read_accepted_records(broker: BrokerProcess) -> None:
    taken = 0
    for records in HONEST.values():
        assert answer(broker, records) is ErrorCode.NONE
        taken += 2
    answers = {name: answer(broker, records) for name, records in all_poison().items()}
    assert answers == {name: expected(name) for name in (*POISON, BOMB)}
    # A wrong largest timestamp is corrected and not refused, as by Kafka.
    assert [name for name, code in answers.items() if code is ErrorCode.NONE] == [
        "timestamp -2",
        "a largest timestamp of 2^63-1 that no record has",
    ]
    taken += 2 * 2
    assert answer(broker, HONEST["plain"]) is ErrorCode.NONE
    taken += 2
    assert len(read_all(broker.address, TOPIC, taken)) == taken
    consumer = KafkaConsumer(bootstrap_servers=broker.address, consumer_timeout_ms=PATIENCE * 1000)
    consumer.assign([TopicPartition(TOPIC, 0)])
    consumer.seek_to_beginning()
    assert [next(consumer).offset for _ in range(taken)] == list(range(taken))
    consumer.close()


def test_a_lying_largest_timestamp_misleads_no_search_by_time(broker: BrokerProcess) -> None:
    assert answer(broker, POISON["a largest timestamp of 2^63-1 that no record has"]) is ErrorCode.NONE
    consumer = KafkaConsumer(bootstrap_servers=broker.address)
    partition = TopicPartition(TOPIC, 0)
    assert consumer.offsets_for_times({partition: 1 << 50})[partition] is None
    consumer.close()


def test_the_table_names_every_poison() -> None:
    assert KAFKA.keys() == {*POISON, BOMB}
    assert OTHERWISE.keys() <= KAFKA.keys()

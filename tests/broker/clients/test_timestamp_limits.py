"""A broker refuses timestamps that are too far from its clock, by the topic's settings; by default an hour ahead."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from broker.errors import ErrorCode
from tests.broker.clients.harness import PATIENCE, BrokerProcess, cluster
from tests.broker.clients.poison import TWO, made, produce

MINUTE = 60_000
HOUR = 60 * MINUTE


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with cluster(tmp_path_factory.mktemp("timestamps")) as nodes:
        yield nodes.brokers[1]


def create(broker: BrokerProcess, topic: str, **settings: int) -> None:
    config = {f"message.timestamp.{side}.max.ms": str(limit) for side, limit in settings.items()}
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(PATIENCE)


def alter(broker: BrokerProcess, topic: str, key: str, value: int) -> None:
    entry = ConfigEntry(key, str(value), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE)


def answer(broker: BrokerProcess, topic: str, ahead_ms: int) -> ErrorCode:
    """The error for two records whose timestamps are this far ahead of the clock."""
    response = produce(("127.0.0.1", broker.port), made(TWO, timestamp=time.time_ns() // 1_000_000 + ahead_ms), topic)
    assert response is not None
    return ErrorCode(response.error_code)


@pytest.mark.conforms("LOG-5")
def test_by_default_a_timestamp_may_be_an_hour_ahead_and_any_time_behind(broker: BrokerProcess) -> None:
    create(broker, "default")
    assert answer(broker, "default", 0) is ErrorCode.NONE
    assert answer(broker, "default", HOUR - MINUTE) is ErrorCode.NONE
    assert answer(broker, "default", HOUR + MINUTE) is ErrorCode.INVALID_TIMESTAMP
    assert answer(broker, "default", -1_000_000 * MINUTE) is ErrorCode.NONE


@pytest.mark.conforms("LOG-5")
def test_a_topic_has_its_own_limits_and_they_can_be_changed(broker: BrokerProcess) -> None:
    create(broker, "own", before=5 * MINUTE, after=2 * MINUTE)
    assert answer(broker, "own", MINUTE) is ErrorCode.NONE
    assert answer(broker, "own", 3 * MINUTE) is ErrorCode.INVALID_TIMESTAMP
    assert answer(broker, "own", -4 * MINUTE) is ErrorCode.NONE
    assert answer(broker, "own", -6 * MINUTE) is ErrorCode.INVALID_TIMESTAMP
    alter(broker, "own", "message.timestamp.before.max.ms", HOUR)
    assert answer(broker, "own", -6 * MINUTE) is ErrorCode.NONE
    assert answer(broker, "own", 3 * MINUTE) is ErrorCode.INVALID_TIMESTAMP

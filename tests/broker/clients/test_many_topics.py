"""Requests about a hundred topics at once, by a client with its default timeouts, to three brokers."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.broker.clients.harness import PATIENCE, Cluster, cluster, until

TOPICS = [f"topic-{number}" for number in range(100)]
WIDE, PARTITIONS = "wide", 100


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("many"), 3, min_insync_replicas=2) as running:
        yield running


def all_done(answers: Mapping[Any, Future[Any]]) -> None:
    for answer in answers.values():
        answer.result(PATIENCE)


def counts(admin: AdminClient, replicas: int) -> dict[str, int]:
    """The number of partitions with a leader and at least so many replicas in sync, by topic."""
    topics = admin.list_topics(timeout=PATIENCE).topics
    return {
        name: sum(state.leader != -1 and len(state.isrs) >= replicas for state in topic.partitions.values())
        for name, topic in topics.items()
    }


def all_in_sync(admin: AdminClient, partitions: dict[str, int]) -> None:
    """Every partition has a leader already. A follower that took longer than `replica.lag.time.max.ms` to start has
    left the ISR, and returns."""
    assert counts(admin, 1) == partitions
    until(lambda: counts(admin, 3) == partitions, "all replicas are in sync")


def no_replica_is_left(nodes: Cluster) -> bool:
    logs = [broker.log_dir for broker in nodes.brokers.values()]
    return not any([*log.glob("topic-*"), *log.glob("wide-*")] for log in logs)


def test_a_hundred_topics_are_created_changed_and_deleted_by_one_request_each(nodes: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
    all_done(admin.create_topics([*(NewTopic(name, 1, 3) for name in TOPICS), NewTopic(WIDE, PARTITIONS, 3)]))
    assert counts(admin, 1) == {**dict.fromkeys(TOPICS, 1), WIDE: PARTITIONS}
    refusals: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refusals.append(error)

    producer = Producer({"bootstrap.servers": nodes.bootstrap})
    for name in TOPICS:
        producer.produce(name, b"at once", on_delivery=delivered)
    for index in range(PARTITIONS):
        producer.produce(WIDE, b"at once", partition=index, on_delivery=delivered)
    assert producer.flush(PATIENCE) == 0
    assert refusals == []
    all_in_sync(admin, {**dict.fromkeys(TOPICS, 1), WIDE: PARTITIONS})
    change = ConfigEntry("retention.ms", "86400001", incremental_operation=AlterConfigOpType.SET)
    resources = [ConfigResource(ResourceType.TOPIC, name, incremental_configs=[change]) for name in TOPICS]
    all_done(admin.incremental_alter_configs(resources))
    described = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in TOPICS])
    assert {answer.result(PATIENCE)["retention.ms"].value for answer in described.values()} == {"86400001"}
    all_done(admin.create_partitions([*(NewPartitions(name, 2) for name in TOPICS), NewPartitions(WIDE, 120)]))
    all_in_sync(admin, {**dict.fromkeys(TOPICS, 2), WIDE: 120})
    all_done(admin.delete_topics([*TOPICS, WIDE]))
    assert counts(admin, 0) == {}
    until(lambda: no_replica_is_left(nodes), "the files are deleted")

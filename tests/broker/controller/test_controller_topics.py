"""CreateTopics and DeleteTopics."""

from collections import Counter

import pytest

from broker.errors import ErrorCode
from broker.protocol.messages.topic_apis import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from broker.protocol.schema import NO_ID
from broker.topic_settings import FIXED, KEYS
from tests.broker.controller.world import World, topic_request


@pytest.fixture
def world() -> World:
    world = World(num_partitions=2, default_replication_factor=3)
    world.start(1, 2, 3)
    return world


def create(world: World, *topics: CreatableTopic, validate_only: bool = False) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(list(topics), validate_only=validate_only)
    return world.decide(world.rules.create_topics(world.image, request)).topics


def test_a_topic_is_created_with_its_leaders_spread(world: World) -> None:
    (result,) = create(world, CreatableTopic("t", 6, 2))
    topic = world.image.topics["t"]
    assert (result.error_code, result.topic_id, result.num_partitions, result.replication_factor) == (0, topic.id, 6, 2)
    assert world.image.topic_by_id(topic.id) is topic
    assert Counter(partition.leader for partition in topic.partitions.values()) == {1: 2, 2: 2, 3: 2}
    for partition in topic.partitions.values():
        assert partition.isr == partition.replicas
        assert partition.leader == partition.replicas[0]
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)


def test_the_defaults_are_the_brokers(world: World) -> None:
    (result,) = create(world, CreatableTopic("t", -1, -1))
    assert (result.num_partitions, result.replication_factor) == (2, 3)


def test_an_explicit_assignment_is_kept_and_fenced_replicas_are_out_of_sync(world: World) -> None:
    world.fence(2)
    world.create("t", [2, 3], [3, 1])
    first, second = world.partition("t", 0), world.partition("t", 1)
    assert (first.replicas, first.isr, first.leader) == ((2, 3), (3,), 3)
    assert (second.replicas, second.isr, second.leader) == ((3, 1), (3, 1), 3)


def test_fenced_brokers_are_used_only_where_there_are_too_few_others(world: World) -> None:
    world.fence(3)
    create(world, CreatableTopic("two", 4, 2), CreatableTopic("three", 1, 3))
    assert all(3 not in partition.replicas for partition in world.image.topics["two"].partitions.values())
    partition = world.partition("three")
    assert partition.replicas[2] == 3
    assert 3 not in partition.isr


def test_a_topics_own_configuration_is_kept_until_it_is_deleted(world: World) -> None:
    create(world, CreatableTopic("t", 1, 3, configs=[CreatableTopicConfig("min.insync.replicas", "2")]))
    assert world.image.configs("t") == {"min.insync.replicas": "2"}
    assert world.image.configs("other") == {}
    delete(world, DeleteTopicState("t"))
    create(world, CreatableTopic("t", 1, 3))
    assert world.image.configs("t") == {}


def test_a_validation_creates_no_topic(world: World) -> None:
    good, bad = create(world, CreatableTopic("t", 4, 3), CreatableTopic("u", 1, 9), validate_only=True)
    assert (good.error_code, good.topic_id, good.num_partitions) == (0, NO_ID, 4)
    assert bad.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert world.image.topics == {}


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "größe", "x" * 250, "__cluster_metadata", "a/b"])
def test_names_that_are_refused(world: World, name: str) -> None:
    (result,) = create(world, CreatableTopic(name, 1, 1))
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert result.error_message


@pytest.mark.parametrize(
    ("topic", "error", "message"),
    [
        (CreatableTopic("t", 0, 1), ErrorCode.INVALID_PARTITIONS, "at least 1"),
        (CreatableTopic("t", -2, 1), ErrorCode.INVALID_PARTITIONS, "at least 1"),
        (CreatableTopic("t", 2**31 - 1, 1), ErrorCode.POLICY_VIOLATION, "at most"),
        (CreatableTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "replication factor 0"),
        (CreatableTopic("t", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR, "3 brokers are available"),
        (CreatableTopic("t", 1, 1, configs=[CreatableTopicConfig("x.y", "1")]), ErrorCode.INVALID_CONFIG, "x.y"),
        (
            CreatableTopic("t", 1, 1, configs=[CreatableTopicConfig("min.insync.replicas", "0")]),
            ErrorCode.INVALID_CONFIG,
            "from 1 to 2147483647",
        ),
        (
            CreatableTopic("t", 1, 1, configs=[CreatableTopicConfig("min.insync.replicas", "2147483648")]),
            ErrorCode.INVALID_CONFIG,
            "from 1 to 2147483647",
        ),
        (
            CreatableTopic("t", 1, 1, configs=[CreatableTopicConfig("min.insync.replicas", "9" * 5000)]),
            ErrorCode.INVALID_CONFIG,
            "9...' is not a number",
        ),
        (
            CreatableTopic("t", 1, 1, configs=[CreatableTopicConfig("min.insync.replicas", None)]),
            ErrorCode.INVALID_CONFIG,
            "a value is missing",
        ),
    ],
)
def test_topics_that_are_refused(world: World, topic: CreatableTopic, error: ErrorCode, message: str) -> None:
    (result,) = create(world, topic)
    assert result.error_code == error
    assert message in (result.error_message or "")
    assert world.image.topics == {}


@pytest.mark.parametrize(
    ("assignment", "error"),
    [
        ({0: [1], 2: [2]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: []}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: [1, 1]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: [1, 9]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: [1], 1: [1, 2]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_assignments_that_are_refused(world: World, assignment: dict[int, list[int]], error: ErrorCode) -> None:
    entries = [CreatableReplicaAssignment(index, ids) for index, ids in assignment.items()]
    (result,) = create(world, CreatableTopic("t", -1, -1, entries))
    assert result.error_code == error
    (result,) = create(world, CreatableTopic("t", 1, -1, [CreatableReplicaAssignment(0, [1])]))
    assert result.error_code == ErrorCode.INVALID_REQUEST


def test_an_assignment_to_fenced_brokers_alone_is_refused(world: World) -> None:
    world.fence(2)
    (result,) = world.create("t", [2]).topics
    assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_topic_exists_once(world: World) -> None:
    world.create("t", [1])
    (result,) = world.create("t", [1]).topics
    assert result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    request = topic_request("u", [1])
    request.topics *= 2
    results = world.decide(world.rules.create_topics(world.image, request)).topics
    assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST] * 2


def test_a_request_has_an_end(world: World) -> None:
    results = create(world, CreatableTopic("t", 6_000, 1), CreatableTopic("u", 6_000, 1), CreatableTopic("v", 1, 1))
    assert [result.error_code for result in results] == [0, ErrorCode.POLICY_VIOLATION, 0]


def delete(world: World, *states: DeleteTopicState) -> list[DeletableTopicResult]:
    return world.decide(world.rules.delete_topics(world.image, DeleteTopicsRequest(list(states)))).responses


def test_topics_are_deleted_by_name_and_by_id(world: World) -> None:
    world.create("t", [1])
    world.create("u", [2])
    u = world.image.topics["u"].id
    results = delete(world, DeleteTopicState("t"), DeleteTopicState(None, u))
    assert [(result.name, result.error_code) for result in results] == [("t", 0), ("u", 0)]
    assert world.image.topics == {}


def test_old_requests_name_topics_alone(world: World) -> None:
    world.create("t", [1])
    request = DeleteTopicsRequest(topic_names=["t", "t", "?"])
    results = world.decide(world.rules.delete_topics(world.image, request)).responses
    assert [result.error_code for result in results] == [
        0,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_deletions_that_are_refused(world: World) -> None:
    world.create("t", [1])
    both = DeleteTopicState("t", world.image.topics["t"].id)
    results = delete(world, DeleteTopicState(None, b"?" * 16), both)
    assert [result.error_code for result in results] == [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INVALID_REQUEST]
    assert "t" in world.image.topics


@pytest.mark.conforms("TOP-2")
@pytest.mark.parametrize("validate_only", [False, True])
def test_the_answer_has_every_key_of_the_topic_with_its_source(world: World, validate_only: bool) -> None:
    topic = CreatableTopic("t", 1, 3, configs=[CreatableTopicConfig("segment.bytes", "8192")])
    (result,) = create(world, topic, validate_only=validate_only)
    assert result.configs is not None
    shown = {entry.name: (entry.value, entry.config_source) for entry in result.configs}
    assert shown.keys() == KEYS.keys() | FIXED.keys()
    assert shown["segment.bytes"] == ("8192", 1)
    assert shown["retention.ms"] == ("-1", 5)

"""The configuration of topics: accepted and refused changes, and the result."""

import pytest

from broker.errors import ErrorCode
from broker.protocol.messages.config_apis import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from broker.protocol.messages.topic_apis import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from broker.protocol.schema import Message
from broker.topic_settings import KEYS, TopicSettings
from tests.broker.controller.world import World, configuration

TOPIC, BROKER = 2, 4


def world() -> World:
    it = World()
    it.start(1)
    it.create("t", [1])
    return it


def incrementally(it: World, *changes: tuple[str, int, str | None], resource: int = TOPIC, name: str = "t") -> int:
    """The error of a request that changes one resource."""
    entries = [IncrementalAlterableConfig(key, operation, value) for key, operation, value in changes]
    request = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(resource, name, entries)])
    response: Message = it.decide(it.rules.alter_configs(it.image, request))
    assert isinstance(response, IncrementalAlterConfigsResponse)
    return response.responses[0].error_code


def test_keys_are_set_changed_and_taken_back() -> None:
    it = world()
    assert incrementally(it, ("retention.ms", SET, "1000"), ("min.insync.replicas", SET, "2")) == ErrorCode.NONE
    assert it.image.configs("t") == {"retention.ms": "1000", "min.insync.replicas": "2"}
    settings = TopicSettings.of(it.image.configs("t"), configuration(log_retention_bytes=7))
    assert (settings.retention_ms, settings.retention_bytes, settings.min_insync_replicas) == (1000, 7, 2)
    assert incrementally(it, ("retention.ms", DELETE, None)) == ErrorCode.NONE
    assert it.image.configs("t") == {"min.insync.replicas": "2"}


def test_a_list_is_appended_to_and_subtracted_from() -> None:
    it = world()
    assert incrementally(it, ("cleanup.policy", APPEND, "delete")) == ErrorCode.NONE
    assert it.image.configs("t") == {"cleanup.policy": "delete"}
    assert incrementally(it, ("cleanup.policy", SUBTRACT, "delete")) == ErrorCode.INVALID_CONFIG
    assert incrementally(it, ("retention.ms", APPEND, "1")) == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("no.such.key", "1"),
        ("retention.ms", "soon"),
        ("retention.ms", "-2"),
        ("retention.ms", "9" * 400),
        ("retention.ms", "--1"),
        ("retention.ms", None),
        ("min.insync.replicas", "0"),
        ("segment.bytes", "14"),
        ("segment.bytes", "4294967296"),
        ("cleanup.policy", ""),
        ("cleanup.policy", "delete,delete"),
        ("cleanup.policy", "burn"),
        ("cleanup.policy", "compact,burn"),
        ("min.cleanable.dirty.ratio", "1.01"),
        ("min.cleanable.dirty.ratio", "-0.5"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.compaction.lag.ms", "-1"),
        ("unclean.leader.election.enable", "yes"),
    ],
)
def test_invalid_changes_are_refused_without_effect(key: str, value: str | None) -> None:
    it = world()
    assert incrementally(it, ("flush.messages", SET, "1"), (key, SET, value)) == ErrorCode.INVALID_CONFIG
    assert it.image.configs("t") == {}
    if value is not None:
        topic = CreatableTopic("u", 1, 1, configs=[CreatableTopicConfig(key, value)])
        created = it.decide(it.rules.create_topics(it.image, CreateTopicsRequest([topic])))
        assert created.topics[0].error_code == ErrorCode.INVALID_CONFIG


def test_a_topic_is_created_with_its_configuration() -> None:
    it = world()
    wanted = {"unclean.leader.election.enable": "true", "retention.bytes": "5"}
    configs = [CreatableTopicConfig(name, value) for name, value in wanted.items()]
    it.decide(it.rules.create_topics(it.image, CreateTopicsRequest([CreatableTopic("u", 1, 1, configs=configs)])))
    assert it.image.configs("u") == wanted
    twice = [CreatableTopicConfig("retention.bytes", "5")] * 2
    refused = it.rules.create_topics(it.image, CreateTopicsRequest([CreatableTopic("v", 1, 1, configs=twice)]))
    assert it.decide(refused).topics[0].error_code == ErrorCode.INVALID_CONFIG


def test_the_whole_configuration_is_replaced() -> None:
    it = world()
    incrementally(it, ("retention.ms", SET, "1"), ("retention.bytes", SET, "2"))
    entries = [AlterableConfig("retention.ms", "3"), AlterableConfig("segment.bytes", "8192")]
    for validate_only, expected in (
        (True, {"retention.ms": "1", "retention.bytes": "2"}),
        (False, {"retention.ms": "3", "segment.bytes": "8192"}),
    ):
        request = AlterConfigsRequest([AlterConfigsResource(TOPIC, "t", entries)], validate_only)
        response: Message = it.decide(it.rules.alter_configs(it.image, request))
        assert isinstance(response, AlterConfigsResponse)
        assert response.responses[0].error_code == ErrorCode.NONE
        assert it.image.configs("t") == expected


def test_only_topics_that_exist_are_configured() -> None:
    it = world()
    change = ("retention.ms", SET, "1")
    assert incrementally(it, change, name="u") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert incrementally(it, change, resource=BROKER, name="1") == ErrorCode.INVALID_REQUEST
    assert incrementally(it, change, resource=8, name="1") == ErrorCode.INVALID_REQUEST
    assert incrementally(it, change, change) == ErrorCode.INVALID_REQUEST


def test_every_default_is_a_value_that_its_key_accepts() -> None:
    for key in KEYS.values():
        key.check(key.default(configuration()))

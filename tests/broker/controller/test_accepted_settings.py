"""Settings that clients set to the broker's own behaviour, deletions of unset keys, and names that collide."""

import pytest

from broker.controller.configs import checked
from broker.errors import ErrorCode, ProtocolError
from broker.protocol.messages.config_apis import (
    DELETE,
    SET,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from broker.protocol.messages.metadata_records import BROKER_RESOURCE, TOPIC_RESOURCE
from broker.protocol.messages.topic_apis import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from broker.protocol.schema import Message
from broker.topic_settings import FIXED, KEYS
from tests.broker.controller.world import World

KAFKA_4_1 = [
    "cleanup.policy",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "delete.retention.ms",
    "file.delete.delay.ms",
    "flush.messages",
    "flush.ms",
    "follower.replication.throttled.replicas",
    "index.interval.bytes",
    "leader.replication.throttled.replicas",
    "local.retention.bytes",
    "local.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "preallocate",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
    "unclean.leader.election.enable",
]
"""`kafka-configs.sh --describe --all` of a topic of Apache Kafka 4.1.1."""


def test_every_setting_of_a_topic_of_kafka_is_known() -> None:
    assert sorted({*KEYS, *FIXED}) == KAFKA_4_1
    assert not set(KEYS) & set(FIXED)


@pytest.mark.parametrize("name", sorted(FIXED))
def test_the_value_that_holds_anyway_is_taken_and_no_other(name: str) -> None:
    value = FIXED[name].value
    assert checked({name: value}) == {name: value}
    with pytest.raises(ProtocolError, match=name) as raised:
        checked({name: f"{value}1"})
    assert raised.value.code == ErrorCode.INVALID_CONFIG


def world(*topics: str) -> World:
    it = World()
    it.start(1)
    for name in topics:
        it.create(name, [1])
    return it


def alter(kind: int, name: str, key: str, operation: int, value: str | None = None) -> int:
    """The error's code; what has no error has changed nothing."""
    entry = IncrementalAlterableConfig(key, operation, value)
    it = world("t")
    before = (it.image.configs("t"), dict(it.image.defaults))
    request = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(kind, name, [entry])])
    response: Message = it.decide(it.rules.alter_configs(it.image, request))
    assert isinstance(response, IncrementalAlterConfigsResponse)
    assert (it.image.configs("t"), it.image.defaults) == before
    return response.responses[0].error_code


@pytest.mark.parametrize(
    ("kind", "name", "key"),
    [
        (TOPIC_RESOURCE, "t", "leader.replication.throttled.replicas"),
        (TOPIC_RESOURCE, "t", "retention.ms"),
        (TOPIC_RESOURCE, "t", "no.such.key"),
        (BROKER_RESOURCE, "1", "leader.replication.throttled.rate"),
        (BROKER_RESOURCE, "1", "log.retention.ms"),
        (BROKER_RESOURCE, "", "follower.replication.throttled.rate"),
    ],
)
def test_deletion_of_an_unset_key_succeeds_without_a_change(kind: int, name: str, key: str) -> None:
    assert alter(kind, name, key, DELETE) == ErrorCode.NONE


def test_unsupported_keys_and_unknown_topics_are_refused() -> None:
    assert alter(BROKER_RESOURCE, "1", "leader.replication.throttled.rate", SET, "1") == ErrorCode.INVALID_REQUEST
    assert alter(BROKER_RESOURCE, "1", "min.insync.replicas", DELETE) == ErrorCode.INVALID_CONFIG
    assert alter(TOPIC_RESOURCE, "none", "retention.ms", DELETE) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("there", "new", "collides"),
    [
        ("a.b", "a_b", True),
        ("a_b", "a.b", True),
        ("a_b.c", "a.b_c", True),
        ("a-b", "a_b", False),
        ("ab", "a_b", False),
        ("a.b", "a.b.c", False),
    ],
)
def test_names_that_differ_in_dots_and_underscores_only_collide(there: str, new: str, collides: bool) -> None:
    it = world(there)
    response: Message = it.decide(it.rules.create_topics(it.image, CreateTopicsRequest([CreatableTopic(new, 1, 1)])))
    assert isinstance(response, CreateTopicsResponse)
    (result,) = response.topics
    assert (result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION) == collides
    assert (new in it.image.topics) != collides
    if collides:
        assert result.error_message == f"Topic '{new}' collides with existing topic: {there}"

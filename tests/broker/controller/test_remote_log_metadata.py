"""The topic `__remote_log_metadata` is protected from clients while the brokers have tiered storage."""

import pytest

from broker.errors import ErrorCode
from broker.protocol.messages.config_apis import (
    DELETE,
    SET,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from broker.protocol.messages.metadata_records import TOPIC_RESOURCE
from broker.protocol.messages.topic_apis import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from broker.tiered.remote_storage_rules import METADATA_TOPIC, METADATA_TOPIC_SETTINGS
from tests.broker.controller.world import World


def with_metadata_topic(*, tiered: bool = True) -> World:
    world = World(min_insync_replicas=1, remote_log_storage_system_enable=tiered)
    world.start(1)
    (created,) = world.create(METADATA_TOPIC, [1], configs=METADATA_TOPIC_SETTINGS).topics
    assert created.error_code == ErrorCode.NONE, created.error_message
    return world


@pytest.mark.parametrize("by_id", [False, True])
def test_the_remote_log_metadata_topic_is_not_deleted(by_id: bool) -> None:
    world = with_metadata_topic()
    topic = world.image.topics[METADATA_TOPIC]
    state = DeleteTopicState(None, topic.id) if by_id else DeleteTopicState(METADATA_TOPIC)
    (result,) = world.decide(world.rules.delete_topics(world.image, DeleteTopicsRequest([state]))).responses
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "remote.log.storage.system.enable=false" in (result.error_message or "")
    assert METADATA_TOPIC in world.image.topics


def test_the_remote_log_metadata_topic_is_deleted_without_tiered_storage() -> None:
    world = with_metadata_topic(tiered=False)
    request = DeleteTopicsRequest([DeleteTopicState(METADATA_TOPIC)])
    (result,) = world.decide(world.rules.delete_topics(world.image, request)).responses
    assert result.error_code == ErrorCode.NONE


def test_the_remote_log_metadata_topic_gets_no_further_partition() -> None:
    world = with_metadata_topic()
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(METADATA_TOPIC, 2, None)])
    (result,) = world.decide(world.rules.create_partitions(world.image, request)).results
    assert result.error_code == ErrorCode.INVALID_PARTITIONS
    assert len(world.image.topics[METADATA_TOPIC].partitions) == 1


@pytest.mark.parametrize(
    ("name", "operation", "value"),
    [
        ("cleanup.policy", SET, "compact"),
        ("retention.ms", SET, "1"),
        ("retention.bytes", DELETE, None),
        ("unclean.leader.election.enable", SET, "true"),
        ("flush.messages", DELETE, None),
    ],
)
def test_settings_that_keep_its_records_stay(name: str, operation: int, value: str | None) -> None:
    assert alter(with_metadata_topic(), name, operation, value) == ErrorCode.INVALID_CONFIG


def test_other_settings_change() -> None:
    assert alter(with_metadata_topic(), "min.insync.replicas", SET, "1") == ErrorCode.NONE


def test_a_client_does_not_create_it_with_settings_that_lose_records() -> None:
    world = World(min_insync_replicas=1, remote_log_storage_system_enable=True)
    world.start(1)
    (created,) = world.create(METADATA_TOPIC, [1]).topics
    assert created.error_code == ErrorCode.INVALID_CONFIG


def alter(world: World, name: str, operation: int, value: str | None) -> int:
    entry = IncrementalAlterableConfig(name, operation, value)
    request = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(TOPIC_RESOURCE, METADATA_TOPIC, [entry])])
    answer = world.decide(world.rules.alter_configs(world.image, request))
    assert isinstance(answer, IncrementalAlterConfigsResponse)
    return answer.responses[0].error_code

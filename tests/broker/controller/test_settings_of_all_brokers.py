"""Settings of brokers that a value for all brokers, in the metadata log, overrides while they run (KIP-1023)."""

import pytest

from broker.controller.image import MetadataImage
from broker.controller.image_records import records_of
from broker.errors import ErrorCode
from broker.protocol.messages.config_apis import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from broker.protocol.messages.metadata_records import encode_record
from broker.topic_settings import FROM_LAST_TIERED, LEAD_LAST, is_on
from tests.broker.controller.test_cluster_defaults import DELETE, SET, alone, incrementally, wholly
from tests.broker.controller.world import World, configuration

BOTH = pytest.mark.parametrize("key", [FROM_LAST_TIERED, LEAD_LAST])
TOPIC = 2


def on(world: World, key: str, **own: bool) -> bool:
    return is_on(key, world.image.defaults, configuration(**own))


@BOTH
@pytest.mark.conforms("K1023-1")
def test_the_setting_is_off_by_default_and_changes_for_all_running_brokers(key: str) -> None:
    world = alone(1)
    assert not on(world, key)
    assert incrementally(world, (key, SET, "true")) == (ErrorCode.NONE, "")
    assert on(world, key)
    assert incrementally(world, (key, SET, "false")) == (ErrorCode.NONE, "")
    assert not on(world, key)
    assert incrementally(world, (key, DELETE, None)) == (ErrorCode.NONE, "")
    assert key not in world.image.defaults
    assert incrementally(world, (key, DELETE, None)) == (ErrorCode.NONE, ""), "what is not set may be removed"


@pytest.mark.conforms("K1023-1")
def test_the_broker_default_takes_precedence_over_a_brokers_file() -> None:
    world = alone(1)
    assert on(world, FROM_LAST_TIERED, follower_fetch_last_tiered_offset_enable=True)
    assert incrementally(world, (FROM_LAST_TIERED, SET, "false"))[0] == ErrorCode.NONE
    assert not on(world, FROM_LAST_TIERED, follower_fetch_last_tiered_offset_enable=True)


@BOTH
@pytest.mark.conforms("K1023-1")
@pytest.mark.parametrize("value", ["yes", "1", "", None])
def test_only_true_and_false_are_values(key: str, value: str | None) -> None:
    world = alone(1)
    code, message = incrementally(world, (key, SET, value))
    assert code == ErrorCode.INVALID_REQUEST
    assert key in message


@BOTH
def test_no_topic_and_no_single_broker_has_it(key: str) -> None:
    world = alone(1)
    assert incrementally(world, (key, SET, "true"), broker="1")[0] == ErrorCode.INVALID_CONFIG
    entries = [IncrementalAlterableConfig(key, SET, "true")]
    request = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(TOPIC, "t", entries)])
    response = world.decide(world.rules.alter_configs(world.image, request))
    assert isinstance(response, IncrementalAlterConfigsResponse)
    assert response.responses[0].error_code == ErrorCode.INVALID_CONFIG


@BOTH
def test_a_broker_default_leaves_topics_unchanged_and_is_in_snapshots(key: str) -> None:
    world = alone(2)
    before = {topic.name: topic.partitions[0] for topic in world.image.topics.values()}
    assert incrementally(world, (key, SET, "true"))[0] == ErrorCode.NONE
    assert {topic.name: topic.partitions[0] for topic in world.image.topics.values()} == before
    restored = MetadataImage()
    restored.restore(world.offset, [encode_record(each) for each in records_of(world.image)])
    assert restored.defaults == world.image.defaults
    assert wholly(world, min_insync_replicas="2") == ErrorCode.NONE
    assert key not in world.image.defaults, "a whole configuration that does not name it removes it"

"""The settings of a topic's remote storage that are refused together, through CreateTopics and both AlterConfigs."""

import pytest

from broker.errors import ErrorCode, ProtocolError
from broker.protocol.messages.config_apis import (
    SET,
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from broker.protocol.messages.metadata_records import TOPIC_RESOURCE
from broker.protocol.messages.topic_apis import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from broker.protocol.schema import Message
from broker.tiered.remote_storage_rules import check_remote_storage
from broker.topic_settings import TopicSettings
from tests.broker.controller.world import World, configuration

ENABLED = configuration(remote_log_storage_system_enable=True, rsm_config_url="file:///store")
ON = {"remote.storage.enable": "true"}


@pytest.mark.parametrize(
    "wanted",
    [
        ON,
        {**ON, "local.retention.ms": "5", "retention.ms": "5"},
        {**ON, "local.retention.ms": "5"},
        {**ON, "local.retention.bytes": "-1"},
        {**ON, "remote.log.copy.disable": "true"},
        {**ON, "remote.log.copy.disable": "true", "retention.ms": "9", "local.retention.ms": "9"},
        {"local.retention.ms": "9", "retention.ms": "5"},
        {"cleanup.policy": "compact"},
    ],
)
def test_consistent_remote_storage_settings_are_accepted(wanted: dict[str, str]) -> None:
    check_remote_storage("t", wanted, ENABLED)


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ({**ON, "cleanup.policy": "compact"}, "compacted"),
        ({**ON, "cleanup.policy": "compact,delete"}, "compacted"),
        ({**ON, "local.retention.ms": "6", "retention.ms": "5"}, r"local.retention.ms \(6\) cannot be larger"),
        ({**ON, "local.retention.bytes": "6", "retention.bytes": "5"}, r"local.retention.bytes \(6\)"),
        ({**ON, "local.retention.ms": "-1", "retention.ms": "5"}, "local.retention.ms cannot be -1"),
        ({**ON, "remote.log.copy.disable": "true", "local.retention.ms": "5"}, "remote.log.copy.disable"),
    ],
)
def test_contradictory_remote_storage_settings_are_refused(wanted: dict[str, str], reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason) as raised:
        check_remote_storage("t", wanted, ENABLED)
    assert raised.value.code is ErrorCode.INVALID_CONFIG


def test_without_a_store_no_topic_can_be_tiered() -> None:
    with pytest.raises(ProtocolError, match=r"remote.log.storage.system.enable"):
        check_remote_storage("t", ON, configuration())


@pytest.mark.parametrize("name", ["__consumer_offsets", "__remote_log_metadata"])
def test_internal_topics_cannot_be_tiered(name: str) -> None:
    with pytest.raises(ProtocolError, match=name):
        check_remote_storage(name, ON, ENABLED)


def test_switching_off_needs_the_deletion_of_remote_data() -> None:
    with pytest.raises(ProtocolError, match=r"remote.log.delete.on.disable"):
        check_remote_storage("t", {}, ENABLED, before=ON)
    check_remote_storage("t", {"remote.log.delete.on.disable": "true"}, ENABLED, before=ON)


def test_the_broker_s_defaults_count_too() -> None:
    config = configuration(
        remote_log_storage_system_enable=True, rsm_config_url="file:///s", log_retention_ms=5, log_local_retention_ms=9
    )
    with pytest.raises(ProtocolError, match=r"local.retention.ms"):
        check_remote_storage("t", ON, config)


def test_a_topic_cannot_be_created_with_or_changed_to_a_contradiction() -> None:
    it = World()
    it.start(1)
    it.create("t", [1])
    configs = [CreatableTopicConfig("remote.storage.enable", "true"), CreatableTopicConfig("cleanup.policy", "compact")]
    created: Message = it.decide(
        it.rules.create_topics(it.image, CreateTopicsRequest([CreatableTopic("n", 1, 1, configs=configs)]))
    )
    assert isinstance(created, CreateTopicsResponse)
    assert created.topics[0].error_code == ErrorCode.INVALID_CONFIG
    entry = IncrementalAlterableConfig("remote.storage.enable", SET, "true")
    incremental = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(TOPIC_RESOURCE, "t", [entry])])
    altered: Message = it.decide(it.rules.alter_configs(it.image, incremental))
    assert isinstance(altered, IncrementalAlterConfigsResponse)
    assert altered.responses[0].error_code == ErrorCode.INVALID_CONFIG
    entries = [AlterableConfig("remote.storage.enable", "true")]
    request = AlterConfigsRequest([AlterConfigsResource(TOPIC_RESOURCE, "t", entries)])
    replaced: Message = it.decide(it.rules.alter_configs(it.image, request))
    assert isinstance(replaced, AlterConfigsResponse)
    assert replaced.responses[0].error_code == ErrorCode.INVALID_CONFIG
    assert not it.image.configs("t")


def test_a_local_retention_of_minus_two_is_the_retention_of_the_whole_log() -> None:
    settings = TopicSettings.of({**ON, "retention.ms": "7", "local.retention.bytes": "9"}, ENABLED)
    assert (settings.local_retention_ms, settings.local_retention_bytes) == (7, 9)
    assert settings.remote_storage
    assert settings.remote_copy
    assert not TopicSettings.of(ON, configuration()).remote_storage

"""AlterConfigs and IncrementalAlterConfigs: the configuration of topics. Pure: image and request in, records out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from broker.config import BrokerConfig
from broker.controller.image import MetadataImage, TopicImage
from broker.errors import ErrorCode, ProtocolError
from broker.protocol.messages import alter_configs as whole
from broker.protocol.messages import incremental_alter_configs as incremental
from broker.protocol.messages.metadata_records import BROKER_RESOURCE, TOPIC_RESOURCE, ConfigRecord
from broker.topic_settings import key_of, split


def alter_incrementally(
    image: MetadataImage, request: incremental.IncrementalAlterConfigsRequest, config: BrokerConfig
) -> tuple[list[ConfigRecord], incremental.IncrementalAlterConfigsResponse]:
    """The records of the changes that are granted (none for `validate_only`), and an answer for each resource."""
    records: list[ConfigRecord] = []
    response = incremental.IncrementalAlterConfigsResponse()
    times = Counter((each.resource_type, each.resource_name) for each in request.resources)
    for resource in request.resources:
        result = incremental.AlterConfigsResourceResponse(0, None, resource.resource_type, resource.resource_name)
        try:
            topic = _topic(image, resource.resource_type, resource.resource_name, times)
            records += _changed(topic, resource.configs, config)
        except ProtocolError as error:
            result.error_code, result.error_message = error.code, str(error)
        response.responses.append(result)
    return [] if request.validate_only else records, response


def alter_wholly(
    image: MetadataImage, request: whole.AlterConfigsRequest
) -> tuple[list[ConfigRecord], whole.AlterConfigsResponse]:
    """As `alter_incrementally`; what a resource's new configuration does not name falls back to the broker's."""
    records: list[ConfigRecord] = []
    response = whole.AlterConfigsResponse()
    times = Counter((each.resource_type, each.resource_name) for each in request.resources)
    for resource in request.resources:
        result = whole.AlterConfigsResourceResponse(0, None, resource.resource_type, resource.resource_name)
        try:
            topic = _topic(image, resource.resource_type, resource.resource_name, times)
            _each_once([entry.name for entry in resource.configs])
            wanted = checked({entry.name: entry.value for entry in resource.configs})
            records += _difference(topic, wanted)
        except ProtocolError as error:
            result.error_code, result.error_message = error.code, str(error)
        response.responses.append(result)
    return [] if request.validate_only else records, response


def checked(values: Mapping[str, str | None]) -> dict[str, str]:
    """A topic's configuration as it was asked for. Raises `ProtocolError` for a key or a value that cannot be."""
    result = {}
    for name, value in values.items():
        key = key_of(name)
        if value is None:
            raise ProtocolError(ErrorCode.INVALID_CONFIG, f"{name}: a value is missing")
        key.check(value)
        result[name] = value
    return result


def _topic(image: MetadataImage, resource_type: int, name: str, times: Mapping[tuple[int, str], int]) -> TopicImage:
    if times[resource_type, name] > 1:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "the request names this resource more than once")
    if resource_type == BROKER_RESOURCE:
        message = "a broker's configuration is its file's; change it there and start the broker again"
        raise ProtocolError(ErrorCode.INVALID_REQUEST, message)
    if resource_type != TOPIC_RESOURCE:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"resource type {resource_type} cannot be configured")
    topic = image.topics.get(name)
    if topic is None:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    return topic


def _each_once(names: list[str]) -> None:
    if len(set(names)) < len(names):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "the request names a key more than once")


def _changed(topic: TopicImage, entries: list[incremental.AlterableConfig], config: BrokerConfig) -> list[ConfigRecord]:
    _each_once([entry.name for entry in entries])
    wanted = dict(topic.configs)
    for entry in entries:
        key = key_of(entry.name)
        if entry.config_operation == incremental.DELETE:
            wanted.pop(entry.name, None)
            continue
        if entry.config_operation == incremental.SET:
            wanted |= checked({entry.name: entry.value})
            continue
        if entry.config_operation not in (incremental.APPEND, incremental.SUBTRACT) or key.kind != "list":
            message = f"{entry.name}: operation {entry.config_operation} is not for a {key.kind}"
            raise ProtocolError(ErrorCode.INVALID_CONFIG, message)
        parts, named = split(wanted.get(entry.name, key.default(config))), split(entry.value or "")
        if entry.config_operation == incremental.APPEND:
            parts += [part for part in named if part not in parts]
        else:
            parts = [part for part in parts if part not in named]
        wanted |= checked({entry.name: ",".join(parts)})
    return _difference(topic, wanted)


def _difference(topic: TopicImage, wanted: Mapping[str, str]) -> list[ConfigRecord]:
    """The records that turn a topic's configuration into `wanted`; what is so already needs none."""
    records = [
        ConfigRecord(TOPIC_RESOURCE, topic.name, name, value)
        for name, value in sorted(wanted.items())
        if topic.configs.get(name) != value
    ]
    gone = sorted(topic.configs.keys() - wanted.keys())
    return records + [ConfigRecord(TOPIC_RESOURCE, topic.name, name, None) for name in gone]

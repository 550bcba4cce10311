"""AlterConfigs and IncrementalAlterConfigs: configurations of topics, and cluster-wide defaults. Pure: from image and
request to records.

Requests are refused as in Apache Kafka with eligible leader replicas (KIP-966): the cluster's `min.insync.replicas`
cannot be removed, and a single broker cannot have its own.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from broker.config import BrokerConfig
from broker.controller.image import MetadataImage
from broker.errors import ErrorCode, ProtocolError
from broker.protocol.messages.config_apis import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from broker.protocol.messages.metadata_records import ALL_BROKERS, BROKER_RESOURCE, TOPIC_RESOURCE, ConfigRecord
from broker.tiered.remote_storage_rules import check_remote_storage
from broker.topic_settings import (
    BROKER_KEYS,
    CLUSTER_WIDE,
    FixedKey,
    Key,
    default_of,
    dynamic_key_of,
    is_for_all_brokers,
    key_of,
    split,
)


@dataclass(frozen=True)
class _Resource:
    """The configured resource, a topic or all brokers, with its current settings."""

    type: int
    name: str
    configs: Mapping[str, str]


def alter_incrementally(
    image: MetadataImage, request: IncrementalAlterConfigsRequest, config: BrokerConfig, *, drops_others: bool = False
) -> tuple[list[ConfigRecord], IncrementalAlterConfigsResponse]:
    """The records of the accepted changes (none for `validate_only`), and an answer for each resource. `drops_others`:
    the mutant alter_drops_others."""
    records: list[ConfigRecord] = []
    response = IncrementalAlterConfigsResponse()
    times = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    for requested in request.resources:
        result = AlterConfigsResourceResponse(0, None, requested.resource_type, requested.resource_name)
        try:
            entries = _effective(image, requested)
            resource = _resource(image, requested, times, [entry.name for entry in entries])
            before = replace(resource, configs={}) if drops_others and resource.type == TOPIC_RESOURCE else resource
            records += _difference(resource, _together(resource, _changed(before, entries, config), config))
        except ProtocolError as error:
            result.error_code, result.error_message = error.code, str(error)
        response.responses.append(result)
    return [] if request.validate_only else records, response


def alter_wholly(
    image: MetadataImage, request: AlterConfigsRequest, config: BrokerConfig
) -> tuple[list[ConfigRecord], AlterConfigsResponse]:
    """As `alter_incrementally`, but keys that the new configuration does not name return to their defaults."""
    records: list[ConfigRecord] = []
    response = AlterConfigsResponse()
    times = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    for requested in request.resources:
        result = AlterConfigsResourceResponse(0, None, requested.resource_type, requested.resource_name)
        try:
            resource = _resource(image, requested, times, [entry.name for entry in requested.configs])
            new_configs = _checked(resource, {entry.name: entry.value for entry in requested.configs})
            records += _difference(resource, _together(resource, new_configs, config))
        except ProtocolError as error:
            result.error_code, result.error_message = error.code, str(error)
        response.responses.append(result)
    return [] if request.validate_only else records, response


def checked(values: Mapping[str, str | None]) -> dict[str, str]:
    """A topic's configuration as requested. Raises `ProtocolError` for an unknown key or an invalid value."""
    return _valid(values, key_of)


def _valid(values: Mapping[str, str | None], key_of: Callable[[str], Key | FixedKey]) -> dict[str, str]:
    result = {}
    for name, value in values.items():
        key = key_of(name)
        if value is None:
            raise ProtocolError(ErrorCode.INVALID_CONFIG, f"{name}: a value is missing")
        key.check(value)
        result[name] = value
    return result


def _resource(
    image: MetadataImage,
    requested: AlterConfigsResource | IncrementalAlterConfigsResource,
    times: Mapping[tuple[int, str], int],
    changed: list[str],
) -> _Resource:
    """`changed`: the keys that the request may change. Raises `ProtocolError` for a resource that cannot be configured,
    or does not have these keys."""
    kind, name, keys = requested.resource_type, requested.resource_name, [entry.name for entry in requested.configs]
    if times[kind, name] > 1:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "the request names this resource more than once")
    if len(set(keys)) < len(keys):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "the request names a key more than once")
    if kind == BROKER_RESOURCE:
        if changed or not keys:
            _refuse_what_is_of_files(name, changed)
        return _Resource(kind, name, image.defaults)
    if kind != TOPIC_RESOURCE:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"resource type {kind} cannot be configured")
    topic = image.topics.get(name)
    if topic is None:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"unknown topic {name!r}")
    return _Resource(kind, name, topic.configs)


def _effective(image: MetadataImage, requested: IncrementalAlterConfigsResource) -> list[IncrementalAlterableConfig]:
    """The entries without deletions of keys that are not set: these change nothing, whatever they name, as in Kafka."""
    return [
        entry
        for entry in requested.configs
        if entry.config_operation != DELETE or _is_set(image, requested, entry.name)
    ]


def _is_set(image: MetadataImage, requested: IncrementalAlterConfigsResource, key: str) -> bool:
    """Whether the resource may have this key. No single broker has any; another rule protects the cluster's own
    keys."""
    if requested.resource_type == TOPIC_RESOURCE:
        topic = image.topics.get(requested.resource_name)
        return topic is not None and key in topic.configs
    if key in BROKER_KEYS:
        return key in image.defaults
    return key in CLUSTER_WIDE or (requested.resource_name == ALL_BROKERS and key in image.defaults)


def _refuse_what_is_of_files(broker: str, keys: list[str]) -> None:
    refused_keys = [key for key in keys if not is_for_all_brokers(key)]
    if refused_keys or (broker != ALL_BROKERS and not keys):
        message = "a broker's configuration is in its file; change it there and restart the broker"
        raise ProtocolError(ErrorCode.INVALID_REQUEST, message)
    if broker != ALL_BROKERS:
        message = f"{keys[0]} applies to the whole cluster: set it for all brokers, with an empty broker name"
        raise ProtocolError(ErrorCode.INVALID_CONFIG, message)


def _checked(resource: _Resource, values: Mapping[str, str | None]) -> dict[str, str]:
    """As `checked`; a value that brokers cannot have makes the request invalid, as in Apache Kafka (KAFKA-13609)."""
    if resource.type != BROKER_RESOURCE:
        return checked(values)
    try:
        return _valid(values, dynamic_key_of)
    except ProtocolError as error:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, str(error)) from error


def _changed(resource: _Resource, entries: list[IncrementalAlterableConfig], config: BrokerConfig) -> dict[str, str]:
    new_configs = dict(resource.configs)
    for entry in entries:
        key = dynamic_key_of(entry.name) if resource.type == BROKER_RESOURCE else key_of(entry.name)
        if entry.config_operation == DELETE:
            new_configs.pop(entry.name, None)
            continue
        if entry.config_operation == SET:
            new_configs |= _checked(resource, {entry.name: entry.value})
            continue
        if entry.config_operation not in (APPEND, SUBTRACT) or key.kind != "list":
            message = f"{entry.name}: operation {entry.config_operation} does not apply to a {key.kind}"
            raise ProtocolError(ErrorCode.INVALID_CONFIG, message)
        parts, named = split(new_configs.get(entry.name, default_of(key, config))), split(entry.value or "")
        if entry.config_operation == APPEND:
            parts += [part for part in named if part not in parts]
        else:
            parts = [part for part in parts if part not in named]
        new_configs |= _checked(resource, {entry.name: ",".join(parts)})
    return new_configs


def _together(resource: _Resource, new_configs: dict[str, str], config: BrokerConfig) -> dict[str, str]:
    """The settings `new_configs`. Raises `ProtocolError` if those of a topic's remote storage contradict each other."""
    if resource.type == TOPIC_RESOURCE:
        check_remote_storage(resource.name, new_configs, config, before=resource.configs)
    return new_configs


def _difference(resource: _Resource, new_configs: Mapping[str, str]) -> list[ConfigRecord]:
    """The records that change a configuration to `new_configs`, without those that would change nothing. Raises
    `ProtocolError` for the removal of a key that the cluster must have."""
    records = [
        ConfigRecord(resource.type, resource.name, name, value)
        for name, value in sorted(new_configs.items())
        if resource.configs.get(name) != value
    ]
    removed = sorted(resource.configs.keys() - new_configs.keys())
    cluster_wide = [name for name in removed if name in CLUSTER_WIDE]
    if cluster_wide and resource.type == BROKER_RESOURCE:
        message = f"{', '.join(cluster_wide)} cannot be removed: each broker would use its own file; set another value"
        raise ProtocolError(ErrorCode.INVALID_CONFIG, message)
    return records + [ConfigRecord(resource.type, resource.name, name, None) for name in removed]

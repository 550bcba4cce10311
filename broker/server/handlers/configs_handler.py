"""DescribeConfigs: the configuration with which this broker runs, and the topics' and the cluster's from the metadata
log. ListConfigResources: the resources that have a configuration.

Loggers, groups and clients' metrics have no settings here. Their descriptions are empty, because the admin tools ask
for them together with others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from broker.config import BrokerConfig
from broker.controller.image import MetadataImage
from broker.errors import ErrorCode, ProtocolError
from broker.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from broker.protocol.messages.list_config_resources import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from broker.server.work_budget import Work
from broker.setting_descriptions import OPTIONAL
from broker.topic_settings import FIXED, KEYS, is_for_all_brokers

DYNAMIC_TOPIC_CONFIG, DYNAMIC_DEFAULT_BROKER_CONFIG = 1, 3  # DescribeConfigsResponse.ConfigSource
STATIC_BROKER_CONFIG, DEFAULT_CONFIG = 4, 5
_TYPES = {"boolean": 1, "string": 2, "int": 3, "long": 5, "double": 6, "list": 7}  # DescribeConfigsResponse.ConfigType


_Source = tuple[str, str | None, int]
"""The key's name at this source, its value, and the kind of source."""


class ConfigsHandler:
    """Answers for topics and for this broker; other brokers answer for theirs."""

    def __init__(self, config: BrokerConfig, image: Callable[[], MetadataImage]) -> None:
        self._config = config
        self._node_id = config.node_id
        self._image = image
        self._values: dict[str, Any] = {}
        self._defaults: dict[str, Any] = {}
        for spec in fields(config):
            if key := spec.metadata.get("key"):
                self._values[key] = getattr(config, spec.name)
                self._defaults[key] = spec.default

    def describe(self, request: DescribeConfigsRequest, version: int) -> Work[DescribeConfigsResponse]:  # noqa: ARG002
        """A resource that is named again is answered once, so that an answer is bounded by the size of the cluster."""
        response = DescribeConfigsResponse()
        described = set()
        for asked in request.resources:
            resource = (asked.resource_type, asked.resource_name)
            if resource not in described:
                described.add(resource)
                result = self._describe(asked, request.include_synonyms, request.include_documentation)
                response.results.append(result)
                for _ in result.configs:
                    yield
            yield
        return response

    def list_resources(self, request: ListConfigResourcesRequest, version: int) -> ListConfigResourcesResponse:
        """Version 0 lists only resources of clients' metrics, and the broker has none."""
        known = {
            BROKER: self._brokers,
            BROKER_LOGGER: self._brokers,
            TOPIC: self._topics,
            GROUP: list,
            CLIENT_METRICS: list,
        }
        asked = dict.fromkeys(request.resource_types or known) if version else {}
        if not asked.keys() <= known.keys():
            return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        found = [ConfigResource(name, each) for each in asked for name in known[each]()]
        return ListConfigResourcesResponse(config_resources=found)

    def _brokers(self) -> list[str]:
        return [str(broker) for broker in sorted(self._image().brokers)]

    def _topics(self) -> list[str]:
        return sorted(self._image().topics)

    def _describe(self, asked: DescribeConfigsResource, synonyms: bool, documentation: bool) -> DescribeConfigsResult:
        result = DescribeConfigsResult(
            resource_type=asked.resource_type, resource_name=asked.resource_name, error_message=None
        )
        try:
            if asked.resource_type == BROKER:
                entries = self._broker(asked.resource_name)
            elif asked.resource_type == TOPIC:
                entries = self._topic(asked.resource_name)
            elif asked.resource_type in (BROKER_LOGGER, GROUP, CLIENT_METRICS):
                entries = []
            else:
                raise ProtocolError(
                    ErrorCode.INVALID_REQUEST, f"resource type {asked.resource_type} has no configuration"
                )
        except ProtocolError as error:
            result.error_code, result.error_message = error.code, str(error)
            return result
        wanted = set(asked.configuration_keys or ())
        for entry in entries:
            if not wanted or entry.name in wanted:
                if not synonyms:
                    entry.synonyms = []
                if not documentation:
                    entry.documentation = None
                result.configs.append(entry)
        return result

    def _broker(self, name: str) -> list[DescribeConfigsResourceResult]:
        if name not in ("", str(self._node_id)):
            raise ProtocolError(ErrorCode.INVALID_REQUEST, f"ask broker {name}; this is broker {self._node_id}")
        return [
            _entry(
                key,
                self._shared(key, _text(value)),
                _kind(value),
                OPTIONAL.get(key),
                read_only=not is_for_all_brokers(key),
            )
            for key, value in sorted(self._values.items())
        ]

    def _topic(self, name: str) -> list[DescribeConfigsResourceResult]:
        topic = self._image().topics.get(name)
        if topic is None:
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
        entries = []
        for key_name, key in sorted(KEYS.items()):
            default = key.default(self._config)
            sources: list[_Source] = [("", default, DEFAULT_CONFIG)]
            if key.inherited:
                sources = self._shared(key.inherited, default)
            if key_name in topic.configs:
                sources.insert(0, (key_name, topic.configs[key_name], DYNAMIC_TOPIC_CONFIG))
            entries.append(_entry(key_name, sources, key.kind, OPTIONAL.get(key.inherited), read_only=False))
        for key_name, fixed in FIXED.items():
            value = topic.configs.get(key_name)
            own = [] if value is None else [(key_name, value, DYNAMIC_TOPIC_CONFIG)]
            fixed_sources: list[_Source] = [*own, (fixed.inherited, fixed.value, DEFAULT_CONFIG)]
            entries.append(_entry(key_name, fixed_sources, fixed.kind, fixed.meaning, read_only=False))
        return sorted(entries, key=lambda entry: entry.name)

    def _shared(self, key: str, own: str | None) -> list[_Source]:
        """A key's values for more than one topic, in order of precedence: the cluster's, then this broker's."""
        source = DEFAULT_CONFIG if self._values[key] == self._defaults[key] else STATIC_BROKER_CONFIG
        defaults = self._image().defaults
        of_cluster: list[_Source] = [(key, defaults[key], DYNAMIC_DEFAULT_BROKER_CONFIG)] if key in defaults else []
        return [*of_cluster, (key, own, source)]


def _entry(
    name: str, sources: list[_Source], kind: str, documentation: str | None, *, read_only: bool
) -> DescribeConfigsResourceResult:
    """The first source has precedence. A synonym has the name of the key at its source, as in Kafka; a source without
    a name is not listed."""
    _, value, source = sources[0]
    return DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=read_only,
        config_source=source,
        synonyms=[DescribeConfigsSynonym(*each) for each in sources if each[0]],
        config_type=_TYPES[kind],
        documentation=documentation,
    )


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "long" if isinstance(value, int) else "string"

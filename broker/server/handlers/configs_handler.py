"""DescribeConfigs: the configuration this broker runs with, and that of topics as the metadata log has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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

TOPIC, BROKER = 2, 4  # Kafka's ConfigResource.Type
DYNAMIC_TOPIC_CONFIG, STATIC_BROKER_CONFIG, DEFAULT_CONFIG = 1, 4, 5  # DescribeConfigsResponse.ConfigSource
_TYPE_STRING, _TYPE_LONG = 2, 5

# A topic's keys and the broker's key each falls back to.
TOPIC_KEYS = {
    "min.insync.replicas": "min.insync.replicas",
    "segment.bytes": "log.segment.bytes",
    "index.interval.bytes": "log.index.interval.bytes",
    "flush.messages": "log.flush.interval.messages",
    "max.message.bytes": "message.max.bytes",
}


class ConfigsHandler:
    """Answers for topics and for this very broker; another broker's configuration is that broker's to tell."""

    def __init__(self, config: BrokerConfig, image: Callable[[], MetadataImage]) -> None:
        self._node_id = config.node_id
        self._image = image
        self._values: dict[str, Any] = {}
        self._defaults: dict[str, Any] = {}
        for spec in fields(config):
            if key := spec.metadata.get("key"):
                self._values[key] = getattr(config, spec.name)
                self._defaults[key] = spec.default

    def describe(self, request: DescribeConfigsRequest, version: int) -> DescribeConfigsResponse:  # noqa: ARG002
        return DescribeConfigsResponse(
            results=[self._describe(asked, request.include_synonyms) for asked in request.resources]
        )

    def _describe(self, asked: DescribeConfigsResource, synonyms: bool) -> DescribeConfigsResult:
        result = DescribeConfigsResult(
            resource_type=asked.resource_type, resource_name=asked.resource_name, error_message=None
        )
        try:
            if asked.resource_type == BROKER:
                entries = self._broker(asked.resource_name)
            elif asked.resource_type == TOPIC:
                entries = self._topic(asked.resource_name)
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
                if synonyms:
                    entry.synonyms = [DescribeConfigsSynonym(entry.name, entry.value, entry.config_source)]
                result.configs.append(entry)
        return result

    def _broker(self, name: str) -> list[DescribeConfigsResourceResult]:
        if name not in ("", str(self._node_id)):
            raise ProtocolError(ErrorCode.INVALID_REQUEST, f"ask broker {name} itself; this is broker {self._node_id}")
        return [self._entry(key, value, self._source(key)) for key, value in sorted(self._values.items())]

    def _topic(self, name: str) -> list[DescribeConfigsResourceResult]:
        topic = self._image().topics.get(name)
        if topic is None:
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        own: Mapping[str, str] = topic.configs
        entries = [self._entry(key, value, DYNAMIC_TOPIC_CONFIG) for key, value in sorted(own.items())]
        for key, inherited in sorted(TOPIC_KEYS.items()):
            if key not in own:
                entries.append(self._entry(key, self._values[inherited], self._source(inherited)))
        return entries

    def _source(self, key: str) -> int:
        return DEFAULT_CONFIG if self._values[key] == self._defaults[key] else STATIC_BROKER_CONFIG

    def _entry(self, key: str, value: Any, source: int) -> DescribeConfigsResourceResult:
        return DescribeConfigsResourceResult(
            name=key,
            value=str(value),
            read_only=source != DYNAMIC_TOPIC_CONFIG,
            config_source=source,
            config_type=_TYPE_LONG if isinstance(value, int) else _TYPE_STRING,
            documentation=None,
        )

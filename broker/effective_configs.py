"""The effective configuration of a topic: every key with its values, by source, in order of precedence (KIP-226).

Sources are those of DescribeConfigs: the topic, the cluster's default, the broker's file, the built-in default.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from broker.config import BrokerConfig
from broker.topic_settings import FIXED, KEYS

DYNAMIC_TOPIC_CONFIG, DYNAMIC_DEFAULT_BROKER_CONFIG = 1, 3  # DescribeConfigsResponse.ConfigSource
STATIC_BROKER_CONFIG, DEFAULT_CONFIG = 4, 5

Source = tuple[str, str | None, int]
"""The key's name at this source ("": it has none there), its value, and the kind of source."""


class EffectiveConfig(NamedTuple):
    """One key of a topic. The first of the `sources` has precedence."""

    name: str
    kind: str
    inherited: str
    """The broker's key with the default; "" without one."""
    meaning: str | None
    """For keys that this broker does not implement."""
    sources: list[Source]


class BrokerValues:
    """The values of one broker's file, and the built-in defaults, by key."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self.values: dict[str, Any] = {}
        self._defaults: dict[str, Any] = {}
        for spec in fields(config):
            if key := spec.metadata.get("key"):
                self.values[key] = getattr(config, spec.name)
                self._defaults[key] = spec.default

    def shared(self, key: str, of_broker: str | None, cluster: Mapping[str, str]) -> list[Source]:
        """A key's values for more than one topic, in order of precedence: the cluster's, then this broker's."""
        source = DEFAULT_CONFIG if self.values[key] == self._defaults[key] else STATIC_BROKER_CONFIG
        of_cluster: list[Source] = [(key, cluster[key], DYNAMIC_DEFAULT_BROKER_CONFIG)] if key in cluster else []
        return [*of_cluster, (key, of_broker, source)]

    def of_topic(self, own: Mapping[str, str], cluster: Mapping[str, str]) -> Iterator[EffectiveConfig]:
        """All keys of a topic, by name. `own`: what is set for the topic; `cluster`: the cluster's defaults."""
        for name in sorted(KEYS.keys() | FIXED.keys()):
            of_topic: list[Source] = [(name, own[name], DYNAMIC_TOPIC_CONFIG)] if name in own else []
            if name in KEYS:
                key = KEYS[name]
                default = key.default(self._config)
                rest: list[Source] = [("", default, DEFAULT_CONFIG)]
                if key.inherited:
                    rest = self.shared(key.inherited, default, cluster)
                yield EffectiveConfig(name, key.kind, key.inherited or "", None, [*of_topic, *rest])
            else:
                fixed = FIXED[name]
                rest = [(fixed.inherited, fixed.value, DEFAULT_CONFIG)]
                yield EffectiveConfig(name, fixed.kind, fixed.inherited, fixed.meaning, [*of_topic, *rest])

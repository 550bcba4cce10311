"""The settings of a broker's file that the cluster's committed settings override."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from broker.config import BrokerConfig
from broker.topic_settings import CLUSTER_WIDE, KEYS


class Overruled(NamedTuple):
    """A key whose value in this broker's file is overridden by another value of the cluster."""

    source: str
    key: str
    own: str
    cluster: str

    def __str__(self) -> str:
        return (
            f"{self.source}: {self.key}={self.own} has no effect: the cluster's value {self.cluster} applies to topics "
            f"without their own; write {self.cluster} here, or change the cluster's value with kafka-configs.sh "
            f"--alter --entity-type brokers --entity-default --add-config {self.key}={self.own}"
        )


def overruled(config: BrokerConfig, defaults: Mapping[str, str]) -> list[Overruled]:
    """The overridden settings. `defaults`: the cluster's. Keys that the file does not contain are not listed."""
    found = (
        Overruled(config.source, name, KEYS[name].default(config), value)
        for name, value in defaults.items()
        if name in CLUSTER_WIDE
    )
    return [each for each in found if each.key in config.given and each.own != each.cluster]

"""What a broker's file says and does not count: the cluster has another value in the metadata log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from broker.config import BrokerConfig
from broker.topic_settings import KEYS


class Overruled(NamedTuple):
    """A key for which this broker's own file has a value that the cluster does not go by."""

    source: str
    key: str
    own: str
    cluster: str

    def __str__(self) -> str:
        return (
            f"{self.source}: {self.key}={self.own} does not count: the cluster has {self.cluster} for topics that set "
            f"none; write {self.cluster} here, or change the cluster's with kafka-configs.sh --alter --entity-type "
            f"brokers --entity-default --add-config {self.key}={self.own}"
        )


def overruled(config: BrokerConfig, defaults: Mapping[str, str]) -> list[Overruled]:
    """`defaults`: the cluster's. A file that does not name a key says nothing of it."""
    found = (Overruled(config.source, name, KEYS[name].default(config), value) for name, value in defaults.items())
    return [each for each in found if each.key in config.given and each.own != each.cluster]

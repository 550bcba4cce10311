"""Apache Kafka with ZooKeeper, 0.10 to 3.9: runs jars on the nodes' Java; the observer reads ZooKeeper's znodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from systems.apache_kafka_zk.observer import ZooKeeperObserver
from systems.apache_kafka_zk.znodes import ZooKeeperClient
from systems.errors import InputError
from systems.java_system import JavaSystem
from systems.service import Place
from systems.view import Member

_BROKER, _ZOOKEEPER = "broker", "zookeeper"

# Keys that make a node part of this run's cluster; a second value in the file would override the run's.
_GIVEN = {
    _BROKER: frozenset({"broker.id", "listeners", "advertised.listeners", "log.dir", "log.dirs", "zookeeper.connect"}),
    _ZOOKEEPER: frozenset({"dataDir", "dataLogDir", "clientPort", "clientPortAddress", "tickTime"}),
}


class ZooKeeperKafka(JavaSystem):
    """One node is ZooKeeper, the others are brokers.

    It makes no class archive: a single broker without ZooKeeper does not start far enough."""

    least_java = 11
    has_controller = True
    has_partitions = True
    elects = frozenset({"partition", "cluster"})

    def check_setting(self, role: str, key: str, value: str | int) -> str | None:
        """Kafka and ZooKeeper check their keys themselves, and ignore keys that they do not know."""
        if key in _GIVEN[role]:
            return f"{key}: the run gives it to each node; leave it out (roles are assigned by [system.roles])"
        if "\n" in str(value):
            return f"{key}: the value must be a single line"
        return None

    def assign_roles(self, count: int, asked: Mapping[str, str]) -> tuple[str, ...]:
        roles = super().assign_roles(count, asked)
        if roles.count(_ZOOKEEPER) != 1:
            raise InputError(f"roles: {roles.count(_ZOOKEEPER)} nodes have the role {_ZOOKEEPER}; it must be one")
        if _BROKER not in roles:
            raise InputError(f"roles: no node has the role {_BROKER}; give [topology] more nodes")
        return roles

    def variables(self, node: Place, cluster_id: str) -> dict[str, Any]:
        """Adds `has_admin`: whether this ZooKeeper would open another port, for administrators."""
        return {**super().variables(node, cluster_id), "has_admin": int(self.version.split(".")[0]) >= 3}

    def observe(self, members: Sequence[Member], topic: str, time_scale: float = 1.0) -> ZooKeeperObserver:
        zookeepers = [f"{each.address}:{each.port}" for each in members if each.role == _ZOOKEEPER]
        return ZooKeeperObserver(members, topic, ZooKeeperClient(zookeepers, time_scale), time_scale)

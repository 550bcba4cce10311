"""Apache Kafka with KRaft: a quorum of controllers, on the brokers themselves or on nodes of their own."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from history.time_scale import ORDINARY
from systems.catalog import lock_path
from systems.errors import InputError
from systems.java_system import JavaSystem
from systems.kafka_protocol.observer import KafkaObserver
from systems.lock_file import Coordinate, Lock
from systems.service import Place
from systems.view import Member

_BROKER = "broker"
_TIERED = "remote.log.storage.system.enable"
_STORE = Coordinate("org.apache.kafka", "kafka-storage", "", "test")
"""The jar with `LocalTieredStorage`, a store of remote segments in a directory; its version is Kafka's."""

# Timeouts that decide when a node counts as gone, and their polling intervals, with Kafka's defaults. Unscaled, a node
# that is twelve times slower would lose each election of a second, and exit after a minute without a quorum.
_TIMES = {
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.election.backoff.max.ms": "1000",
    "controller.quorum.fetch.timeout.ms": "2000",
    "controller.quorum.request.timeout.ms": "2000",
    "controller.quorum.retry.backoff.ms": "20",
    "broker.heartbeat.interval.ms": "2000",
    "broker.session.timeout.ms": "9000",
    "initial.broker.registration.timeout.ms": "60000",
    "metadata.max.idle.interval.ms": "500",
    "replica.lag.time.max.ms": "30000",
}

# Keys that make a node part of this run's cluster; a second value in the file would override the run's.
_GIVEN = frozenset(
    {
        "process.roles",
        "node.id",
        "broker.id",
        "controller.quorum.voters",
        "controller.quorum.bootstrap.servers",
        "controller.listener.names",
        "inter.broker.listener.name",
        "listeners",
        "advertised.listeners",
        "listener.security.protocol.map",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
    }
)


class Kraft(JavaSystem):
    """Brokers are controllers as well, unless a campaign's roles name controllers: then only these form the quorum."""

    has_controller = True
    has_partitions = True
    elects = frozenset({"partition"})
    controls_topics = True
    archived_role = _BROKER

    def check_setting(self, role: str, key: str, value: str | int) -> str | None:
        """Kafka checks its keys itself, and ignores keys that it does not know."""
        del role
        if key in _GIVEN:
            return f"{key}: the run gives it to each node; leave it out (roles are assigned by [system.roles])"
        if "\n" in str(value):
            return f"{key}: the value must be a single line"
        return None

    def check_node(self, role: str, settings: Mapping[str, str], where: str) -> str | None:
        """Tiered storage needs a store, which only versions with Kafka's test jars have."""
        del role
        if settings.get(_TIERED) != "true" or self._has_store(self.version):
            return None
        store = replace(_STORE, version=self.version)
        able = [version for version in self.description.versions if self._has_store(version)]
        return (
            f"{where}: {_TIERED}: version {self.version} has no {store.file_name}, which contains the store of remote "
            f"segments; use version {' or '.join(able) or 'of a lock that lists it'}"
        )

    def _has_store(self, version: str) -> bool:
        files = Lock.read(lock_path(self.description.directory, version), self.name, version).files
        return any(file.coordinate == replace(_STORE, version=version) for file in files)

    def effective(self, role: str, given: Mapping[str, str], time_scale: float) -> dict[str, str]:
        """The time scale also multiplies timeouts that the campaign does not set."""
        return super().effective(role, given if time_scale == ORDINARY else {**_TIMES, **given}, time_scale)

    def assign_roles(self, count: int, asked: Mapping[str, str]) -> tuple[str, ...]:
        roles = super().assign_roles(count, asked)
        if _BROKER not in roles:
            raise InputError(f"roles: no node has the role {_BROKER}; name fewer nodes")
        return roles

    def variables(self, node: Place, cluster_id: str) -> dict[str, Any]:
        return {**super().variables(node, cluster_id), "kraft_cluster_id": kraft_cluster_id(cluster_id)}

    def identity(self, cluster_id: str) -> str | None:
        return kraft_cluster_id(cluster_id)

    def observe(self, members: Sequence[Member], topic: str, time_scale: float = 1.0) -> KafkaObserver:
        brokers = [member for member in members if member.role == _BROKER]
        controllers = [member for member in members if member.role != _BROKER]
        return KafkaObserver(brokers, topic, time_scale, controllers)


def kraft_cluster_id(cluster_id: str) -> str:
    """A cluster id in Kafka's format: 16 bytes as base64 for URLs, 22 characters. It does not start with a hyphen,
    because `format` would take it for an option."""
    digest = hashlib.sha256(cluster_id.encode()).digest()
    texts = (base64.urlsafe_b64encode(digest[at : at + 16]).decode().rstrip("=") for at in range(len(digest) - 15))
    return next((text for text in texts if not text.startswith("-")), "A" * 22)

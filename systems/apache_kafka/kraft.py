"""Apache Kafka with KRaft: its own quorum of controllers, on the brokers themselves or on nodes of their own."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from systems.errors import InputError
from systems.java_system import JavaSystem
from systems.kafka_protocol.observer import KafkaObserver
from systems.service import Place
from systems.view import Member

_BROKER = "broker"

# The times that decide who is taken for gone, and how often that is asked, with Kafka's own values for them. A node
# that is twelve times slower would lose each election of a second, and end itself after a minute without a quorum.
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

# What makes a node a part of this run's cluster; a second value of them would be the one that counts.
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
    """Brokers are controllers as well, unless a campaign's roles name controllers: then these alone are the quorum."""

    has_controller = True
    has_partitions = True
    elects = frozenset({"partition"})
    archived_role = _BROKER

    def check_setting(self, role: str, key: str, value: str | int) -> str | None:
        """Kafka itself knows its keys, and passes over those that it does not know."""
        del role
        if key in _GIVEN:
            return f"{key}: is given to each node by the run; leave it out (who is what: [system.roles])"
        if "\n" in str(value):
            return f"{key}: a value has one line"
        return None

    def effective(self, role: str, given: Mapping[str, str], time_scale: float) -> dict[str, str]:
        """Where everything takes longer those timeouts have to that nobody has set as well."""
        return super().effective(role, given if time_scale == 1.0 else {**_TIMES, **given}, time_scale)

    def assign_roles(self, count: int, asked: Mapping[str, str]) -> tuple[str, ...]:
        roles = super().assign_roles(count, asked)
        if _BROKER not in roles:
            raise InputError(f"roles: {_BROKER} is played by nobody; name fewer nodes")
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
    """A cluster id as Kafka wants it: 16 bytes as base64 for URLs, 22 characters. It does not begin with a hyphen, by
    which `format` would take it for an option."""
    digest = hashlib.sha256(cluster_id.encode()).digest()
    texts = (base64.urlsafe_b64encode(digest[at : at + 16]).decode().rstrip("=") for at in range(len(digest) - 15))
    return next((text for text in texts if not text.startswith("-")), "A" * 22)

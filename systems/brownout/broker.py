"""Brownout's own broker as a system under test: its settings, its mutants, and an observer of the Kafka protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from broker.config import BrokerConfig
from broker.errors import StartupError
from broker.mutants import BENIGN, MUTANTS
from broker.trace import EVENTS
from history.time_scale import ORDINARY
from systems.kafka_protocol.observer import KafkaObserver
from systems.system import System
from systems.toml_tables import suggestion
from systems.view import Member

_KEYS = {f.metadata["key"]: f for f in fields(BrokerConfig) if "key" in f.metadata}
_VOTERS = "quorum.voters"
"""In a campaign, a number N: the first N nodes vote in the metadata quorum; by default all nodes. The template turns it
into the broker's list of voters."""
_STORE = "rsm.config.url"
"""The object store. By default the template names the directory that the nodes share; the simulation has a store of its
own, and the path is not used."""
_TIMES = {key: str(f.default) for key, f in _KEYS.items() if key.endswith(".ms")}
"""The settings that are times, with their defaults, in milliseconds."""


def _text(default: Any) -> str:
    """A default as the broker's configuration file writes it."""
    return str(default).lower() if isinstance(default, bool) else "" if default is None else str(default)


class Brownout(System):
    """Every node is a broker, and a voter of the metadata quorum unless the campaign sets fewer voters (K595-1)."""

    mutants: Mapping[str, Any] = {**MUTANTS, **BENIGN}
    has_controller = True
    has_partitions = True
    elects = frozenset({"partition"})
    controls_topics = True
    trace_events = EVENTS

    def check_setting(self, role: str, key: str, value: str | int) -> str | None:
        if key == _VOTERS:
            return None if isinstance(value, int) and value >= 1 else f"{key}: {value!r} is not a number from 1"
        spec = _KEYS.get(key)
        if spec is None:
            return f"unknown {role} key {key!r}; {suggestion(key, _KEYS)}"
        if isinstance(spec.default, bool):
            if value not in ("true", "false"):
                return f'{key}: {value!r} is neither "true" nor "false"'
        elif isinstance(spec.default, int):
            if not isinstance(value, int):
                return f"{key}: {value!r} is not a whole number"
            minimum = spec.metadata["minimum"]
            if minimum is not None and value < minimum:
                return f"{key}: {value} is smaller than {minimum}"
        return None

    def defaults(self, role: str) -> Mapping[str, str]:
        del role  # there is one role
        return {key: _text(spec.default) for key, spec in sorted(_KEYS.items())}

    def check_node(self, role: str, settings: Mapping[str, str], where: str) -> str | None:
        """Let the broker validate the whole configuration, because some keys depend on each other."""
        del role  # there is one role
        address = {"node.id": "1", "listeners": "n:1", _VOTERS: "1@n:1", "log.dir": "log", _STORE: "file:///shared"}
        try:
            BrokerConfig.from_properties(
                address | {key: text for key, text in settings.items() if key != _VOTERS}, where
            )
        except StartupError as error:
            return str(error)
        return None

    def effective(self, role: str, given: Mapping[str, str], time_scale: float) -> dict[str, str]:
        """The time scale also multiplies timeouts that the campaign does not set."""
        return super().effective(role, given if time_scale == ORDINARY else {**_TIMES, **given}, time_scale)

    def identity(self, cluster_id: str) -> str | None:
        return cluster_id

    def arguments(self, mutants: Sequence[str]) -> tuple[str, ...]:
        return tuple(argument for name in mutants for argument in ("--mutant", name))

    def observe(self, members: Sequence[Member], topic: str, time_scale: float = 1.0) -> KafkaObserver:
        return KafkaObserver(members, topic, time_scale)

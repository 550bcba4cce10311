"""Warnings about a valid configuration: listeners without authentication, and settings without effect."""

from collections.abc import Mapping
from typing import NamedTuple

from broker.config import BrokerConfig
from broker.listeners import ListenerEndpoint, SecurityProtocol
from broker.topic_settings import CLUSTER_WIDE, KEYS


def open_listeners(config: BrokerConfig) -> list[str]:
    """A warning for each listener without authentication, where another listener requires it or an authorizer is set.
    Without any such listener the configuration is plain, and gives no warning."""
    opened = [listener for listener in config.listeners if not _authenticates(listener, config)]
    if len(opened) == len(config.listeners) and not config.authorizer_class_name:
        return []
    return [_warning(listener, config) for listener in opened]


def _authenticates(listener: ListenerEndpoint, config: BrokerConfig) -> bool:
    by_certificate = listener.protocol is SecurityProtocol.SSL and config.ssl_client_auth == "required"
    return listener.protocol.authenticates or by_certificate


def _warning(listener: ListenerEndpoint, config: BrokerConfig) -> str:
    place = f"{config.source}: listener {listener.name} ({listener.protocol.name}) at {listener.host}:{listener.port}"
    remedy = f"give {listener.name} SASL_SSL in listener.security.protocol.map, or let a firewall close its port"
    if listener.name in config.controller_names:
        return (
            f"{place} requires no authentication and serves controllers: any peer can act as a broker there, and "
            f"forward requests in any user's name; {remedy}"
        )
    return f"{place} requires no authentication, although other listeners or the authorizer do; {remedy}"


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
    settings = (
        Overruled(config.source, name, KEYS[name].default(config), value)
        for name, value in defaults.items()
        if name in CLUSTER_WIDE
    )
    return [setting for setting in settings if setting.key in config.given and setting.own != setting.cluster]

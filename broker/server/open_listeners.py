"""Warns of listeners without authentication, on a broker that otherwise requires it."""

from __future__ import annotations

from broker.config import BrokerConfig
from broker.listeners import ListenerEndpoint, SecurityProtocol


def open_listeners(config: BrokerConfig) -> list[str]:
    """A warning for each listener without authentication, where another listener requires it or an authorizer is set.
    Without any such listener the configuration is plain, and gives no warning."""
    opened = [each for each in config.listeners if not _authenticates(each, config)]
    if len(opened) == len(config.listeners) and not config.authorizer_class_name:
        return []
    return [_warning(each, config) for each in opened]


def _authenticates(listener: ListenerEndpoint, config: BrokerConfig) -> bool:
    by_certificate = listener.protocol is SecurityProtocol.SSL and config.ssl_client_auth == "required"
    return listener.protocol.authenticates or by_certificate


def _warning(listener: ListenerEndpoint, config: BrokerConfig) -> str:
    where = f"{config.source}: listener {listener.name} ({listener.protocol.name}) at {listener.host}:{listener.port}"
    remedy = f"give {listener.name} SASL_SSL in listener.security.protocol.map, or let a firewall close its port"
    if listener.name in config.controller_names:
        return (
            f"{where} requires no authentication and serves controllers: any peer can act as a broker there, and "
            f"forward requests in any user's name; {remedy}"
        )
    return f"{where} requires no authentication, although other listeners or the authorizer do; {remedy}"

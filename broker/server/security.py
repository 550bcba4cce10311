"""Builds the TLS contexts, authentication and authorizer from the configuration, once, when a node is made."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from broker.config import BrokerConfig
from broker.controller.image import MetadataImage
from broker.errors import StartupError
from broker.listeners import ListenerEndpoint, SecurityProtocol, parse_names
from broker.properties import shown
from broker.security.authorizer import Authorizer
from broker.security.passwords import Password, read_passwords
from broker.security.principals import parse_super_users
from broker.security.sasl import PLAIN, Accounts
from broker.security.scram import MECHANISMS
from broker.security.tls import HANDSHAKE_TIMEOUT_S, client_context, server_context
from broker.server.authorization.acl_guard import AclGuard
from broker.server.listener import Entrance
from broker.server.peer_security import PLAINTEXT, Approach, Steps, log_in
from broker.server.sasl_gate import ListenerAuthentication, SaslGate

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
KNOWN_MECHANISMS = (PLAIN, *MECHANISMS)


class _Identity(NamedTuple):
    """This broker's own user for other brokers."""

    user: str
    password: Password


class Security:
    """The security of a node. Raises `StartupError` for an invalid file or key."""

    def __init__(self, config: BrokerConfig, rng: random.Random, image: Callable[[], MetadataImage]) -> None:
        """`image` returns the known users and topics; `rng` makes a secret (outside the simulation it is seeded from
        the system's random source)."""
        source = "configuration"
        spoken = {each.protocol for each in config.listeners} | {config.controller_protocol}
        encrypts = any(each.encrypts for each in spoken)
        self._authenticates = any(each.authenticates for each in spoken)
        self._mechanisms = _mechanisms(config, source)
        self._mechanism = config.sasl_mechanism_inter_broker_protocol
        self.server_tls = server_context(config, source) if encrypts else None
        self._client_tls = client_context(config, source) if encrypts else None
        self._max_receive_bytes = config.sasl_server_max_receive_size
        self._max_reauth_ms = config.connections_max_reauth_ms
        self._plain_anywhere = config.sasl_plain_without_tls
        users: dict[str, Password] = {}
        if config.sasl_users_file is not None:
            users = read_passwords(config.sasl_users_file, "sasl.users.file", source)
        self._identity = self._own_identity(config, source)
        # Without users no secret is drawn: other draws from `rng` then do not depend on this module.
        key = rng.randbytes(32) if self._authenticates else b""
        shared = None if self._identity is None else self._identity.password
        self._accounts = Accounts(users, lambda: image().scram, key, shared)
        self.authorizer = _authorizer(config, source)
        self.guard = None if self.authorizer is None else AclGuard(self.authorizer, image)

    def entrance(self, endpoint: ListenerEndpoint) -> Entrance | None:
        """The authentication of a listener; None where peers need none."""
        if not endpoint.protocol.authenticates:
            return None
        offered = tuple(it for it in self._mechanisms if self._may_use(it, endpoint.protocol))
        entry = ListenerAuthentication(offered, self._accounts, self._max_receive_bytes, self._max_reauth_ms)
        return partial(SaslGate, entry=entry)

    def approach(self, protocol: SecurityProtocol) -> Approach:
        """How this broker connects to listeners of a protocol."""
        if not protocol.encrypts and not protocol.authenticates:
            return PLAINTEXT
        connecting: dict[str, Any] = {}
        if protocol.encrypts:
            connecting = {"ssl": self._client_tls, "ssl_handshake_timeout": HANDSHAKE_TIMEOUT_S}
        if not protocol.authenticates:
            return Approach(connecting)
        return Approach(connecting, self._log_in)

    def _log_in(self) -> Steps:
        assert self._identity is not None, "checked when this was made"
        nonce = base64.b64encode(self._accounts.nonce().encode()).decode()
        return log_in(self._mechanism, *self._identity, nonce)

    def _may_use(self, mechanism: str, protocol: SecurityProtocol) -> bool:
        """PLAIN sends the password in plain text, so it needs TLS."""
        return mechanism != PLAIN or protocol.encrypts or self._plain_anywhere

    def _own_identity(self, config: BrokerConfig, source: str) -> _Identity | None:
        to_others = [config.inter_broker_listener.protocol, config.controller_protocol]
        asked = [each for each in to_others if each.authenticates]
        key = "sasl.inter.broker.credentials.file"
        if not asked:
            return None
        if self._mechanism not in self._mechanisms:
            raise StartupError(
                f"{source}: sasl.mechanism.inter.broker.protocol: {shown(self._mechanism)} is not among "
                f"sasl.enabled.mechanisms, {', '.join(self._mechanisms)}"
            )
        if not all(self._may_use(self._mechanism, each) for each in asked):
            raise StartupError(
                f"{source}: sasl.mechanism.inter.broker.protocol: PLAIN without TLS exposes the password to "
                "eavesdroppers; use SCRAM-SHA-512, or SASL_SSL"
            )
        if config.sasl_inter_broker_credentials_file is None:
            raise StartupError(f"{source}: {key} is missing: brokers must authenticate to each other")
        found = read_passwords(config.sasl_inter_broker_credentials_file, key, source)
        if len(found) != 1:
            raise StartupError(f"{source}: {key}: expected exactly one line name=password, found {len(found)}")
        return _Identity(*next(iter(found.items())))


def _mechanisms(config: BrokerConfig, source: str) -> tuple[str, ...]:
    found = parse_names(config.sasl_enabled_mechanisms)
    for each in found:
        if each not in KNOWN_MECHANISMS:
            raise StartupError(
                f"{source}: sasl.enabled.mechanisms: {shown(each)} is not one of {', '.join(KNOWN_MECHANISMS)}"
            )
    return found


def _authorizer(config: BrokerConfig, source: str) -> Authorizer | None:
    name = config.authorizer_class_name
    if not name:
        return None
    if name != AUTHORIZER:
        raise StartupError(f"{source}: authorizer.class.name: {shown(name)} is unknown; the only one is {AUTHORIZER}")
    super_users = parse_super_users(config.super_users, source)
    return Authorizer(super_users, allow_if_no_acl=config.allow_everyone_if_no_acl_found)

"""Builds the TLS contexts, authentication and authorizer from the configuration, once, when a node is made.

Requires a peer to authenticate before its requests reach the listener (KIP-43, KIP-152), and again (KIP-368).

Until then only ApiVersions, SaslHandshake and SaslAuthenticate are served. After the authentication the gate is removed
from the connection and costs nothing, unless sessions have a maximum lifetime. In that case the peer authenticates
again over the same connection before the end of the session; the first request after the end closes the connection.
"""

import asyncio
import base64
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

from broker.config import BrokerConfig
from broker.controller.image import MetadataImage
from broker.errors import ErrorCode, StartupError
from broker.listeners import ListenerEndpoint, SecurityProtocol, parse_names
from broker.properties import shown
from broker.protocol.api import Api, ApiKey, RequestHeader, decode_request_header, encode_response, find_api
from broker.protocol.codec import DecodeError, decode
from broker.protocol.messages.credential_apis import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from broker.protocol.schema import Message
from broker.security.authorizer import Authorizer
from broker.security.passwords import Password, read_passwords
from broker.security.principals import of_user, parse_super_users
from broker.security.sasl import LONGEST_TOKEN, PLAIN, Accounts, AuthenticationError, Exchange, begin
from broker.security.scram import MECHANISMS
from broker.security.tls import HANDSHAKE_TIMEOUT_S, client_context, server_context
from broker.server.authorization.acl_guard import AclGuard
from broker.server.connection import Connection, ConnectionHost, Outcome, Rejected, Shortcut
from broker.server.host_decorator import InFront
from broker.server.listener import Entrance
from broker.server.peer_security import PLAINTEXT, Approach, Steps, log_in

FAILURE_DELAY_S = 0.1
"""Delay of the answer to a wrong password (`connection.failed.authentication.delay.ms`), to slow down guessing."""
LEAST_BETWEEN_S = 1.0
"""The least time between two authentications of a connection (Kafka's bound)."""
FIRST_WITH_AUTHENTICATE = 1
"""The SaslHandshake version from which on SaslAuthenticate carries the tokens; in version 0 each is a bare frame."""


@dataclass(frozen=True)
class ListenerAuthentication:
    """The authentication that a listener requires.

    `mechanisms` are the enabled ones; `max_receive_bytes` bounds a request before the authentication;
    `max_reauth_ms` is the lifetime of a session, 0: as long as its connection.
    """

    mechanisms: Sequence[str]
    accounts: Accounts
    max_receive_bytes: int
    max_reauth_ms: int = 0


@dataclass(frozen=True)
class _Identity:
    """An authenticated peer and its mechanism; `started_at`: its start, by the loop's clock."""

    user: str
    mechanism: str
    started_at: float


class SaslGate(InFront):
    """One authentication on one connection."""

    def __init__(
        self, inside: ConnectionHost, entry: ListenerAuthentication, old_identity: _Identity | None = None
    ) -> None:
        """`old_identity`: the peer's previous identity when it authenticates again; None: this is the first time."""
        super().__init__(inside)
        self.request_max_bytes = min(inside.request_max_bytes, entry.max_receive_bytes)
        self._entry = entry
        self._known = old_identity
        self._started_at = asyncio.get_running_loop().time()
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._bare = False
        self._failed = False

    def dispatch(self, connection: Connection, frame: memoryview) -> Outcome:
        """Raises `Rejected` for a request that is not part of an authentication."""
        if self._failed:
            raise Rejected("a request after an authentication that failed")
        if self._bare:
            return self._take_bare(connection, bytes(frame))
        try:
            header, body = decode_request_header(frame)
            if header.api_key == ApiKey.API_VERSIONS:
                return self._inside.dispatch(connection, frame)
            api = find_api(header.api_key)
            if api is None or api.key not in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
                raise Rejected(f"API {header.api_key} before authentication")
            if not api.serves(header.api_version):
                raise Rejected(f"{api.key.name} has no version {header.api_version}")
            request, _ = decode(api.request, header.api_version, frame, body, most_entries=1)
        except DecodeError as error:
            raise Rejected(str(error)) from error
        if api.key is ApiKey.SASL_HANDSHAKE:
            return self._handshake(connection, api, header, cast(SaslHandshakeRequest, request).mechanism)
        return self._authenticate(connection, api, header, cast(SaslAuthenticateRequest, request).auth_bytes)

    def finish(self, shortcut: Shortcut) -> Outcome:  # noqa: ARG002 - the signature of ConnectionHost
        """Raises `Rejected`: the shortcut was made before this authentication started."""
        raise Rejected("requests like the last one before authentication")

    def _handshake(self, connection: Connection, api: Api, header: RequestHeader, mechanism: str) -> Outcome:
        entry = self._entry
        response = SaslHandshakeResponse(ErrorCode.NONE, list(entry.mechanisms))
        reason = None
        if self._exchange is not None:
            response.error_code, reason = ErrorCode.ILLEGAL_SASL_STATE, "a second SaslHandshake"
        elif mechanism not in entry.mechanisms:
            response.error_code, reason = ErrorCode.UNSUPPORTED_SASL_MECHANISM, "a mechanism that is not enabled"
        elif self._known is not None and mechanism != self._known.mechanism:
            response.error_code, reason = ErrorCode.ILLEGAL_SASL_STATE, "another mechanism than before"
        if reason is not None:
            return self._refuse(connection, reason, _frame(api, header, response))
        self._mechanism = mechanism
        self._exchange = begin(mechanism, entry.accounts)
        if header.api_version < FIRST_WITH_AUTHENTICATE:
            self._bare = True
            connection.expect_tokens()
        return _frame(api, header, response)

    def _authenticate(self, connection: Connection, api: Api, header: RequestHeader, token: bytes) -> Outcome:
        if self._exchange is None:
            refusal = SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, "SaslHandshake comes first")
            return self._refuse(connection, "SaslAuthenticate before SaslHandshake", _frame(api, header, refusal))
        try:
            answer, is_known = self._take(connection, token)
        except AuthenticationError as error:
            reason = f"authentication failed: {error}"
            refusal = SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, reason.capitalize())
            return self._refuse(connection, reason, _frame(api, header, refusal))
        lifetime_ms = self._entry.max_reauth_ms if is_known else 0
        return _frame(api, header, SaslAuthenticateResponse(ErrorCode.NONE, None, answer, lifetime_ms))

    def _take_bare(self, connection: Connection, token: bytes) -> Outcome:
        """Without SaslAuthenticate the protocol has no error message."""
        try:
            answer, _ = self._take(connection, token)
        except AuthenticationError as error:
            return self._refuse(connection, f"authentication failed: {error}", b"")
        return len(answer).to_bytes(4, "big") + answer

    def _take(self, connection: Connection, token: bytes) -> tuple[bytes, bool]:
        """The answer to a token, and whether the authentication is complete. Raises `AuthenticationError`."""
        assert self._exchange is not None
        if len(token) > LONGEST_TOKEN:
            raise AuthenticationError(f"a token of more than {LONGEST_TOKEN} bytes")
        answer, user = self._exchange.step(token)
        if user is None:
            return answer, False
        if self._known is not None and user != self._known.user:
            raise AuthenticationError("the user of a connection cannot change")
        connection.principal = of_user(user)
        lifetime_ms = self._entry.max_reauth_ms
        if lifetime_ms:
            identity = _Identity(user, self._mechanism, self._started_at)
            connection.served_by(_Session(self._inside, self._entry, identity))
        else:
            connection.served_by(self._inside)
        return answer, True

    def _refuse(self, connection: Connection, reason: str, answer: bytes) -> Outcome:
        """Answer after a delay, and close: each connection allows one attempt."""
        self._failed = True
        slot = connection.reserve(blocking=True)

        def end() -> None:
            slot.fill([answer] if answer else [])
            loop.call_later(FAILURE_DELAY_S, connection.close)
            self._inside.rejected(connection, reason)

        loop = asyncio.get_running_loop()
        loop.call_later(FAILURE_DELAY_S, end)
        return slot


class _Session(InFront):
    """The requests of an authenticated peer until its session ends."""

    def __init__(self, inside: ConnectionHost, entry: ListenerAuthentication, identity: _Identity) -> None:
        super().__init__(inside)
        self._entry = entry
        self._identity = identity
        self._ends_at = asyncio.get_running_loop().time() + entry.max_reauth_ms / 1000

    def dispatch(self, connection: Connection, frame: memoryview) -> Outcome:
        """Raises `Rejected` after the end of the session, unless the peer starts to authenticate again."""
        now = asyncio.get_running_loop().time()
        begins_again = int.from_bytes(frame[:2], "big") == ApiKey.SASL_HANDSHAKE
        if begins_again and now - self._identity.started_at >= LEAST_BETWEEN_S:
            gate = SaslGate(self._inside, self._entry, self._identity)
            connection.served_by(gate)
            return gate.dispatch(connection, frame)
        self._require_time_left(now)
        return self._inside.dispatch(connection, frame)

    def finish(self, shortcut: Shortcut) -> Outcome:
        """Raises `Rejected` after the end of the session."""
        self._require_time_left(asyncio.get_running_loop().time())
        return self._inside.finish(shortcut)

    def _require_time_left(self, now: float) -> None:
        if now >= self._ends_at:
            raise Rejected(f"a request {now - self._ends_at:.3f} s after the session's end")


def _frame(api: Api, header: RequestHeader, response: Message) -> bytes:
    return bytes(encode_response(api, response, header.api_version, header.correlation_id))


AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
KNOWN_MECHANISMS = (PLAIN, *MECHANISMS)


class _OwnIdentity(NamedTuple):
    """This broker's own user for other brokers."""

    user: str
    password: Password


class Security:
    """The security of a node. Raises `StartupError` for an invalid file or key."""

    def __init__(self, config: BrokerConfig, rng: random.Random, image: Callable[[], MetadataImage]) -> None:
        """`image` returns the known users and topics; `rng` makes a secret (outside the simulation it is seeded from
        the system's random source)."""
        source = "configuration"
        spoken = {listener.protocol for listener in config.listeners} | {config.controller_protocol}
        encrypts = any(protocol.encrypts for protocol in spoken)
        self._authenticates = any(protocol.authenticates for protocol in spoken)
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
        offered = tuple(mechanism for mechanism in self._mechanisms if self._may_use(mechanism, endpoint.protocol))
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

    def _own_identity(self, config: BrokerConfig, source: str) -> _OwnIdentity | None:
        to_others = [config.inter_broker_listener.protocol, config.controller_protocol]
        protocols = [protocol for protocol in to_others if protocol.authenticates]
        key = "sasl.inter.broker.credentials.file"
        if not protocols:
            return None
        if self._mechanism not in self._mechanisms:
            raise StartupError(
                f"{source}: sasl.mechanism.inter.broker.protocol: {shown(self._mechanism)} is not among "
                f"sasl.enabled.mechanisms, {', '.join(self._mechanisms)}"
            )
        if not all(self._may_use(self._mechanism, protocol) for protocol in protocols):
            raise StartupError(
                f"{source}: sasl.mechanism.inter.broker.protocol: PLAIN without TLS exposes the password to "
                "eavesdroppers; use SCRAM-SHA-512, or SASL_SSL"
            )
        if config.sasl_inter_broker_credentials_file is None:
            raise StartupError(f"{source}: {key} is missing: brokers must authenticate to each other")
        passwords = read_passwords(config.sasl_inter_broker_credentials_file, key, source)
        if len(passwords) != 1:
            raise StartupError(f"{source}: {key}: expected exactly one line name=password, found {len(passwords)}")
        return _OwnIdentity(*next(iter(passwords.items())))


def _mechanisms(config: BrokerConfig, source: str) -> tuple[str, ...]:
    mechanisms = parse_names(config.sasl_enabled_mechanisms)
    for mechanism in mechanisms:
        if mechanism not in KNOWN_MECHANISMS:
            raise StartupError(
                f"{source}: sasl.enabled.mechanisms: {shown(mechanism)} is not one of {', '.join(KNOWN_MECHANISMS)}"
            )
    return mechanisms


def _authorizer(config: BrokerConfig, source: str) -> Authorizer | None:
    name = config.authorizer_class_name
    if not name:
        return None
    if name != AUTHORIZER:
        raise StartupError(f"{source}: authorizer.class.name: {shown(name)} is unknown; the only one is {AUTHORIZER}")
    super_users = parse_super_users(config.super_users, source)
    return Authorizer(super_users, allow_if_no_acl=config.allow_everyone_if_no_acl_found)

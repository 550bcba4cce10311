"""Requires a peer to authenticate before its requests reach the listener (KIP-43, KIP-152), and again (KIP-368).

Until then only ApiVersions, SaslHandshake and SaslAuthenticate are served. After the authentication the gate is removed
from the connection and costs nothing, unless sessions have a maximum lifetime. In that case the peer authenticates
again over the same connection before the end of the session; the first request after the end closes the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from broker.errors import ErrorCode
from broker.protocol.api import Api, ApiKey, RequestHeader, decode_request_header, encode_response, find_api
from broker.protocol.codec import DecodeError, decode
from broker.protocol.messages.credential_apis import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from broker.protocol.schema import Message
from broker.security.principals import of_user
from broker.security.sasl import LONGEST_TOKEN, Accounts, AuthenticationError, Exchange, begin
from broker.server.connection import Connection, ConnectionHost, Outcome, Rejected, Shortcut
from broker.server.host_decorator import InFront

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

    def __init__(self, inside: ConnectionHost, entry: ListenerAuthentication, known: _Identity | None = None) -> None:
        """`known`: the peer's previous identity when it authenticates again; None: this is the first time."""
        super().__init__(inside)
        self.request_max_bytes = min(inside.request_max_bytes, entry.max_receive_bytes)
        self._entry = entry
        self._known = known
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

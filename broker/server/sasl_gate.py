"""Stands in front of a listener's host until a peer has said who it is (KIP-43, KIP-152).

Until then ApiVersions, SaslHandshake and SaslAuthenticate are served and nothing else; from then on the gate is out of
the way, and costs nothing. Re-authentication (KIP-368) is not asked for: a session lasts as long as its connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from broker.errors import ErrorCode
from broker.protocol.api import Api, ApiKey, RequestHeader, decode_request_header, encode_response, find_api
from broker.protocol.codec import DecodeError, decode
from broker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from broker.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from broker.protocol.schema import Message
from broker.security.principals import of_user
from broker.security.sasl import LONGEST_TOKEN, Accounts, AuthenticationError, Exchange, begin
from broker.server.connection import Connection, ConnectionHost, Outcome, Rejected, Shortcut, Slot

FAILURE_DELAY_S = 0.1
"""How long the answer to a wrong password takes (`connection.failed.authentication.delay.ms`): guessing is slow."""


class SaslGate:
    """One connection's. `mechanisms` are those that are enabled here; `max_receive_bytes` bounds what a peer may send
    at once before it has said who it is."""

    def __init__(
        self, inside: ConnectionHost, mechanisms: Sequence[str], accounts: Accounts, max_receive_bytes: int
    ) -> None:
        self.budget = inside.budget
        self.request_max_bytes = min(inside.request_max_bytes, max_receive_bytes)
        self.max_queued = inside.max_queued
        self._inside = inside
        self._mechanisms = mechanisms
        self._accounts = accounts
        self._exchange: Exchange | None = None
        self._failed = False

    def opened(self, connection: Connection) -> ConnectionHost | None:
        return self._inside.opened(connection)

    def closed(self, connection: Connection) -> None:
        self._inside.closed(connection)

    def rejected(self, connection: Connection, reason: str) -> None:
        self._inside.rejected(connection, reason)

    @property
    def turn_is_over(self) -> bool:
        return self._inside.turn_is_over

    def finish(self, shortcut: Shortcut) -> Outcome:
        return self._inside.finish(shortcut)

    def dispatch(self, connection: Connection, frame: memoryview) -> Outcome:
        """Raises `Rejected` for whatever is not part of an authentication."""
        if self._failed:
            raise Rejected("a request after an authentication that failed")
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
            return _frame(api, header, self._shake_hands(cast(SaslHandshakeRequest, request).mechanism))
        return self._authenticate(connection, api, header, cast(SaslAuthenticateRequest, request).auth_bytes)

    def _shake_hands(self, mechanism: str) -> SaslHandshakeResponse:
        if self._exchange is not None:
            return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE, list(self._mechanisms))
        if mechanism not in self._mechanisms:
            return SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, list(self._mechanisms))
        self._exchange = begin(mechanism, self._accounts)
        return SaslHandshakeResponse(ErrorCode.NONE, list(self._mechanisms))

    def _authenticate(self, connection: Connection, api: Api, header: RequestHeader, token: bytes) -> Outcome:
        if self._exchange is None:
            refusal = SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, "SaslHandshake comes first")
            return _frame(api, header, refusal)
        try:
            if len(token) > LONGEST_TOKEN:
                raise AuthenticationError(f"a token of more than {LONGEST_TOKEN} bytes")
            answer, user = self._exchange.step(token)
        except AuthenticationError as error:
            return self._refuse(connection, api, header, str(error))
        if user is not None:
            connection.principal = of_user(user)
            connection.served_by(self._inside)
        return _frame(api, header, SaslAuthenticateResponse(ErrorCode.NONE, None, answer))

    def _refuse(self, connection: Connection, api: Api, header: RequestHeader, reason: str) -> Slot:
        """Say so after a while, and close."""
        self._failed = True
        slot = connection.reserve(blocking=True)
        response = SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, f"Authentication failed: {reason}")

        def end() -> None:
            slot.fill([_frame(api, header, response)])
            loop.call_later(FAILURE_DELAY_S, connection.close)
            self._inside.rejected(connection, f"authentication failed: {reason}")

        loop = asyncio.get_running_loop()
        loop.call_later(FAILURE_DELAY_S, end)
        return slot


def _frame(api: Api, header: RequestHeader, response: Message) -> bytes:
    return bytes(encode_response(api, response, header.api_version, header.correlation_id))

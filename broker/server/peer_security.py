"""Security of outgoing connections to other brokers: TLS and SASL."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from broker.errors import ErrorCode
from broker.protocol.messages.credential_apis import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
)
from broker.protocol.request import Request
from broker.security.passwords import Password
from broker.security.sasl import PLAIN
from broker.security.scram import MECHANISMS, ScramClient, ScramError


class LoginError(Exception):
    """Another broker has refused this broker's authentication. The message contains no credential."""


Steps = Generator[Request[Any], Any, int]
"""Requests, each in its newest version; the answer to each is sent into the generator. Returns the lifetime of the
authentication in ms; 0: as long as the connection. Raises `LoginError`."""


@dataclass(frozen=True)
class Approach:
    """`connecting`: keyword arguments of `create_connection`; `log_in`: starts the authentication, where it is
    needed."""

    connecting: Mapping[str, Any] = field(default_factory=dict)
    log_in: Callable[[], Steps | None] = lambda: None


PLAINTEXT = Approach()


def log_in(mechanism: str, user: str, password: Password, nonce: str) -> Steps:
    """Authenticate this broker; a `nonce` is used only once."""
    answer = yield SaslHandshakeRequest(mechanism)
    if answer.error_code != ErrorCode.NONE:
        raise LoginError(f"it does not accept {mechanism}, only {', '.join(answer.mechanisms) or 'no mechanism'}")
    if mechanism == PLAIN:
        answer = yield from _say(b"\0".join((b"", user.encode(), password.reveal())))
        return answer.session_lifetime_ms
    client = ScramClient(user, password.reveal(), nonce, MECHANISMS[mechanism])
    try:
        challenge = yield from _say(client.first)
        last_answer = yield from _say(client.answer(challenge.auth_bytes))
        client.check(last_answer.auth_bytes)
    except ScramError as error:
        raise LoginError(str(error)) from None
    return last_answer.session_lifetime_ms


def _say(token: bytes) -> Generator[Request[Any], SaslAuthenticateResponse, SaslAuthenticateResponse]:
    answer = yield SaslAuthenticateRequest(auth_bytes=token)
    if answer.error_code != ErrorCode.NONE:
        raise LoginError(answer.error_message or ErrorCode(answer.error_code).name)
    return answer

"""How this broker comes to another: encrypted or not, and saying who it is or not."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from broker.errors import ErrorCode
from broker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from broker.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from broker.protocol.schema import Message
from broker.security.passwords import Password
from broker.security.sasl import PLAIN
from broker.security.scram import MECHANISMS, ScramClient, ScramError

HANDSHAKE_VERSION, AUTHENTICATE_VERSION = 1, 2


class LoginError(Exception):
    """Another broker does not take this one for who it says it is. The message holds no credential."""


Steps = Generator[tuple[Message, int], Message | None, int]
"""Requests with their versions; each is sent the answer to the one before. Returns for how many ms it is believed who
this broker is; 0: as long as the connection lasts. Raises `LoginError`."""


@dataclass(frozen=True)
class Approach:
    """`connecting`: further arguments of `create_connection`; `log_in`: how to begin on a new connection, if at all."""

    connecting: Mapping[str, Any] = field(default_factory=dict)
    log_in: Callable[[], Steps | None] = lambda: None


OPENLY = Approach()


def log_in(mechanism: str, user: str, password: Password, nonce: str) -> Steps:
    """Say who this broker is; `nonce` is never used twice."""
    answer = yield SaslHandshakeRequest(mechanism), HANDSHAKE_VERSION
    assert isinstance(answer, SaslHandshakeResponse)
    if answer.error_code != ErrorCode.NONE:
        raise LoginError(f"it does not take {mechanism}, but {', '.join(answer.mechanisms) or 'nobody'}")
    if mechanism == PLAIN:
        answer = yield from _say(b"\0".join((b"", user.encode(), password.reveal())))
        return answer.session_lifetime_ms
    client = ScramClient(user, password.reveal(), nonce, MECHANISMS[mechanism])
    try:
        challenge = yield from _say(client.first)
        last = yield from _say(client.answer(challenge.auth_bytes))
        client.check(last.auth_bytes)
    except ScramError as error:
        raise LoginError(str(error)) from None
    return last.session_lifetime_ms


def _say(token: bytes) -> Generator[tuple[Message, int], Message | None, SaslAuthenticateResponse]:
    answer = yield SaslAuthenticateRequest(auth_bytes=token), AUTHENTICATE_VERSION
    assert isinstance(answer, SaslAuthenticateResponse)
    if answer.error_code != ErrorCode.NONE:
        raise LoginError(answer.error_message or ErrorCode(answer.error_code).name)
    return answer

"""One connection and its authentication: the order of the exchange, bare tokens, sessions with an end."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker.errors import ErrorCode
from broker.protocol.api import api_of, decode_response_header, encode_request
from broker.protocol.codec import decode_exactly
from broker.protocol.messages.credential_apis import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from broker.protocol.schema import Message
from broker.security.passwords import Password
from broker.security.sasl import PLAIN, Accounts
from broker.security.scram import ScramClient, ScramMechanism
from broker.server import security
from broker.server.connection import ConnectionHost
from broker.server.frames import FrameBuffer
from broker.server.security import ListenerAuthentication, SaslGate
from tests.broker.server.test_connection import Echo, answer, framed, serve
from tests.stories import played_by

PASSWORD = b"pencil"
SCRAM = ScramMechanism.SHA_512


class Client:
    """The other end of a connection to a listener that asks who one is, and echoes then what it is sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, request: Message, version: int) -> Any:
        self.writer.write(encode_request(request, version, 7, "test"))
        frame = await answer(self.reader)
        api = api_of(request)
        correlation_id, position = decode_response_header(api, version, frame)
        assert correlation_id == 7
        return decode_exactly(api.response, version, frame, position)

    async def bare(self, token: bytes) -> bytes:
        self.writer.write(framed(token))
        return await answer(self.reader)

    async def echo(self, payload: bytes) -> bytes:
        self.writer.write(framed(b"now " + payload))
        return await answer(self.reader)

    async def ended(self) -> None:
        with contextlib.suppress(ConnectionResetError):
            assert await self.reader.read(1) == b""

    async def log_in(
        self, user: str = "user", mechanism: ScramMechanism = SCRAM, password: bytes = PASSWORD
    ) -> SaslAuthenticateResponse:
        """The last answer."""
        shaken: SaslHandshakeResponse = await self.ask(SaslHandshakeRequest(mechanism.title), 1)
        assert shaken.error_code == ErrorCode.NONE
        client = ScramClient(user, password, "0123456789", mechanism)
        challenge: SaslAuthenticateResponse = await self.ask(SaslAuthenticateRequest(client.first), 2)
        last: SaslAuthenticateResponse = await self.ask(SaslAuthenticateRequest(client.answer(challenge.auth_bytes)), 2)
        if last.error_code == ErrorCode.NONE:
            client.check(last.auth_bytes)
        return last


def story(tell: Callable[[Client, Echo], Awaitable[None]], max_reauth_ms: int = 0) -> None:
    accounts = Accounts({name: Password("pencil") for name in ("user", "other")}, dict, b"secret")
    entry = ListenerAuthentication((PLAIN, *(each.title for each in ScramMechanism)), accounts, 10_000, max_reauth_ms)

    def entrance(inside: ConnectionHost) -> ConnectionHost:
        return SaslGate(inside, entry)

    async def run(echo: Echo, port: int) -> None:
        client = Client(*await asyncio.open_connection("127.0.0.1", port))
        await tell(client, echo)
        client.writer.close()

    serve(run, entrance=entrance)


FIRST = SaslAuthenticateRequest(b"n,,n=user,r=0123456789")
SHAKE = SaslHandshakeRequest(SCRAM.title)


@pytest.mark.conforms("SEC-3")
@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ([FIRST], ErrorCode.ILLEGAL_SASL_STATE),
        ([SaslHandshakeRequest("GSSAPI")], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([SHAKE, SHAKE], ErrorCode.ILLEGAL_SASL_STATE),
        ([SHAKE, SaslAuthenticateRequest(bytes(5_000))], ErrorCode.SASL_AUTHENTICATION_FAILED),
        ([SHAKE, FIRST, FIRST], ErrorCode.SASL_AUTHENTICATION_FAILED),
    ],
)
@played_by(story)
async def test_a_client_that_breaks_the_sasl_order_gets_an_error_and_is_disconnected(
    client: Client, echo: Echo, /, asked: list[Message], code: ErrorCode
) -> None:
    """A peer may send only a bounded number of requests before it authenticates: they would delay others."""
    codes = [(await client.ask(each, 1)).error_code for each in asked]
    assert codes == [ErrorCode.NONE] * (len(asked) - 1) + [code]
    await client.ended()
    assert not echo.begun
    assert len(echo.events) == 1


@pytest.mark.conforms("SEC-3")
def test_before_version_1_of_the_handshake_tokens_have_no_header() -> None:
    async def scram(client: Client, _echo: Echo) -> None:
        assert (await client.ask(SaslHandshakeRequest(SCRAM.title), 0)).error_code == ErrorCode.NONE
        its = ScramClient("user", PASSWORD, "0123456789", SCRAM)
        its.check(await client.bare(its.answer(await client.bare(its.first))))
        assert await client.echo(b"mine") == b"mine"

    async def plain(client: Client, _echo: Echo) -> None:
        """The shortest token is shorter than the shortest request."""
        assert (await client.ask(SaslHandshakeRequest(PLAIN), 0)).error_code == ErrorCode.NONE
        assert await client.bare(b"\0user\0pencil") == b""
        assert await client.echo(b"mine") == b"mine"

    async def wrong(client: Client, echo: Echo) -> None:
        assert (await client.ask(SaslHandshakeRequest(PLAIN), 0)).error_code == ErrorCode.NONE
        client.writer.write(framed(b"\0u\0p"))
        await client.ended()
        (event,) = echo.events
        assert "authentication failed" in str(event["reason"])

    for tell in (scram, plain, wrong):
        story(tell)


@pytest.mark.conforms("SEC-7")
def test_a_session_without_an_end_reports_a_lifetime_of_zero() -> None:
    async def tell(client: Client, _echo: Echo) -> None:
        assert (await client.log_in()).session_lifetime_ms == 0
        assert await client.echo(b"mine") == b"mine"

    story(tell)


@pytest.mark.conforms("SEC-7")
@played_by(story, max_reauth_ms=100)
async def test_a_peer_is_disconnected_after_the_end_of_its_session(client: Client, echo: Echo, /) -> None:
    assert (await client.log_in()).session_lifetime_ms == 100
    await asyncio.sleep(0.11)
    client.writer.write(framed(b"now mine"))
    await client.ended()
    assert not echo.begun
    (event,) = echo.events
    assert "after the session's end" in str(event["reason"])


class Taking:
    """A shortcut that takes every request."""

    def gather(self, received: FrameBuffer) -> bool:
        received.skip(received.pending)
        return True

    def finish(self) -> None:
        raise NotImplementedError("a session that has ended is asked nothing")


@pytest.mark.conforms("SEC-7")
@played_by(story, max_reauth_ms=100)
async def test_a_shortcut_respects_the_end_of_a_session(client: Client, echo: Echo, /) -> None:
    await client.log_in()
    (connection,) = echo.listener._connections
    connection.shortcut = Taking()
    await asyncio.sleep(0.11)
    client.writer.write(framed(b"now mine"))
    await client.ended()
    (event,) = echo.events
    assert "after the session's end" in str(event["reason"])


@pytest.mark.conforms("SEC-7")
@pytest.mark.parametrize(
    "how", ["another user", "another mechanism", "a wrong password", "a request between", "a shortcut between"]
)
def test_a_connection_cannot_change_its_user(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "LEAST_BETWEEN_S", 0.0)

    async def tell(client: Client, echo: Echo) -> None:
        await client.log_in()
        if how == "another user":
            assert (await client.log_in("other")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        elif how == "another mechanism":
            shaken = await client.ask(SaslHandshakeRequest(ScramMechanism.SHA_256.title), 1)
            assert shaken.error_code == ErrorCode.ILLEGAL_SASL_STATE
        elif how == "a wrong password":
            await client.ask(SHAKE, 1)
            await client.ask(FIRST, 2)
            refused = await client.ask(SaslAuthenticateRequest(b"c=biws,r=0123456789,p=AAAA"), 2)
            assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        else:
            await client.ask(SHAKE, 1)
            if how == "a shortcut between":
                (connection,) = echo.listener._connections
                connection.shortcut = Taking()
            client.writer.write(framed(b"now between"))
        await client.ended()
        assert not echo.begun
        assert len(echo.events) == 1, "the listener says why"

    story(tell, max_reauth_ms=60_000)


@pytest.mark.conforms("SEC-7")
@played_by(story, max_reauth_ms=60000)
async def test_a_too_early_reauthentication_is_refused(client: Client, echo: Echo, /) -> None:
    """Sooner than a second after the last time it is a request like any other, which a listener refuses."""
    await client.log_in()
    client.writer.write(encode_request(SHAKE, 1, 7, "test"))
    await client.ended()
    assert len(echo.begun) == 1, "it is left to the listener"

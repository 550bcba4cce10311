"""TLS handshakes are bounded before they start, and bytes that arrive with their end are not lost."""

import asyncio
import contextlib
import errno
import socket
import ssl
from pathlib import Path

import pytest

from broker.server.listener import MOST_HANDSHAKES
from tests.broker.clients.secured import Authority
from tests.broker.server.test_connection import Echo, answer, framed, serve


@pytest.fixture
def contexts(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of the listener, and of clients."""
    authority = Authority(tmp_path)
    listener = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    listener.load_cert_chain(authority.issue("broker"))
    return listener, ssl.create_default_context(cafile=str(authority.certificates))


async def silent(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


async def ended(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""


@pytest.mark.conforms("SEC-2")
def test_a_request_that_arrives_with_the_end_of_the_handshake_is_answered(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    async def story(_echo: Echo, port: int) -> None:
        reader, writer = await silent(port)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = contexts[1].wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await reader.read(1 << 16))
        tls.write(framed(b"now " + b"e" * 40_000) + framed(b"now next"))
        writer.write(outgoing.read())  # the last of the handshake, and two requests
        received = b""
        while len(received) < 40_012:
            try:
                received += tls.read(1 << 16)
            except ssl.SSLWantReadError:
                incoming.write(await reader.read(1 << 16))
        assert received == framed(b"e" * 40_000) + framed(b"next")
        writer.transport.abort()

    serve(story, tls=contexts[0])


def test_a_connection_without_a_handshake_is_closed_for_others(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    async def story(echo: Echo, port: int) -> None:
        oldest = [await silent(port) for _ in range(5)]
        others = [await silent(port) for _ in range(MOST_HANDSHAKES)]
        for reader, _ in oldest:
            await ended(reader)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=contexts[1])
        writer.write(framed(b"now here"))
        assert await answer(reader) == b"here"
        assert echo.listener.connections == 1
        for _, each in (*oldest, *others, (reader, writer)):
            each.transport.abort()

    serve(story, tls=contexts[0])


def test_reserved_descriptors_are_not_used_for_handshakes(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    async def story(echo: Echo, port: int) -> None:
        reader, writer = await silent(port)
        await ended(reader)
        (event,) = echo.events
        assert "descriptors are in use" in str(event["reason"])
        writer.close()

    serve(story, tls=contexts[0], descriptors=4)


def test_invalid_handshake_bytes_are_traced_and_end_the_connection(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    async def story(echo: Echo, port: int) -> None:
        reader, writer = await silent(port)
        writer.write(framed(b"now here"))
        with contextlib.suppress(ConnectionResetError):
            await reader.read()
        await echo.listener.stop()
        (event,) = echo.events
        assert "the TLS handshake failed" in str(event["reason"])
        assert echo.listener.connections == 0
        writer.close()

    serve(story, tls=contexts[0])


def test_a_peer_that_cannot_be_accepted_does_not_silence_the_listener(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    """accept(2) hands on errors of the network that are the peer's alone."""
    accept, left = asyncio.SelectorEventLoop.sock_accept, [OSError(errno.EPROTO, "Protocol error")]

    async def failing_once(
        loop: asyncio.SelectorEventLoop, listening: socket.socket
    ) -> tuple[socket.socket, tuple[str, int]]:
        if left:
            raise left.pop()
        return await accept(loop, listening)

    async def story(_echo: Echo, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=contexts[1])
        writer.write(framed(b"now here"))
        assert await answer(reader) == b"here"
        writer.transport.abort()

    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_accept", failing_once)
    serve(story, tls=contexts[0])
    assert not left

"""A separate HTTP listener that answers only `GET /metrics`. Off unless `metrics.port` is set."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from broker.errors import StartupError

MOST_BYTES = 8_192  # of a request; a scraper's has a few hundred
PATIENCE_S = 10.0  # time limit for a whole request
MOST_AT_ONCE = 16  # connections: a further one closes the oldest


class _Scrape(asyncio.Protocol):
    """One connection: one request, one answer, then it is closed."""

    def __init__(self, page: Callable[[], str], open_ones: dict[_Scrape, None]) -> None:
        """`open_ones`: the open connections, in the order in which they connected."""
        self._page = page
        self._open_ones = open_ones
        self._request = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._timer = asyncio.get_running_loop().call_later(PATIENCE_S, self._transport.abort)
        if len(self._open_ones) >= MOST_AT_ONCE:
            oldest = next(iter(self._open_ones))
            oldest.abort()
        self._open_ones[self] = None

    def abort(self) -> None:
        """Disconnect at once."""
        self._open_ones.pop(self, None)
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._transport = None
        self._open_ones.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._request += data
        if b"\r\n\r\n" in self._request or b"\n\n" in self._request:
            self._transport.write(self._answer(self._request.split(b"\n", 1)[0].split()))
            self._transport.close()
        elif len(self._request) > MOST_BYTES:
            self._transport.abort()

    def _answer(self, line: list[bytes]) -> bytes:
        method, path = (*line, b"", b"")[:2]
        if method != b"GET":
            return _response("405 Method Not Allowed", "only GET is supported\n")
        if path.split(b"?")[0] != b"/metrics":
            return _response("404 Not Found", "the only page is /metrics\n")
        return _response("200 OK", self._page())


def _response(status: str, text: str) -> bytes:
    body = text.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


class MetricsPage:
    """Serves the text that `page` returns at the time of the request."""

    def __init__(self, page: Callable[[], str]) -> None:
        self._page = page
        self._scrapes: dict[_Scrape, None] = {}
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises `StartupError` when the address cannot be used."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: _Scrape(self._page, self._scrapes), host, port)
        except OSError as error:
            raise StartupError(
                f"cannot listen at {host}:{port}: {error.strerror or error}; free the port or change `metrics.port`"
            ) from error

    def stop(self) -> None:
        """Stop listening and drop the connections."""
        if self._server is not None:
            self._server.close()
            self._server = None

"""Accepts peers at a TLS listener and bounds the number of concurrent handshakes.

Each handshake needs a descriptor. Handshakes are counted before they start. When the bound is reached, the oldest
handshake is ended for the next peer, so that peers which only connect cannot keep others out.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from broker.security.tls import HANDSHAKE_TIMEOUT_S, SHUTDOWN_TIMEOUT_S
from broker.server.connection import Connection, shown_address

MOST_HANDSHAKES: Final = 128
BACKLOG: Final = 512
PAUSE_S: Final = 0.1  # after a peer could not be accepted, mostly for lack of descriptors


class Arrivals:
    """The listening sockets of one TLS listener and the handshakes under way."""

    def __init__(
        self,
        tls: ssl.SSLContext,
        connection: Callable[[], Connection],
        refusal: Callable[[int], str | None],
        rejected: Callable[[str, str], None],
    ) -> None:
        """`connection` makes the protocol of an encrypted transport. `refusal` returns why a descriptor must not be
        used. `rejected` gets a disconnected peer and the reason."""
        self.sockets: list[socket.socket] = []
        self._tls = tls
        self._connection = connection
        self._refusal = refusal
        self._rejected = rejected
        self._accepting: list[asyncio.Task[None]] = []
        self._handshakes: dict[asyncio.Task[None], socket.socket] = {}  # in the order in which they connected

    async def listen(self, host: str, port: int) -> None:
        """Accept peers from now on. Raises `OSError` when an address cannot be used."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                self.sockets.append(socket.create_server(address[:2], family=family, backlog=BACKLOG))
        except OSError:
            self.close()
            raise
        for listening in self.sockets:
            listening.setblocking(False)
            self._accepting.append(loop.create_task(self._accept(listening)))

    def close(self) -> None:
        """Stop accepting, and end the handshakes under way."""
        for task in self._accepting:
            task.cancel()
        for listening in self.sockets:
            listening.close()
        for sock in self._handshakes.values():
            _disconnect(sock)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, address = await loop.sock_accept(listening)
            except OSError as error:  # of any kind: the listener must continue with the next peer
                if error.errno != errno.ECONNABORTED:
                    await asyncio.sleep(PAUSE_S)
                continue
            self._begin(sock, shown_address(address))

    def _begin(self, sock: socket.socket, peer: str) -> None:
        if (reason := self._refusal(sock.fileno())) is not None:
            self._rejected(peer, reason)
            sock.close()
            return
        if len(self._handshakes) >= MOST_HANDSHAKES:
            _disconnect(self._handshakes.pop(next(iter(self._handshakes))))
        task = asyncio.get_running_loop().create_task(self._handshake(sock, peer))
        self._handshakes[task] = sock
        task.add_done_callback(lambda done: self._handshakes.pop(done, None))

    async def _handshake(self, sock: socket.socket, peer: str) -> None:
        """Perform the handshake, then serve the encrypted transport as a connection."""
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._connection,
                sock,
                ssl=self._tls,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
                ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
            )
        except OSError as error:
            self._rejected(peer, f"the TLS handshake failed: {error or type(error).__name__}")


def _disconnect(sock: socket.socket) -> None:
    """Shut the socket down: its reader then sees the end of the stream and closes it."""
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)

"""Accepts peers at a listener with TLS, and bounds how many are shaking hands: each of them costs a descriptor.

So they are counted before they may begin. There is room for so many at once; when it is taken the one that has been at
it for longest makes room for the next, so that nobody who only connects keeps others out.
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
PAUSE_S: Final = 0.1  # where a peer cannot be accepted, mostly for lack of descriptors


class Arrivals:
    """The listening sockets of one listener, and who is shaking hands there."""

    def __init__(
        self,
        tls: ssl.SSLContext,
        connection: Callable[[], Connection],
        refusal: Callable[[int], str | None],
        rejected: Callable[[str, str], None],
    ) -> None:
        """`connection` makes what an encrypted transport is for; `refusal` says of a descriptor why it may not be used;
        `rejected` is told of a peer and why it was disconnected."""
        self.sockets: list[socket.socket] = []
        self._tls = tls
        self._connection = connection
        self._refusal = refusal
        self._rejected = rejected
        self._accepting: list[asyncio.Task[None]] = []
        self._shaking_hands: dict[asyncio.Task[None], socket.socket] = {}  # in the order in which they came

    async def listen(self, host: str, port: int) -> None:
        """Accept peers from here on. Raises `OSError` when an address cannot be used."""
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
        """Accept no more, and disconnect who is not done."""
        for task in self._accepting:
            task.cancel()
        for listening in self.sockets:
            listening.close()
        for sock in self._shaking_hands.values():
            _disconnect(sock)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, address = await loop.sock_accept(listening)
            except OSError as error:  # whatever it is, the next peer may be well: a listener must not fall silent
                if error.errno != errno.ECONNABORTED:
                    await asyncio.sleep(PAUSE_S)
                continue
            self._begin(sock, shown_address(address))

    def _begin(self, sock: socket.socket, peer: str) -> None:
        if (reason := self._refusal(sock.fileno())) is not None:
            self._rejected(peer, reason)
            sock.close()
            return
        if len(self._shaking_hands) >= MOST_HANDSHAKES:
            _disconnect(self._shaking_hands.pop(next(iter(self._shaking_hands))))
        task = asyncio.get_running_loop().create_task(self._shake_hands(sock, peer))
        self._shaking_hands[task] = sock
        task.add_done_callback(lambda done: self._shaking_hands.pop(done, None))

    async def _shake_hands(self, sock: socket.socket, peer: str) -> None:
        """Have all that is sent encrypted, and go on as a connection."""
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
    """Whoever reads from it finds its end, and closes it."""
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)

"""The connection between a command and the daemon of nodes: a Unix socket for `messages`."""

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from orchestrator.nodes.messages import Answer, Order

_NAME = "orders"

Received = TypeVar("Received", bound=Order | Answer)


class UnknownMessageError(Exception):
    """An invalid message arrived: the other end is of another version."""


class Channel(Generic[Received]):
    """One end of a connection. One thread may send while another one receives."""

    def __init__(self, connection: socket.socket, decoder: msgspec.json.Decoder[Received]) -> None:
        self._socket = connection
        self._lines = connection.makefile("rb")
        self._decoder: msgspec.json.Decoder[Received] = decoder

    def send(self, message: Order | Answer) -> None:
        """Raises `OSError` when the peer has closed the connection."""
        self._socket.sendall(msgspec.json.encode(message) + b"\n")

    def tell(self, message: Order | Answer) -> None:
        """Send; a closed connection is ignored."""
        with contextlib.suppress(OSError):
            self.send(message)

    def receive(self) -> Received | None:
        """The next message; None when the peer has closed its sending side.

        Raises `TimeoutError` and `UnknownMessageError`."""
        try:
            line = self._lines.readline()
        except ConnectionError:
            return None
        if not line.endswith(b"\n"):
            return None
        try:
            return self._decoder.decode(line)
        except msgspec.MsgspecError as error:
            raise UnknownMessageError(str(error)) from error

    def peer(self) -> int:
        """The peer's process id in this process's namespace, also for a peer in another process namespace."""
        pid: int = struct.unpack("3i", self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        return pid

    def hang_up(self) -> None:
        """Close the sending side; the peer can still send."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


def of_holder(connection: socket.socket) -> Channel[Order]:
    """The daemon's end."""
    return Channel(connection, msgspec.json.Decoder(Order))


def of_command(connection: socket.socket) -> Channel[Answer]:
    """The command's end."""
    return Channel(connection, msgspec.json.Decoder(Answer))


def listen(directory: Path) -> socket.socket:
    """Listen for orders at a socket in this directory. Raises `OSError`."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _address(directory) as address:
            listener.bind(address)
        listener.listen()
    except BaseException:
        listener.close()
        raise
    return listener


def is_open(directory: Path) -> bool:
    """Whether a daemon has started to listen there."""
    return (directory / _NAME).exists()


def connect(directory: Path, patience_s: float) -> Channel[Answer]:
    """Raises `OSError` when no daemon listens there."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(patience_s)
        with _address(directory) as address:
            connection.connect(address)
    except BaseException:
        connection.close()
        raise
    return of_command(connection)


@contextlib.contextmanager
def _address(directory: Path) -> Iterator[str]:
    """The socket's path by way of a descriptor: a socket address holds only 107 bytes, and project paths may be
    longer."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{_NAME}"
    finally:
        os.close(descriptor)

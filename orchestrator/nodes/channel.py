"""How a command and the holder of nodes talk: JSON objects, one per line, over a Unix socket.

A command sends one order, `{"order": ...}`. The holder answers with any number of `{"progress": text}` and then one of
`{"result": {...}}`, `{"usage": text}` (the order cannot be followed) and `{"error": text}` (following it failed).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orchestrator.errors import RunError, UsageError

_NAME = "orders"


class Channel:
    """One end of a conversation. One thread may send while another one receives."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._lines = connection.makefile("rb")

    def send(self, message: dict[str, Any]) -> None:
        """Raises `OSError` when the other end has gone."""
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def tell(self, message: dict[str, Any]) -> None:
        """Send to somebody who may have gone: then nobody is told."""
        with contextlib.suppress(OSError):
            self.send(message)

    def receive(self) -> dict[str, Any] | None:
        """The next message; None when the other end has said its last. Raises `TimeoutError`."""
        try:
            line = self._lines.readline()
        except ConnectionError:
            return None
        if not line.endswith(b"\n"):
            return None
        message: dict[str, Any] = json.loads(line)
        return message

    def result(self, on_progress: Any) -> dict[str, Any] | None:
        """Hand progress on until the answer comes; None when the other end goes without one.

        Raises `UsageError` and `RunError` where that is the answer, and `TimeoutError`."""
        while (message := self.receive()) is not None:
            if "progress" in message:
                on_progress(message["progress"])
            elif "usage" in message:
                raise UsageError(message["usage"])
            elif "error" in message:
                raise RunError(message["error"])
            else:
                answer: dict[str, Any] = message["result"]
                return answer
        return None

    def patience(self, seconds: float | None) -> None:
        """How long a message may take, from now on."""
        self._socket.settimeout(seconds)

    def peer(self) -> int:
        """The process id of the other end, as this process counts: also of one in another process namespace."""
        pid: int = struct.unpack("3i", self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        return pid

    def hang_up(self) -> None:
        """Say that nothing more will be said; the other end may still talk."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


def listen(directory: Path) -> socket.socket:
    """Take orders at a socket in this directory. Raises `OSError`."""
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
    """Whether anybody has begun to listen there."""
    return (directory / _NAME).exists()


def connect(directory: Path, patience_s: float) -> Channel:
    """Raises `OSError` when nobody listens there."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(patience_s)
        with _address(directory) as address:
            connection.connect(address)
    except BaseException:
        connection.close()
        raise
    return Channel(connection)


@contextlib.contextmanager
def _address(directory: Path) -> Iterator[str]:
    """The socket's path, by way of a descriptor: a socket's address holds 107 bytes, and projects may lie deeper."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{_NAME}"
    finally:
        os.close(descriptor)

"""Ports of this machine's loopback for servers that are about to start.

Between the moment when a port is found free and the moment when its server listens, another run may find the same port
free; then one of the two servers ends. `LocalPorts` therefore reserves a port by a name in the abstract namespace of
Unix sockets. The kernel removes the name when the process ends for any reason; it leaves no file.
"""

import random
import socket
from typing import Final, Self

ADDRESS: Final = "127.0.0.1"
PORTS: Final = range(20_000, 30_000)
"""Below the ports that kernels give to outgoing connections, so that no connection takes a port before its server."""


class NoPortError(Exception):
    """All ports are taken; the message names the range."""


class LocalPorts:
    """Ports that are reserved until `release`, or until the process ends."""

    def __init__(self, name: str) -> None:
        """`name`: any text; equal texts give the same first port."""
        self._at = random.Random(name).randrange(len(PORTS))
        self._held: list[socket.socket] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def take(self) -> int:
        """A port at which no process listens and that is not reserved. Raises `NoPortError`."""
        for _ in PORTS:
            port = PORTS[self._at]
            self._at = (self._at + 1) % len(PORTS)
            if (holder := _hold(port)) is None:
                continue
            if _is_free(port):
                self._held.append(holder)
                return port
            holder.close()
        raise NoPortError(f"no free port between {PORTS.start} and {PORTS.stop} on {ADDRESS}")

    def release(self) -> None:
        """Release all ports; safe to call twice."""
        while self._held:
            self._held.pop().close()


def _hold(port: int) -> socket.socket | None:
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        holder.bind(f"\0brownout/port/{port}")
    except OSError:
        holder.close()
        return None
    return holder


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ADDRESS, port))
        except OSError:
            return False
    return True

"""Accepts connections, bounds their number and the memory of their receive buffers together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from broker.errors import StartupError
from broker.server.connection import Connection, Outcome, Shortcut
from broker.server.frames import MemoryBudget
from broker.trace import Tracer

BUFFERS_MAX_BYTES = 512 << 20  # of all connections together; more than one largest request, less than a small machine
REJECTIONS_PER_SECOND = 20  # hostile peers must not fill the trace


class Requests(Protocol):
    """Who answers the requests; see `ConnectionHost`."""

    def dispatch(self, connection: Connection, frame: memoryview) -> Outcome: ...

    def finish(self, shortcut: Shortcut) -> Outcome: ...


class SharedBudget:
    """A number of bytes that all receive buffers share; asks for memory back before it refuses."""

    def __init__(self, limit: int, release: Callable[[], None]) -> None:
        self._left = limit
        self._release = release

    @property
    def left(self) -> int:
        return self._left

    def reserve(self, size: int) -> bool:
        if size > self._left:
            self._release()
        if size > self._left:
            return False
        self._left -= size
        return True


class Listener:
    """The listening socket of a broker and the connections that came through it."""

    def __init__(
        self, requests: Requests, tracer: Tracer, *, request_max_bytes: int, max_connections: int, max_queued: int
    ) -> None:
        self.dispatch = requests.dispatch
        self.finish = requests.finish
        self.request_max_bytes = request_max_bytes
        self.max_queued = max_queued
        limit = max(BUFFERS_MAX_BYTES, 2 * request_max_bytes)
        self.budget: MemoryBudget = SharedBudget(limit, self._release_idle_memory)
        self._max_connections = max_connections
        self._tracer = tracer
        self._connections: dict[Connection, None] = {}  # in the order in which they came
        self._server: asyncio.Server | None = None
        self._rejections_left = REJECTIONS_PER_SECOND
        self._rejections_since = 0.0

    @property
    def connections(self) -> int:
        """How many peers are connected."""
        return len(self._connections)

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises `StartupError` when the address cannot be used."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: Connection(self), host, port, backlog=512)
        except OSError as error:
            raise StartupError(
                f"cannot listen at {host}:{port}: {error.strerror or error}; free the port or change `listeners`"
            ) from error

    async def stop(self) -> None:
        """Accept no more, and close every connection."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self._connections):
            connection.close()

    def abort(self) -> None:
        """Accept no more, and drop every connection with all that it still had to send."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self._connections):
            connection.abort()

    # --- for connections

    def opened(self, connection: Connection) -> bool:
        if len(self._connections) >= self._max_connections:
            self.rejected(connection, f"more than max.connections={self._max_connections} connections")
            return False
        self._connections[connection] = None
        return True

    def closed(self, connection: Connection) -> None:
        self._connections.pop(connection, None)

    def rejected(self, connection: Connection, reason: str) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._rejections_since >= 1.0:
            self._rejections_since = now
            self._rejections_left = REJECTIONS_PER_SECOND
        if self._rejections_left > 0:
            self._rejections_left -= 1
            self._tracer.emit("connection_rejected", peer=connection.peer, reason=reason)

    def _release_idle_memory(self) -> None:
        for connection in self._connections:
            connection.release_memory()

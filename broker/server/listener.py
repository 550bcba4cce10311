"""Accepts connections, closes idle ones, and bounds the memory of all receive buffers.

`connection_limits` decides how many connections there may be, in total and per address.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

from broker.errors import StartupError, shortened
from broker.security.principals import of_certificate
from broker.server.connection import Connection, ConnectionHost, Outcome, Shortcut
from broker.server.connection_limits import KEPT_FOR_BROKERS, Admission, Doorway
from broker.server.frames import SMALL, MemoryBudget
from broker.server.tls_acceptor import BACKLOG, Arrivals
from broker.trace import Tracer

BUFFERS_MAX_BYTES = 512 << 20  # of all connections: more than one largest request, less than a small machine has
KEPT_FOR_SMALL = 64 << 20  # a new buffer, and one grown once, for each of 2000 connections
REJECTIONS_PER_SECOND = 20  # hostile peers must not fill the trace
IDLE_CHECKS = 4  # checks per idle time: a connection is closed between this time and a quarter more
KEPT_FOR_FILES = 64  # descriptors: without one a log cannot open its next segment, and accepts no more records
UNBOUNDED = (1 << 31) - 1


Entrance = Callable[[ConnectionHost], ConnectionHost]
"""Wraps a host so that a peer must authenticate before its requests reach that host."""


class Requests(Protocol):
    """Answers the requests; see `ConnectionHost`."""

    @property
    def turn_is_over(self) -> bool: ...

    def dispatch(self, connection: Connection, frame: memoryview) -> Outcome: ...

    def finish(self, shortcut: Shortcut) -> Outcome: ...


class SharedBudget:
    """A number of bytes shared by all receive buffers; asks holders to release memory before it refuses.

    `KEPT_FOR_SMALL` more bytes are available only to small buffers. Clients that fill the others, with requests that
    they never complete, therefore cannot prevent other clients from sending small requests.
    """

    def __init__(self, limit: int) -> None:
        self._left = limit + KEPT_FOR_SMALL
        self._holders: list[Callable[[], None]] = []

    @classmethod
    def for_requests_of(cls, request_max_bytes: int, least: int = BUFFERS_MAX_BYTES) -> SharedBudget:
        """Enough for two of the largest requests, and for `least` bytes."""
        return cls(max(least, 2 * request_max_bytes))

    def asks_back(self, release: Callable[[], None]) -> None:
        """Call `release` when the budget runs low."""
        self._holders.append(release)

    @property
    def left(self) -> int:
        return self._left

    def reserve(self, size: int) -> bool:
        kept = 0 if size <= SMALL else KEPT_FOR_SMALL
        if size > self._left - kept:
            for release in self._holders:
                release()
        if size > self._left - kept:
            return False
        self._left -= size
        return True


class Listener:
    """One listening socket of a broker and its connections."""

    def __init__(
        self,
        requests: Requests,
        tracer: Tracer,
        *,
        request_max_bytes: int,
        max_connections: int,
        max_queued: int,
        max_connections_per_ip: int = UNBOUNDED,
        max_connections_per_ip_overrides: Mapping[str, int] = MappingProxyType({}),
        max_idle: float | None = None,
        descriptors: int | None = None,
        budget: SharedBudget | None = None,
        tls: ssl.SSLContext | None = None,
        entrance: Entrance | None = None,
    ) -> None:
        """`budget`: shared by the listeners of a node; None: this listener has its own.

        `tls`: encrypts all connections; None: plain text. `entrance`: requires authentication; None: every peer is
        served. `max_idle`: seconds for which a connection may be silent with nothing under way; None: unlimited.

        `descriptors`: how many this process may have open. Some are reserved for files, and more for brokers.
        """
        self._requests = requests
        self.dispatch = requests.dispatch
        self.finish = requests.finish
        self.request_max_bytes = request_max_bytes
        self.max_queued = max_queued
        shared = budget or SharedBudget.for_requests_of(request_max_bytes)
        shared.asks_back(self._release_idle_memory)
        self.budget: MemoryBudget = shared
        self._admission = Admission(max_connections, max_connections_per_ip, max_connections_per_ip_overrides)
        self._tls = tls
        self._entrance = entrance
        self._max_idle = max_idle
        self._descriptors = UNBOUNDED if descriptors is None else descriptors
        self._kept_for_files = min(KEPT_FOR_FILES, self._descriptors // 4)
        self._kept = self._kept_for_files + min(KEPT_FOR_BROKERS, self._descriptors // 4)
        self._idle_check: asyncio.TimerHandle | None = None
        self._tracer = tracer
        self._connections: dict[Connection, None] = {}  # in the order in which they connected
        self._server: asyncio.Server | Arrivals | None = None
        self._rejections_left = REJECTIONS_PER_SECOND
        self._rejections_since = 0.0

    @property
    def connections(self) -> int:
        """The number of connected peers."""
        return len(self._connections)

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises `StartupError` when the address cannot be used."""
        loop = asyncio.get_running_loop()
        try:
            if self._tls is None:
                self._server = await loop.create_server(self._arriving, host, port, backlog=BACKLOG)
            else:
                self._server = Arrivals(self._tls, self._arriving, self._no_descriptor_for, self._trace_rejection)
                await self._server.listen(host, port)
        except OSError as error:
            raise StartupError(
                f"cannot listen at {host}:{port}: {error.strerror or error}; free the port or change `listeners`"
            ) from error
        self._schedule_idle_check()

    async def stop(self) -> None:
        """Stop accepting, and close every connection after its queued data has been sent."""
        self._accept_no_more()
        for connection in list(self._connections):
            connection.close()

    def abort(self) -> None:
        """Stop accepting, and drop every connection with its queued data."""
        self._accept_no_more()
        for connection in list(self._connections):
            connection.abort()

    def forget_shortcuts(self) -> None:
        """Send the next request of every connection through the dispatcher, which checks permissions."""
        for connection in self._connections:
            connection.shortcut = None

    def _accept_no_more(self) -> None:
        if self._idle_check is not None:
            self._idle_check.cancel()
        if self._server is not None:
            self._server.close()
            self._server = None

    def _arriving(self) -> Connection:
        return Connection(self)

    # --- idle connections

    def _schedule_idle_check(self) -> None:
        if self._max_idle is not None:
            loop = asyncio.get_running_loop()
            self._idle_check = loop.call_later(self._max_idle / IDLE_CHECKS, self._end_idle)

    def _end_idle(self) -> None:
        """Close connections that were silent at the last checks, also in the middle of a request, or whose peer did not
        take its answers. A connection whose peer waits for an answer is not idle."""
        for connection in list(self._connections):
            connection.silent_checks = 0 if connection.owes_an_answer else connection.silent_checks + 1
            if connection.silent_checks > IDLE_CHECKS:
                connection.end_idle()
        self._schedule_idle_check()

    # --- for connections

    @property
    def turn_is_over(self) -> bool:
        return self._requests.turn_is_over

    def opened(self, connection: Connection) -> ConnectionHost | None:
        if (reason := self._no_descriptor_for(connection.descriptor)) is not None:
            self.rejected(connection, reason)
            return None
        reason = self._too_few_descriptors(connection.descriptor, self._kept)
        reason = reason or self._admission.refusal(connection.address)
        if reason is None:
            self._admission.admit(connection, connection.address)
            self._connections[connection] = None
            return self._enter(connection, self)
        leaving = self._admission.try_out(connection)
        if leaving is connection:
            self.rejected(connection, reason)
            return None
        if leaving is not None:
            leaving.reject(reason)
        self._connections[connection] = None
        doorway = Doorway(self, self._admission, reason)
        doorway.wait_for_proof(connection)
        return self._enter(connection, doorway)

    def _no_descriptor_for(self, descriptor: int) -> str | None:
        """Why this descriptor must not be used, not even for a connection on probation."""
        return self._too_few_descriptors(descriptor, self._kept_for_files)

    def _too_few_descriptors(self, descriptor: int, kept: int) -> str | None:
        """A new descriptor is the lowest free one: all lower ones are in use."""
        if self._descriptors - descriptor > kept:
            return None
        return f"{descriptor} of {self._descriptors} descriptors are in use; raise ulimit -n"

    def _enter(self, connection: Connection, inside: ConnectionHost) -> ConnectionHost:
        """The first host of a connection: the listener's, behind the authentication if it is required."""
        if connection.certificate is not None:
            connection.principal = of_certificate(connection.certificate["subject"])
        return inside if self._entrance is None else self._entrance(inside)

    def closed(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self._admission.left(connection)

    def rejected(self, connection: Connection, reason: str) -> None:
        self._trace_rejection(connection.peer, reason)

    def _trace_rejection(self, peer: str, reason: str) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._rejections_since >= 1.0:
            self._rejections_since = now
            self._rejections_left = REJECTIONS_PER_SECOND
        if self._rejections_left > 0:
            self._rejections_left -= 1
            self._tracer.emit("connection_rejected", peer=peer, reason=shortened(reason))

    def _release_idle_memory(self) -> None:
        for connection in self._connections:
            connection.release_memory()

"""Accepts connections, closes idle ones, and bounds the memory of all receive buffers.

`connection_limits` decides how many connections there may be, in total and per address.

Limits on connections: in total, per address, and places that are reserved for brokers.

Theory of operation. A broker whose places are all taken by clients must stay reachable for the other brokers; otherwise
it would be fenced and could not return. Whether a new connection is a broker's shows only in its first request.
Therefore a few more connections are accepted on probation beyond the limits (`Doorway`). One whose first request only
brokers send may stay; all others are closed at once. The oldest connection on probation makes room for the next.

Accepts peers at a TLS listener and bounds the number of concurrent handshakes.

Each handshake needs a descriptor. Handshakes are counted before they start. When the bound is reached, the oldest
handshake is ended for the next peer, so that peers which only connect cannot keep others out.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Final, Protocol

from broker.errors import StartupError, shortened
from broker.protocol.api import ApiKey, decode_request_header
from broker.protocol.codec import DecodeError, decode
from broker.protocol.messages.fetch import FetchRequest, fetching_replica
from broker.protocol.messages.offset_apis import OffsetForLeaderEpochRequest
from broker.security.principals import of_certificate
from broker.security.tls import HANDSHAKE_TIMEOUT_S, SHUTDOWN_TIMEOUT_S
from broker.server.connection import Connection, ConnectionHost, Outcome, Rejected, Shortcut, shown_address
from broker.server.frames import SMALL, MemoryBudget
from broker.server.host_decorator import InFront
from broker.server.work_budget import most_entries
from broker.trace import Tracer

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
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, _, _, _, address in dict.fromkeys(addresses):
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


KEPT_FOR_BROKERS = 128
"""Connections beyond the limits, of brokers and on probation: about six for each peer."""

PROOF_WITHIN_S = 5.0
"""Time limit for the first request on probation; brokers connect only when they have a request to send."""

BROKERS_ASK = (
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.ALTER_PARTITION,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.ENVELOPE,
    ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.GET_REPLICA_LOG_INFO,
)


class Admission:
    """Counts connections. `per_address`: the limits of single addresses, `per_address_default`: of all others."""

    def __init__(self, limit: int, per_address_default: int, per_address: Mapping[str, int]) -> None:
        self._most = limit
        self._per_address_default = per_address_default
        self._per_address = per_address
        self._clients: dict[Connection, str] = {}
        self._by_address: dict[str, int] = {}
        self._brokers: dict[Connection, None] = {}
        self._on_trial: dict[Connection, None] = {}  # in the order in which they connected

    def refusal(self, address: str) -> str | None:
        """Why no further client may connect from `address`; None when one may."""
        if len(self._clients) >= self._most:
            return f"more than max.connections={self._most} connections"
        limit = self._per_address.get(address, self._per_address_default)
        if self._by_address.get(address, 0) >= limit:
            return f"more than max.connections.per.ip={limit} connections from {address}"
        return None

    def admit(self, connection: Connection, address: str) -> None:
        """Count a client."""
        self._clients[connection] = address
        self._by_address[address] = self._by_address.get(address, 0) + 1

    def try_out(self, connection: Connection) -> Connection | None:
        """Accept a connection on probation. Returns the connection to close for it, or None; `connection` itself when
        brokers have all the places."""
        leaving = None
        if len(self._brokers) + len(self._on_trial) >= KEPT_FOR_BROKERS:
            leaving = next(iter(self._on_trial), connection)
            self._on_trial.pop(leaving, None)
        if leaving is not connection:
            self._on_trial[connection] = None
        return leaving

    def is_broker(self, connection: Connection) -> None:
        """A connection on probation has sent a broker's request: it stays."""
        del self._on_trial[connection]
        self._brokers[connection] = None

    def on_trial(self, connection: Connection) -> bool:
        return connection in self._on_trial

    def left(self, connection: Connection) -> None:
        """A connection has ended."""
        self._brokers.pop(connection, None)
        self._on_trial.pop(connection, None)
        address = self._clients.pop(connection, None)
        if address is not None:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]


class Doorway(InFront):
    """The host of a connection on probation until its first request shows whether it is a broker's."""

    def __init__(self, inside: ConnectionHost, admission: Admission, reason: str) -> None:
        super().__init__(inside)
        self._admission = admission
        self._reason = reason
        self._shown = False

    def dispatch(self, connection: Connection, frame: memoryview) -> Outcome:
        """Serve a broker. Raises `Rejected` for other peers.

        A peer that must authenticate does so before this, within the same time limit."""
        if not self._shown:
            if not (self._admission.on_trial(connection) and _asks_as_broker(frame)):
                raise Rejected(self._reason)
            self._admission.is_broker(connection)
            self._shown = True
        return self._inside.dispatch(connection, frame)

    def wait_for_proof(self, connection: Connection) -> None:
        """Disconnect the peer if it sends no broker's request in time."""

        def check() -> None:
            if self._admission.on_trial(connection):
                connection.reject(self._reason)

        asyncio.get_running_loop().call_later(PROOF_WITHIN_S, check)


def _asks_as_broker(frame: memoryview) -> bool:
    try:
        header, body = decode_request_header(frame)
        if header.api_key == ApiKey.FETCH:
            fetch, _ = decode(FetchRequest, header.api_version, frame, body, most_entries=most_entries(ApiKey.FETCH))
            return fetching_replica(fetch).replica_id >= 0
        if header.api_key == ApiKey.OFFSET_FOR_LEADER_EPOCH:
            entries_limit = most_entries(ApiKey.OFFSET_FOR_LEADER_EPOCH)
            ask, _ = decode(OffsetForLeaderEpochRequest, header.api_version, frame, body, most_entries=entries_limit)
            return ask.replica_id >= 0
    except DecodeError:
        return False
    return header.api_key in BROKERS_ASK


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
    def for_requests_of(cls, request_max_bytes: int, minimum: int = BUFFERS_MAX_BYTES) -> "SharedBudget":
        """Enough for two of the largest requests, and for `minimum` bytes."""
        return cls(max(minimum, 2 * request_max_bytes))

    def asks_back(self, release: Callable[[], None]) -> None:
        """Call `release` when the budget runs low."""
        self._holders.append(release)

    @property
    def left(self) -> int:
        return self._left

    def reserve(self, size: int) -> bool:
        reserved_bytes = 0 if size <= SMALL else KEPT_FOR_SMALL
        if size > self._left - reserved_bytes:
            for release in self._holders:
                release()
        if size > self._left - reserved_bytes:
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

    def _too_few_descriptors(self, descriptor: int, reserved_descriptors: int) -> str | None:
        """A new descriptor is the lowest free one: all lower ones are in use."""
        if self._descriptors - descriptor > reserved_descriptors:
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

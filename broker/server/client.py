"""Outgoing connections to other brokers: one per peer and purpose, pipelined, dropped when no answer arrives.

The timeout limits the time without any received byte, not the time of a whole answer: on a slow link a large answer
would otherwise be requested again and again, and never complete.

Each purpose has its own connection because answers arrive in the order of the requests: a vote must not wait behind a
fetch that is parked at its leader.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from struct import Struct
from typing import cast

from broker.protocol.api import ApiKey, api_of, decode_response_header, encode_request
from broker.protocol.codec import DecodeError, decode
from broker.protocol.request import Request, Response
from broker.protocol.schema import Message
from broker.quorum.wire import METADATA_TOPIC_ID
from broker.server.frames import FrameBuffer, FrameError, Unlimited
from broker.server.peer_security import PLAINTEXT, Approach, LoginError, Steps

BACKOFF_MIN = 0.02  # seconds before the first reconnection attempt; doubles up to the maximum
BACKOFF_MAX = 0.4
LIFETIME_USED = 0.85  # share of the authentication's lifetime after which a connection is replaced (KIP-368)
OWNED_FROM = 1 << 13  # bytes; a larger answer takes over the receive buffer instead of being copied

Address = tuple[str, int]
Local = Callable[[Message, int], Awaitable[Message]]

_INT32 = Struct(">i")
_UNSENT_IS_DISCARDED = Struct("ii").pack(1, 0)  # struct linger: on, and for no time
HEARTBEATS = "registration"
_PURPOSES = {
    ApiKey.VOTE: "quorum",
    ApiKey.BEGIN_QUORUM_EPOCH: "quorum",
    ApiKey.END_QUORUM_EPOCH: "quorum",
    ApiKey.ENVELOPE: "forwarding",
    ApiKey.FETCH_SNAPSHOT: "quorum-fetch",
    ApiKey.FETCH: "replica",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "replica",
    ApiKey.ALTER_PARTITION: "partitions",
    ApiKey.BROKER_REGISTRATION: HEARTBEATS,
    ApiKey.BROKER_HEARTBEAT: HEARTBEATS,
}
_ENDED = (ConnectionResetError, BrokenPipeError, ConnectionAbortedError, TimeoutError)
"""With these errors the kernel has given the connection up already."""


_CONTROLLERS_ASKED = frozenset(
    {
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.ENVELOPE,
        ApiKey.ALTER_PARTITION,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ALLOCATE_PRODUCER_IDS,
    }
)
"""Requests that go to the controller listener, as do Fetch requests for the metadata log."""


class PeerConnection(asyncio.BufferedProtocol):
    """One open connection to a peer. Answers are matched to requests by correlation id."""

    def __init__(self, response_max_bytes: int, on_closed_here: Callable[[], None] | None = None) -> None:
        """`on_closed_here`: called before this side ends the connection in order (see `connection_lost`)."""
        self.answered = False
        self._on_closed_here = on_closed_here
        self._is_ended = False  # by the peer, or by a reset of this side: closing it then ends nothing in order
        self._loop = asyncio.get_running_loop()
        self._input = FrameBuffer(response_max_bytes, Unlimited(), minimum=4)
        self._input.make_room()
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, asyncio.Future[memoryview]] = {}
        self._limits: dict[int, tuple[float, float]] = {}  # of waiting requests: start and timeout, in seconds
        self._timer: asyncio.TimerHandle | None = None
        self._heard_at = 0.0
        self._reason = "the connection was closed"
        self._authenticated_until: float | None = None
        self._retired = False

    @property
    def is_expiring(self) -> bool:
        """Whether the connection must be replaced because its authentication expires soon (KIP-368)."""
        return self._authenticated_until is not None and self._loop.time() >= self._authenticated_until

    def authenticated_for(self, lifetime_ms: int) -> None:
        """The peer has authenticated this broker for `lifetime_ms`; 0: as long as the connection lasts."""
        if lifetime_ms:
            self._authenticated_until = self._loop.time() + LIFETIME_USED * lifetime_ms / 1000

    def retire(self) -> None:
        """Send no further request; close once the pending ones are answered. A connection of heartbeats is reset
        instead: its orderly end means that this process is gone."""
        self._retired = True
        if self._transport is not None and not self._waiting:
            if self._on_closed_here is not None:
                self.drop("another connection has taken its place")
            else:
                self._transport.close()

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's class does not derive from asyncio.Transport
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._input.space()

    def buffer_updated(self, nbytes: int) -> None:
        self._input.received(nbytes)
        self._heard_at = self._loop.time()
        try:
            while (frame := self._input.next_frame()) is not None:
                self._answer(frame)
            self._input.make_room()
        except FrameError as error:
            self.drop(str(error))

    def eof_received(self) -> None:
        self._is_ended = True

    def connection_lost(self, exc: Exception | None) -> None:
        """The event loop calls this before it closes the socket. If the kernel still has the connection, closing it
        would send the peer an orderly end (FIN), which means for heartbeats that this process is gone: it is reset."""
        if self._on_closed_here is not None and not self._is_ended and not isinstance(exc, _ENDED):
            self._on_closed_here()
            self._discard_unsent()
        self._transport = None
        reason = f"{self._reason}: {exc}" if exc else self._reason
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionError(reason))
        self._waiting.clear()
        self._limits.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def send(self, correlation_id: int, frame: bytearray) -> asyncio.Future[memoryview]:
        """Send a request; the future gets the answer's frame or `ConnectionError`."""
        future: asyncio.Future[memoryview] = self._loop.create_future()
        if self._transport is None:
            future.set_exception(ConnectionError(self._reason))
            return future
        self._waiting[correlation_id] = future
        self._transport.write(frame)
        return future

    def ask(self, correlation_id: int, frame: bytearray, timeout: float, since: float) -> asyncio.Future[memoryview]:
        """Send a request. The future gets the answer's frame, `ConnectionError`, or `TimeoutError` when no byte arrives
        for `timeout` seconds, counted from `since`.

        Any received byte extends the limit: answers arrive in the order of the requests, so the byte belongs to this
        answer or to an earlier one.
        """
        answer = self.send(correlation_id, frame)
        if not answer.done():
            self._limits[correlation_id] = since, timeout
            if self._timer is None or since + timeout < self._timer.when():
                self._set_timer(since + timeout)
        return answer

    def _set_timer(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._check_limits)

    def _check_limits(self) -> None:
        """Fail the requests whose limit has passed, and set the timer for the next limit.

        All requests share one timer, which is not cancelled by answers: most arrive long before it fires."""
        self._timer = None
        now, ahead = self._loop.time(), []
        for correlation_id, (since, timeout) in self._limits.items():
            limit = max(since, self._heard_at) + timeout
            if limit > now:
                ahead.append(limit)
            elif not (answer := self._waiting[correlation_id]).done():
                answer.set_exception(TimeoutError())
        if ahead:
            self._set_timer(min(ahead))

    def drop(self, reason: str) -> None:
        """Abort the connection at once. A pending request may or may not have been handled.

        Bytes that have not reached the peer are discarded. Otherwise the kernel would send them for minutes, and an old
        request could arrive after newer ones.
        """
        self._reason = reason
        if self._transport is not None:
            self._is_ended = True
            self._discard_unsent()
            self._transport.abort()

    def _discard_unsent(self) -> None:
        """When the socket is closed, the kernel resets the connection."""
        sock = None if self._transport is None else self._transport.get_extra_info("socket")
        if sock is not None:  # the simulator's connections have none
            with suppress(OSError):  # closed already
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _UNSENT_IS_DISCARDED)

    def _answer(self, frame: memoryview) -> None:
        correlation_id: int = _INT32.unpack_from(frame)[0]
        future = self._waiting.pop(correlation_id, None)
        if future is None:
            raise FrameError("an answer without a request")
        self._limits.pop(correlation_id, None)
        if len(frame) >= OWNED_FROM:
            self._input.detach()
        else:
            frame = memoryview(bytes(frame))
        if not future.done():
            future.set_result(frame)
        self.answered = True
        if self._retired:
            self.retire()


@dataclass(eq=False)
class Link:
    """The connection to one peer for one purpose; reconnects with growing pauses while that fails."""

    name: str
    address: Address
    _response_max_bytes: int
    _approach: Approach
    _on_closed_here: Callable[[], None] | None = None
    _connection: PeerConnection | None = field(default=None, init=False)
    _retired: PeerConnection | None = field(default=None, init=False)
    _opening: asyncio.Task[PeerConnection] | None = field(default=None, init=False)
    _failures: int = field(default=0, init=False)
    _not_before: float = field(default=0.0, init=False)

    @property
    def ready(self) -> PeerConnection | None:
        """The open connection; None before it is open, or when it must be replaced."""
        connection = self._connection
        return connection if connection is not None and connection.is_open and not connection.is_expiring else None

    async def connection(self) -> PeerConnection:
        """The open connection; opens one if necessary. Raises `ConnectionError`."""
        if (connection := self.ready) is not None:
            return connection
        if self._connection is not None:
            if self._connection.is_open:
                self._retire(self._connection)
            else:
                self._lost()
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open())
            self._opening.add_done_callback(self._opened)
        return await asyncio.shield(self._opening)

    def drop(self, reason: str) -> None:
        """Drop the connection and any attempt to open one."""
        if self._opening is not None:
            self._opening.cancel()
        if self._retired is not None:
            self._retired.drop(reason)
        if self._connection is not None:
            self._connection.drop(reason)
            self._lost()

    def _retire(self, connection: PeerConnection) -> None:
        """Replace the connection. A connection retired earlier has had its time to answer and is dropped."""
        if self._retired is not None:
            self._retired.drop("another connection has replaced it")
        self._retired, self._connection = connection, None
        connection.retire()

    async def _open(self) -> PeerConnection:
        """Connect, and authenticate before anything else is sent where the listener requires it."""
        loop = asyncio.get_running_loop()
        if self._not_before > loop.time():
            await asyncio.sleep(self._not_before - loop.time())
        try:
            _, connection = await loop.create_connection(
                lambda: PeerConnection(self._response_max_bytes, self._on_closed_here),
                *self.address,
                **self._approach.connecting,
            )
            await self._log_in(connection)
        except (OSError, LoginError) as error:
            self._back_off()
            # Refused is reported separately: no process listens there. Other failures say nothing about the peer.
            kind = ConnectionRefusedError if isinstance(error, ConnectionRefusedError) else ConnectionError
            raise kind(f"{self.name} at {self.address[0]}:{self.address[1]}: {error}") from error
        return connection

    async def _log_in(self, connection: PeerConnection) -> None:
        """Authenticate. Drops the connection on failure. Raises `LoginError`, `ConnectionError`."""
        steps = self._approach.log_in()
        if steps is None:
            return
        try:
            connection.authenticated_for(await self._take(steps, connection))
        except BaseException as error:  # a time-out as well: only this method knows the connection so far
            connection.drop(str(error))
            raise

    @staticmethod
    async def _take(steps: Steps, connection: PeerConnection) -> int:
        """Run the steps of the authentication (see `Steps`). Returns its lifetime in ms; 0: unlimited."""
        answer: Message | None = None
        count = 0
        while True:
            count += 1
            try:
                request = steps.send(answer)
            except StopIteration as done:
                lifetime_ms: int = done.value
                return lifetime_ms
            version = api_of(request).max_version
            # Other requests have correlation ids >= 0.
            body = await connection.send(-count, encode_request(request, version, -count, None))
            try:
                answer = decode_answer(request, version, body)
            except DecodeError as error:
                raise LoginError(f"an answer cannot be decoded: {error}") from error

    def _opened(self, task: asyncio.Task[PeerConnection]) -> None:
        self._opening = None
        if not task.cancelled() and task.exception() is None:
            self._connection = task.result()

    def _lost(self) -> None:
        assert self._connection is not None
        if self._connection.answered:
            self._failures = 0
        self._connection = None
        self._back_off()

    def _back_off(self) -> None:
        pause = min(BACKOFF_MAX, BACKOFF_MIN * 2**self._failures)
        self._failures = min(self._failures + 1, 16)
        self._not_before = asyncio.get_running_loop().time() + pause


class PeerConnector:
    """Sends requests to nodes by their ids. A node has an address as a broker and may have one as a controller."""

    def __init__(
        self,
        node_id: int,
        brokers: Mapping[int, Address],
        *,
        response_max_bytes: int,
        controllers: Mapping[int, Address] | None = None,
        to_brokers: Approach = PLAINTEXT,
        to_controllers: Approach = PLAINTEXT,
        before_heartbeats_end: Callable[[], None] = lambda: None,
    ) -> None:
        """`controllers` None: controller requests go to the brokers' addresses.
        `before_heartbeats_end`: called before this broker ends a connection of its heartbeats in order."""
        self._before_heartbeats_end = before_heartbeats_end
        self._to_brokers = to_brokers
        self._to_controllers = to_controllers
        self._node_id = node_id
        self._client_id = f"broker-{node_id}"
        self._brokers = dict(brokers)
        self._controllers = None if controllers is None else dict(controllers)
        self._response_max_bytes = response_max_bytes
        self._links: dict[tuple[int, str], Link] = {}
        self._correlation_id = 0
        self._local: Local | None = None
        self._closed = False

    def serve_locally(self, handler: Local) -> None:
        """Requests of this broker to itself are calls of `handler`."""
        self._local = handler

    def learn(self, addresses: Mapping[int, Address]) -> None:
        """Replace the addresses of the brokers by those of the registered ones."""
        self._brokers = dict(addresses)

    async def request(
        self, node_id: int, message: Request[Response], timeout: float, version: int | None = None
    ) -> Response:
        """Send a request to a broker and return its answer. `timeout`: seconds without a byte, connecting included.
        `version`: of the request; None for the newest.

        Raises `TimeoutError` (the connection is dropped, so that a late answer cannot be taken for the next request's)
        or `ConnectionError`. After either the request may or may not have been handled.
        """
        if self._closed:
            raise ConnectionError("this broker is stopping")
        api = api_of(message)
        if version is None:
            version = api.max_version
        if node_id == self._node_id and self._local is not None:
            async with asyncio.timeout(timeout):
                return cast(Response, await self._local(message, version))
        if _fetches_metadata(api.key, message):
            link = self._link(node_id, "quorum-fetch", as_controller=True)
        else:
            purpose = _purpose(api.key, message)
            link = self._link(node_id, purpose, as_controller=api.key in _CONTROLLERS_ASKED)
        self._correlation_id = correlation_id = self._correlation_id % 0x7FFFFFFF + 1
        frame = encode_request(message, version, correlation_id, self._client_id)
        since = asyncio.get_running_loop().time()
        try:
            connection = link.ready
            if connection is None:
                async with asyncio.timeout(timeout):
                    connection = await link.connection()
            body = await connection.ask(correlation_id, frame, timeout, since)
        except TimeoutError:
            link.drop(f"no answer within {timeout:g} s")
            raise TimeoutError(f"{link.name}: no part of {api.key.name}'s answer within {timeout:g} s") from None
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            raise ConnectionError(f"{link.name}: the connection was dropped") from None
        try:
            return decode_answer(message, version, body)
        except DecodeError as error:
            connection.drop(f"undecodable answer: {error}")
            raise ConnectionError(f"{link.name}: undecodable answer: {error}") from error

    def close(self) -> None:
        """Drop every connection; later requests fail."""
        self._closed = True
        for link in self._links.values():
            link.drop("this broker is stopping")

    def _link(self, node_id: int, purpose: str, *, as_controller: bool) -> Link:
        addresses, approach = self._brokers, self._to_brokers
        if as_controller and self._controllers is not None:
            addresses, approach = self._controllers, self._to_controllers
        address = addresses.get(node_id)
        if address is None:
            raise ConnectionError(f"the address of broker {node_id} is unknown")
        link = self._links.get((node_id, purpose))
        if link is None or link.address != address:
            if link is not None:
                link.drop("the broker's address has changed")
            link = self._links[node_id, purpose] = Link(
                f"broker {node_id}",
                address,
                self._response_max_bytes,
                approach,
                self._before_heartbeats_end if purpose == HEARTBEATS else None,
            )
        return link


def _purpose(key: ApiKey, message: Message) -> str:
    """A fetch without a replica reads the metadata of remote segments, and must not wait behind a parked fetch."""
    if key is ApiKey.FETCH and message.replica_state is None:  # type: ignore[attr-defined]
        return "remote-metadata"
    return _PURPOSES.get(key, "other")


def _fetches_metadata(key: ApiKey, message: Message) -> bool:
    return key is ApiKey.FETCH and any(topic.topic_id == METADATA_TOPIC_ID for topic in message.topics)  # type: ignore[attr-defined]


def decode_answer(request: Request[Response], version: int, body: memoryview) -> Response:
    """The answer to a request that was sent in this version. Raises `DecodeError`."""
    api = api_of(request)
    _, position = decode_response_header(api, version, body)
    return cast(Response, decode(api.response, version, body, position)[0])

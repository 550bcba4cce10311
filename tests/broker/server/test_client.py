"""Requests between brokers: dispatch on one side, the connector on the other."""

import asyncio
import contextlib
import gc
import socket
import weakref
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from broker.errors import ErrorCode
from broker.protocol.api import APIS, ApiKey, encode_request
from broker.protocol.messages.broker_apis import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from broker.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from broker.protocol.messages.offset_apis import ListOffsetsRequest, ListOffsetsResponse
from broker.server.client import PeerConnection, PeerConnector
from broker.server.connection import Outcome
from broker.server.dispatch import Call, Dispatcher
from broker.server.listener import Listener
from broker.trace import Tracer, Value
from tests.stories import played_by


class Peer:
    """A broker that answers heartbeats with their broker epoch once `gate` is open, and fetches with 500 kB."""

    def __init__(self) -> None:
        self.events: list[dict[str, Value]] = []
        self.disk_failures: list[OSError] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = 0
        tracer = Tracer(1, lambda: 0, self.events.append)
        self.dispatcher = Dispatcher(tracer, self.disk_failures.append)
        self.dispatcher.answer_later(ApiKey.BROKER_HEARTBEAT, self.heartbeat)
        self.dispatcher.answer_now(ApiKey.LIST_OFFSETS, self.list_offsets)
        self.dispatcher.serve(ApiKey.FETCH, self.fetch)
        self.failure: Exception = ValueError("a defect")
        self.port = 0
        self.listener = self._listener(tracer)
        self.tracer = tracer

    def _listener(self, tracer: Tracer) -> Listener:
        return Listener(self.dispatcher, tracer, request_max_bytes=1 << 20, max_connections=10, max_queued=10)

    async def start(self) -> None:
        self.listener = self._listener(self.tracer)
        await self.listener.start("127.0.0.1", self.port)
        assert self.listener._server is not None
        self.port = self.listener._server.sockets[0].getsockname()[1]

    async def heartbeat(self, request: BrokerHeartbeatRequest, version: int) -> BrokerHeartbeatResponse:  # noqa: ARG002
        self.asked += 1
        await self.gate.wait()
        return BrokerHeartbeatResponse(error_code=ErrorCode.NONE, throttle_time_ms=request.broker_epoch)

    def list_offsets(self, request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:  # noqa: ARG002
        raise self.failure

    def fetch(self, call: Call) -> Outcome:
        data = [PartitionData(records=bytes([7]) * 500_000)]
        return call.respond(FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=data)]))


def story(tell: Callable[[Peer, PeerConnector], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(120):
            peer = Peer()
            await peer.start()
            controllers = {2: ("127.0.0.1", peer.port)}
            connector = PeerConnector(1, dict(controllers), controllers=controllers, response_max_bytes=8 << 20)
            try:
                await tell(peer, connector)
            finally:
                connector.close()
                await peer.listener.stop()

    for runner in (asyncio.run, uvloop.run):
        runner(run())


STORIES = played_by(story)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what the transport does has no event to wait for
        await asyncio.sleep(0.001)


async def connected(peer: Peer) -> PeerConnection:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(lambda: PeerConnection(8 << 20), "127.0.0.1", peer.port)
    return connection


async def heartbeat(connector: PeerConnector, number: int, timeout: float = 10.0) -> int:
    response = await connector.request(2, BrokerHeartbeatRequest(broker_epoch=number), timeout)
    return response.throttle_time_ms


async def test_pipelined_requests_get_their_own_answers(peer: Peer, connector: PeerConnector, /) -> None:
    answers = await asyncio.gather(*(heartbeat(connector, number) for number in range(50)))
    assert answers == list(range(50))
    assert peer.listener.connections == 1


def test_a_large_answer_is_not_overwritten_by_the_next_one() -> None:
    async def tell(peer: Peer, connector: PeerConnector) -> None:  # noqa: ARG001
        request = FetchRequest(topics=[FetchTopic(topic="t", partitions=[FetchPartition()])])
        answers = await asyncio.gather(*(connector.request(2, request, 10.0, 12) for _ in range(5)))
        for answer in answers:
            assert answer.responses[0].partitions[0].records == bytes([7]) * 500_000

    story(tell)


def test_an_answer_is_freed_with_its_last_reference() -> None:
    """Not only when garbage is looked for: by then fetches have had megabytes of new memory each."""

    async def tell(peer: Peer, _: PeerConnector) -> None:
        connection = await connected(peer)
        gc.disable()
        try:
            request = encode_request(FetchRequest(topics=[]), 12, 7, None)
            asked = connection.ask(7, request, 10.0, asyncio.get_running_loop().time())
            assert len(await asked) > 500_000
            known = weakref.ref(asked)
            del asked
            await asyncio.sleep(0)
            assert known() is None
        finally:
            gc.enable()
            connection.drop("the test is over")

    story(tell)


def test_the_limit_of_one_request_is_not_that_of_another() -> None:
    async def tell(peer: Peer, _: PeerConnector) -> None:
        peer.gate.clear()
        connection, loop = await connected(peer), asyncio.get_running_loop()
        request = BrokerHeartbeatRequest(broker_epoch=1)
        patient, other, hasty = (
            connection.ask(number, encode_request(request, 1, number, None), limit, loop.time())
            for number, limit in ((1, 60.0), (2, 60.0), (3, 0.05))
        )
        with pytest.raises(TimeoutError):
            await hasty
        assert not patient.done()
        assert not other.done()
        peer.gate.set()
        assert len(await patient) == len(await other)
        connection.drop("the test is over")

    story(tell)


@pytest.mark.conforms("K595-2")
async def test_past_the_request_timeout_the_connection_is_dropped_and_opened_again(
    peer: Peer, connector: PeerConnector, /
) -> None:
    assert await heartbeat(connector, 1) == 1
    (first,) = peer.listener._connections
    peer.gate.clear()
    with pytest.raises(TimeoutError, match="no part of BROKER_HEARTBEAT's answer within"):
        await heartbeat(connector, 2, timeout=0.05)
    peer.gate.set()
    assert await heartbeat(connector, 3) == 3
    await until(lambda: peer.listener.connections == 1)
    assert first not in peer.listener._connections


async def test_a_timeout_fails_the_other_requests_of_the_connection(peer: Peer, connector: PeerConnector, /) -> None:
    assert await heartbeat(connector, 1) == 1  # it is connected: that takes none of the time below
    peer.gate.clear()
    other = asyncio.create_task(heartbeat(connector, 2))
    with pytest.raises(TimeoutError):
        await heartbeat(connector, 3, timeout=0.05)
    with pytest.raises(ConnectionError, match="no answer within"):
        await other


async def test_a_peer_that_is_away_is_found_again_when_it_is_back(peer: Peer, connector: PeerConnector, /) -> None:
    assert await heartbeat(connector, 1) == 1
    await peer.listener.stop()
    for _ in range(3):
        with pytest.raises(ConnectionError):
            await heartbeat(connector, 2)
    await peer.start()
    assert await heartbeat(connector, 3) == 3


async def test_a_broker_is_reachable_when_its_address_is_known(peer: Peer, connector: PeerConnector, /) -> None:
    with pytest.raises(ConnectionError, match="address of broker 9"):
        await connector.request(9, BrokerHeartbeatRequest(), 1.0)
    connector.learn({9: ("127.0.0.1", peer.port)})
    with pytest.raises(ConnectionError, match="address of broker 9"):
        await connector.request(9, BrokerHeartbeatRequest(), 1.0)  # it is not a controller
    assert isinstance(await connector.request(9, FetchRequest(), 10.0, 12), FetchResponse)
    assert await heartbeat(connector, 4) == 4  # a voter stays where the configuration says it is


async def test_requests_to_the_own_node_are_calls(peer: Peer, connector: PeerConnector, /) -> None:
    connector.serve_locally(peer.dispatcher.local.call)
    response = await connector.request(1, BrokerHeartbeatRequest(broker_epoch=5), 1.0)
    assert response.throttle_time_ms == 5
    assert peer.listener.connections == 0


async def test_a_defect_costs_the_connection_and_is_traced(peer: Peer, connector: PeerConnector, /) -> None:
    with pytest.raises(ConnectionError):
        await connector.request(2, ListOffsetsRequest(), 10.0, 5)
    assert [event["event"] for event in peer.events] == ["request_failed", "connection_rejected"]
    assert "a defect" in str(peer.events[0]["error"])
    assert peer.disk_failures == []
    assert await heartbeat(connector, 1) == 1


async def test_an_error_of_the_disk_is_reported_as_such(peer: Peer, connector: PeerConnector, /) -> None:
    peer.failure = OSError(5, "Input/output error")
    with pytest.raises(ConnectionError):
        await connector.request(2, ListOffsetsRequest(), 10.0, 5)
    assert [error.errno for error in peer.disk_failures] == [5]


async def test_an_undecodable_request_costs_the_connection_only(peer: Peer, connector: PeerConnector, /) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", peer.port)
    body = bytes([0, ApiKey.BROKER_HEARTBEAT, 0, 1, 0, 0, 0, 1, 255, 255, 0]) + b"\xff" * 40
    writer.write(len(body).to_bytes(4, "big") + body)
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()
    assert peer.asked == 0
    assert await heartbeat(connector, 1) == 1
    assert APIS[ApiKey.BROKER_HEARTBEAT].max_version == 1


def test_undelivered_answers_of_a_dropped_connection_are_discarded() -> None:
    """A vote or a change of an ISR that timed out and was sent again must not come behind what was sent after it."""

    async def tell() -> None:
        with socket.socket() as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(lambda: PeerConnection(1 << 20), *listening.getsockname())
            peer, _ = listening.accept()
            peer.settimeout(60)
            fills_the_window = connection.send(1, bytearray(1 << 16))
            in_the_kernel = connection.send(2, bytearray(b"the request"))
            connection.drop("no answer")
            failed = await asyncio.gather(fills_the_window, in_the_kernel, return_exceptions=True)
            assert [type(it) for it in failed] == [ConnectionError] * 2
            await asyncio.sleep(0)
            received = bytearray()
            with peer, pytest.raises(ConnectionResetError):
                receive_all(peer, received)
            assert b"the request" not in received

    for runner in (asyncio.run, uvloop.run):
        runner(tell())


def receive_all(sock: socket.socket, received: bytearray) -> None:
    while data := sock.recv(1 << 16):
        received += data

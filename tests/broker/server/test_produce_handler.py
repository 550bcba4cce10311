"""Produce: every kind of acknowledgement, refusals, and the shortcut, which must answer as the long way does."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from broker.errors import ErrorCode, ProtocolError
from broker.protocol.api import APIS, ApiKey, decode_request_header, decode_response_header, encode_request
from broker.protocol.codec import decode_exactly
from broker.protocol.messages.producer_apis import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from broker.protocol.records import BATCH_HEADER_SIZE, CorruptBatch, Record, build_batch, validate_batches
from broker.replica.partition import PendingAppend
from broker.server.connection import Connection, Slot
from broker.server.dispatch import Call, Dispatcher
from broker.server.handlers.produce_handler import COMPRESSED, MOST_BYTES, ProduceHandler, ProduceShortcut, learn
from broker.server.listener import Listener
from broker.trace import Tracer, Value
from tests.broker.clients.poison import ZSTD, made
from tests.stories import played_by

VERSIONS = range(3, 13)


class Replicas:
    """Logs as their lengths; acks=all waits until `commit`."""

    def __init__(self) -> None:
        self.ends: dict[tuple[str, int], int] = {}
        self.appends: list[int] = []
        self.waiting: list[asyncio.Future[ErrorCode]] = []
        self.refuse: ProtocolError | None = None

    def append(
        self,
        topic: str,
        partition: int,
        records: bytearray | memoryview,
        acks: int,
        timeout: float,  # noqa: ARG002 - the signature of the replicas
    ) -> PendingAppend:
        if topic == "missing":
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such topic")
        if self.refuse is not None:
            raise self.refuse
        try:
            count = sum(header.records_count for header in validate_batches(records))
        except CorruptBatch as error:
            raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        base = self.ends.get((topic, partition), 0)
        self.ends[topic, partition] = base + count
        self.appends.append(count)
        done = None
        if acks == -1:
            done = asyncio.get_running_loop().create_future()
            self.waiting.append(done)
        return PendingAppend(base, 0, done)

    def commit(self, code: ErrorCode = ErrorCode.NONE) -> None:
        for future in self.waiting:
            future.set_result(code)
        self.waiting.clear()


class Client:
    """Sends produce requests and reads the answers in order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int) -> None:
        self.reader, self.writer, self.version = reader, writer, version
        self.sent = self.read = 0

    def request(self, batch: bytes | None, acks: int = 1, topic: str = "t", partition: int = 0) -> bytes:
        self.sent += 1
        data = [PartitionProduceData(index=partition, records=batch)]
        request = ProduceRequest(
            acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
        )
        return bytes(encode_request(request, self.version, self.sent, "test"))

    def send(self, *requests: bytes) -> None:
        self.writer.write(b"".join(requests))

    async def answer(self) -> PartitionProduceResponse:
        return (await self.whole()).responses[0].partition_responses[0]

    async def whole(self) -> ProduceResponse:
        frame = await self.reader.readexactly(int.from_bytes(await self.reader.readexactly(4), "big"))
        correlation_id, position = decode_response_header(APIS[ApiKey.PRODUCE], self.version, frame)
        self.read += 1
        assert correlation_id == self.read
        return decode_exactly(ProduceResponse, self.version, frame, position)

    async def answers(self, count: int) -> list[tuple[int, int]]:
        found = [await self.answer() for _ in range(count)]
        return [(it.error_code, it.base_offset) for it in found]


def batch(count: int = 1, size: int = 10) -> bytes:
    return build_batch([Record(0, 0, None, bytes(size)) for _ in range(count)])


def story(tell: Callable[[Client, Replicas], Awaitable[None]], version: int = 9) -> list[dict[str, Value]]:
    events: list[dict[str, Value]] = []

    async def run() -> None:
        async with asyncio.timeout(120):
            replicas = Replicas()
            disk_failures: list[OSError] = []
            tracer = Tracer(1, lambda: 0, events.append)
            dispatcher = Dispatcher(tracer, disk_failures.append)
            dispatcher.serve(ApiKey.PRODUCE, ProduceHandler(replicas, 100_000, dispatcher).serve)
            listener = Listener(dispatcher, tracer, request_max_bytes=1 << 20, max_connections=10, max_queued=1000)
            await listener.start("127.0.0.1", 0)
            assert listener._server is not None
            port = listener._server.sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await tell(Client(reader, writer, version), replicas)
            writer.close()
            await listener.stop()
            assert disk_failures == []

    asyncio.run(run())
    return events


STORIES = played_by(story)


@pytest.mark.parametrize("version", VERSIONS)
def test_pipelined_requests_are_answered_in_order_with_their_offsets(version: int) -> None:
    async def tell(client: Client, replicas: Replicas) -> None:
        client.send(client.request(batch(2)))
        assert await client.answers(1) == [(0, 0)]
        client.send(*(client.request(batch(count)) for count in (1, 3, 2, 1)))
        assert await client.answers(4) == [(0, 2), (0, 3), (0, 6), (0, 8)]
        assert replicas.ends == {("t", 0): 9}

    story(tell, version)


async def test_small_requests_of_one_read_are_appended_together(client: Client, replicas: Replicas, /) -> None:
    client.send(client.request(batch()))
    await client.answers(1)
    client.send(*(client.request(batch()) for _ in range(50)))
    assert await client.answers(50) == [(0, offset) for offset in range(1, 51)]
    assert len(replicas.appends) < 10


async def test_large_batches_are_appended_alone(client: Client, replicas: Replicas, /) -> None:
    """Nothing is copied together with them, and what is sent behind them keeps its place."""
    large = batch(7, size=2_000)
    client.send(client.request(large))
    await client.answers(1)
    client.send(*(client.request(it) for it in (large, large, batch(), batch(), large)))
    assert await client.answers(5) == [(0, 7), (0, 14), (0, 21), (0, 22), (0, 23)]
    assert replicas.appends[:3] == [7, 7, 7]
    assert replicas.appends[-1] == 7


async def test_requests_of_another_kind_between_them_keep_their_place(client: Client, replicas: Replicas, /) -> None:  # noqa: ARG001
    client.send(client.request(batch()))
    await client.answers(1)
    client.send(
        client.request(batch()),
        client.request(batch()),
        client.request(batch(), partition=1),
        client.request(batch(5, size=5_000)),  # too large to be copied together
        client.request(batch()),
        client.request(None),
        client.request(batch(), topic="missing"),
    )
    refused = [(ErrorCode.INVALID_RECORD, -1), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]
    assert await client.answers(7) == [(0, 1), (0, 2), (0, 0), (0, 3), (0, 8), *refused]


def shortcut(replicas: Replicas) -> ProduceShortcut:
    """That which a connection has after a request of `Client`."""
    frame = request_frame()
    header, body = decode_request_header(frame)
    request = decode_exactly(ProduceRequest, header.api_version, frame, body)
    tracer = Tracer(1, lambda: 0, lambda event: None)  # noqa: ARG005
    listener = Listener(
        Dispatcher(tracer, list[OSError]().append), tracer, request_max_bytes=1 << 20, max_connections=1, max_queued=9
    )
    connection = Connection(listener)
    call = Call(connection, APIS[ApiKey.PRODUCE], header.api_version, 1, header.client_id, frame, body)
    learn(call, request, replicas, 100_000)
    assert isinstance(connection.shortcut, ProduceShortcut)
    return connection.shortcut


def answers(it: ProduceShortcut) -> object:
    """To what it has gathered."""
    outcome = it.finish()
    return outcome.parts if isinstance(outcome, Slot) else outcome


def request_frame() -> memoryview:
    data = [PartitionProduceData(index=0, records=batch())]
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)])
    return memoryview(encode_request(request, 9, 7, "test"))[4:]


@pytest.mark.parametrize("change", [1, 0x40, 0x80], ids=hex)
def test_the_shortcut_accepts_the_same_requests_as_the_full_check(change: int) -> None:
    known = request_frame()
    taken = 0
    for at in range(len(known)):
        frame = bytearray(known)
        frame[at] ^= change
        one_by_one, together = Replicas(), Replicas()
        checking, comparing = shortcut(one_by_one), shortcut(together)
        for _ in range(2):
            assert comparing.take(known)
        comparing.finish()
        together.appends.clear()
        together.ends.clear()
        several = (len(frame).to_bytes(4, "big") + frame) * 3
        size = comparing.take_equal(memoryview(several + b"more"))
        assert size in (0, len(several))
        if size:
            taken += 1
            assert all(checking.take(memoryview(frame)) for _ in range(3)), f"byte {at} is looked at field by field"
            assert answers(comparing) == answers(checking)
            assert (together.appends, together.ends) == (one_by_one.appends, one_by_one.ends)
    assert BATCH_HEADER_SIZE // 2 < taken < len(known) - 30, "what is the batch's own may differ, and nothing else"


async def test_one_corrupt_batch_does_not_take_the_others_with_it(client: Client, replicas: Replicas, /) -> None:  # noqa: ARG001
    client.send(client.request(batch()))
    await client.answers(1)
    corrupt = bytearray(batch())
    corrupt[-1] ^= 1
    client.send(client.request(batch()), client.request(bytes(corrupt)), client.request(batch()))
    assert await client.answers(3) == [(0, 1), (ErrorCode.CORRUPT_MESSAGE, -1), (0, 2)]


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT])
async def test_acks_all_waits_for_the_commit(client: Client, replicas: Replicas, /, code: ErrorCode) -> None:
    requests = [client.request(batch(), acks=-1) for _ in range(5)]
    client.send(requests[0])
    while not replicas.waiting:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    client.send(*requests[1:])
    while sum(replicas.appends) < 5:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    replicas.commit(code)
    expected = [(0, offset) if code is ErrorCode.NONE else (int(code), -1) for offset in range(5)]
    assert await client.answers(5) == expected


async def test_a_corrupt_batch_among_those_that_wait(client: Client, replicas: Replicas, /) -> None:
    client.send(client.request(batch(), acks=-1))
    while not replicas.waiting:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    corrupt = bytearray(batch())
    corrupt[-1] ^= 1
    client.send(*(client.request(data, acks=-1) for data in (batch(), bytes(corrupt), batch())))
    while sum(replicas.appends) < 3:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    replicas.commit()
    assert await client.answers(4) == [(0, 0), (0, 1), (ErrorCode.CORRUPT_MESSAGE, -1), (0, 2)]


def test_acks_0_has_no_answer_and_an_error_costs_the_connection() -> None:
    async def tell(client: Client, replicas: Replicas) -> None:
        client.send(client.request(batch(), acks=0), client.request(batch(), acks=0))
        client.sent = client.read = 2
        client.send(client.request(batch()))
        assert await client.answers(1) == [(0, 2)]
        assert replicas.ends == {("t", 0): 3}
        client.send(client.request(batch(), acks=0, topic="missing"))
        assert await client.reader.read() == b""

    events = story(tell)
    assert "acks=0 to missing-0" in str(events[-1]["reason"])


@pytest.mark.parametrize(
    ("acks", "size", "code"),
    [(7, 10, ErrorCode.INVALID_REQUIRED_ACKS), (1, 200_000, ErrorCode.MESSAGE_TOO_LARGE)],
)
async def test_invalid_acks_and_sizes_are_refused(
    client: Client, replicas: Replicas, /, acks: int, size: int, code: ErrorCode
) -> None:
    client.send(client.request(batch(size=size), acks=acks))
    assert await client.answers(1) == [(int(code), -1)]
    assert replicas.appends == []


async def test_a_partition_is_named_once(client: Client, replicas: Replicas, /) -> None:
    data = [PartitionProduceData(index=index, records=batch()) for index in (0, 1, 0)]
    topics = [TopicProduceData(name="t", partition_data=data), TopicProduceData(name="t", partition_data=data[1:2])]
    client.send(bytes(encode_request(ProduceRequest(acks=1, topic_data=topics), 9, 1, "test")))
    found = [it.error_code for topic in (await client.whole()).responses for it in topic.partition_responses]
    assert found == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST]
    assert replicas.appends == [1, 1]


async def test_compressed_batches_of_one_read_are_not_all_opened_at_once(client: Client, replicas: Replicas, /) -> None:
    """A read may bring hundreds of batches, and each may expand to the largest batch."""
    client.send(client.request(batch()))
    await client.answers(1)
    packed = made(bytes(4_000), count=1, attributes=ZSTD)  # no code here opens it
    requests = [client.request(packed) for _ in range(20)]
    client.send(*requests)
    assert await client.answers(20) == [(0, 1 + number) for number in range(20)]
    assert max(replicas.appends) <= MOST_BYTES // COMPRESSED // len(packed)


async def test_a_refusal_reaches_all_that_were_gathered(client: Client, replicas: Replicas, /) -> None:
    client.send(client.request(batch()))
    await client.answers(1)
    replicas.refuse = ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved")
    client.send(*(client.request(batch()) for _ in range(3)))
    assert await client.answers(3) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)] * 3
    replicas.refuse = None
    client.send(client.request(batch()))
    assert await client.answers(1) == [(0, 1)]

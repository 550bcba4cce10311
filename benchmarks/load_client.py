"""A producer that repeats one prepared request, so that the broker dominates the measurement."""

import asyncio
import os
import time
from collections import deque
from collections.abc import Mapping, Sequence
from struct import Struct
from types import MappingProxyType
from typing import Final, cast

from broker.errors import ErrorCode
from broker.protocol.api import APIS, ApiKey, decode_response_header, encode_request
from broker.protocol.codec import decode
from broker.protocol.messages.cluster_apis import MetadataRequest, MetadataRequestTopic, MetadataResponse
from broker.protocol.messages.producer_apis import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from broker.protocol.messages.topic_apis import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from broker.protocol.records import Record, build_batch
from broker.protocol.schema import Message

CLIENT = "load"
PRODUCE_VERSION = 9
PATIENCE = 20.0
NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})
_INT32 = Struct(">i")
_CORRELATION_ID_AT = 8


async def ask(port: int, request: Message, key: ApiKey, version: int) -> Message:
    """One request on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(encode_request(request, version, 1, CLIENT))
        frame = await reader.readexactly(_INT32.unpack(await reader.readexactly(4))[0])
    finally:
        writer.close()
    _, position = decode_response_header(APIS[key], version, frame)
    return decode(APIS[key].response, version, frame, position)[0]


async def create_topic(
    port: int,
    topic: str,
    replicas: int,
    partitions: int = 1,
    *,
    settings: Mapping[str, str] = NO_SETTINGS,
    assignment: Sequence[int] = (),
) -> None:
    """Find the controller and create a topic there. `assignment`: the replicas of the only partition; empty: the
    controller chooses them."""
    metadata = await ask(port, MetadataRequest(topics=[]), ApiKey.METADATA, 9)
    assert isinstance(metadata, MetadataResponse)
    ports = {broker.node_id: broker.port for broker in metadata.brokers}
    creatable = CreatableTopic(
        name=topic,
        num_partitions=-1 if assignment else partitions,
        replication_factor=-1 if assignment else replicas,
        assignments=[CreatableReplicaAssignment(0, list(assignment))] if assignment else [],
        configs=[CreatableTopicConfig(*each) for each in settings.items()],
    )
    response = await ask(
        ports[metadata.controller_id], CreateTopicsRequest(topics=[creatable]), ApiKey.CREATE_TOPICS, 5
    )
    assert isinstance(response, CreateTopicsResponse)
    assert response.topics[0].error_code == ErrorCode.NONE, response.topics[0].error_message


async def leader_address(ports: list[int], topic: str) -> int:
    """Wait until all replicas of partition 0 are in sync, and return the port of its leader."""
    deadline = time.monotonic() + PATIENCE
    while True:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        metadata = await ask(ports[0], request, ApiKey.METADATA, 9)
        assert isinstance(metadata, MetadataResponse)
        brokers = {broker.node_id: broker.port for broker in metadata.brokers}
        for partition in metadata.topics[0].partitions:
            if partition.leader_id in brokers and len(partition.isr_nodes) == len(partition.replica_nodes):
                return brokers[partition.leader_id]
        assert time.monotonic() < deadline, f"{topic} has no leader: {metadata}"
        await asyncio.sleep(0.02)


async def wait_for_topic(port: int, topic: str, frame: bytes) -> None:
    """Wait until a produce request to the topic is acknowledged by all replicas."""
    deadline = time.monotonic() + PATIENCE
    while True:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame)
        answer = await reader.readexactly(_INT32.unpack(await reader.readexactly(4))[0])
        writer.close()
        _, position = decode_response_header(APIS[ApiKey.PRODUCE], PRODUCE_VERSION, answer)
        response, _ = decode(ProduceResponse, PRODUCE_VERSION, answer, position)
        error = response.responses[0].partition_responses[0].error_code
        if error == ErrorCode.NONE:
            return
        assert time.monotonic() < deadline, f"{topic}: {ErrorCode(error).name}"
        await asyncio.sleep(0.02)


def produce_frame(topic: str, acks: int, record_bytes: int, records: int) -> bytes:
    """A whole Produce request with one batch for partition 0."""
    value = os.urandom(record_bytes)
    batch = build_batch([Record(0, 1_700_000_000_000, None, value) for _ in range(records)])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    request = ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[data])
    return bytes(encode_request(request, PRODUCE_VERSION, 0, CLIENT))


class LoadClient(asyncio.BufferedProtocol):
    """Keeps `in_flight` requests in flight and counts the answers, which all have the same length."""

    def __init__(self, topic: str, frame: bytes, in_flight: int) -> None:
        self.answered = 0
        # length, correlation id, tags, one topic, its name, one partition, its number: then the error
        self._error_at = 4 + 4 + 1 + 1 + 1 + len(topic.encode()) + 1 + 4
        self.latencies: list[float] = []
        self._head = bytearray(frame[:12])
        self._rest = frame[12:]
        self._small = frame if len(frame) < 4096 else None
        self._in_flight = in_flight
        self._sent: deque[float] = deque()
        self._correlation_id = 0
        self._buffer = memoryview(bytearray(1 << 18))
        self._filled = 0
        self._transport: asyncio.Transport | None = None
        self._done: asyncio.Future[None] | None = None
        self._until = 0.0
        self._writable = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's class does not inherit from it
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._buffer[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        position = 0
        now = time.perf_counter()
        while self._filled - position >= 4:
            length = 4 + _INT32.unpack_from(self._buffer, position)[0]
            if self._filled - position < length:
                break
            if self._buffer[position + self._error_at] or self._buffer[position + self._error_at + 1]:
                self._finish(
                    f"answer {self.answered} is an error: {bytes(self._buffer[position : position + length])!r}"
                )
                return
            position += length
            self.answered += 1
            self.latencies.append(now - self._sent.popleft())
        self._buffer[: self._filled - position] = self._buffer[position : self._filled]
        self._filled -= position
        if now < self._until:
            self._fill()
        elif not self._sent:
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(exc or ConnectionError("the broker closed the connection"))

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        if time.perf_counter() < self._until:
            self._fill()

    async def send_for(self, seconds: float) -> None:
        """Send as fast as answers arrive; return after the last answer."""
        self._done = asyncio.get_running_loop().create_future()
        self._until = time.perf_counter() + seconds
        self._fill()
        await self._done

    async def send_at(self, rate: float, seconds: float) -> None:
        """Send at a fixed rate, independent of the answers."""
        self._done = asyncio.get_running_loop().create_future()
        started = time.perf_counter()
        for number in range(int(rate * seconds)):
            pause = started + number / rate - time.perf_counter()
            if pause > 0:
                await asyncio.sleep(pause)
            self._send(1)
        if self._sent:
            await self._done

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _fill(self) -> None:
        missing = self._in_flight - len(self._sent)
        if self._writable and missing > 0:
            self._send(missing)

    def _send(self, count: int) -> None:
        assert self._transport is not None
        now = time.perf_counter()
        pieces: list[bytes] = []
        for _ in range(count):
            self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
            _INT32.pack_into(self._head, _CORRELATION_ID_AT, self._correlation_id)
            self._sent.append(now)
            pieces += (bytes(self._head), self._rest)
        if self._small is not None:
            self._transport.write(b"".join(pieces))
        else:
            self._transport.writelines(pieces)

    def _finish(self, error: str | None = None) -> None:
        if self._done is not None and not self._done.done():
            if error is None:
                self._done.set_result(None)
            else:
                self._done.set_exception(RuntimeError(error))

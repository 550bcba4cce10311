"""Produce: appended within the turn of the loop in which it arrived, answered when its acknowledgement is due.

Records are never copied: they go from the receive buffer to the log. A producer that sends to one partition at a time
gets a `Shortcut`, which recognises its requests by their unchanging bytes and decodes nothing but a length.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from struct import Struct, error
from typing import Protocol

from broker.errors import ErrorCode, ProtocolError
from broker.protocol.api import APIS, Api, ApiKey, encode_response
from broker.protocol.codec import decode
from broker.protocol.decoder import DecodeError, read_uvarint
from broker.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from broker.protocol.schema import Buffer
from broker.replica.partition import Appended
from broker.server.connection import Connection, NotRecognised, Outcome, Rejected, Slot
from broker.server.dispatch import Call, response_frame
from broker.server.handlers.fetch_response import uvarint

ALL, LEADER_ONLY, NOBODY = -1, 1, 0
FIRST_FLEXIBLE = 9
_NO_TAGS = b"\0\0\0"  # of the partition, the topic and the request


class Appending(Protocol):
    """The replicas, as far as producers are concerned."""

    def append(
        self, topic: str, partition: int, records: bytearray | memoryview, acks: int, timeout: float
    ) -> Appended:
        """Append to a partition that this broker leads; `timeout` in seconds. Raises `ProtocolError`: nothing done."""
        ...


class ProduceHandler:
    """Serves Produce requests. `max_batch_bytes` bounds the records for one partition in one request."""

    def __init__(self, replicas: Appending, max_batch_bytes: int) -> None:
        self._replicas = replicas
        self._max_batch_bytes = max_batch_bytes

    def serve(self, call: Call) -> Outcome:
        request, _ = decode(ProduceRequest, call.version, call.frame, call.body)
        answer = _Answer(call)
        for topic in request.topic_data:
            responses = [self._append(data, topic.name, request, answer) for data in topic.partition_data]
            answer.response.responses.append(TopicProduceResponse(name=topic.name, partition_responses=responses))
        self._learn(call, request)
        if request.acks == NOBODY:
            answer.reject_errors()
            return None
        return answer.outcome()

    def append(self, topic: str, partition: int, records: Buffer | None, acks: int, timeout_ms: int) -> Appended:
        """Check what a producer may get wrong, then append. Raises `ProtocolError`."""
        if acks not in (ALL, LEADER_ONLY, NOBODY):
            raise ProtocolError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be -1, 0 or 1, not {acks}")
        if not records:
            raise ProtocolError(ErrorCode.INVALID_RECORD, "there are no records")
        if len(records) > self._max_batch_bytes:
            raise ProtocolError(
                ErrorCode.MESSAGE_TOO_LARGE, f"{len(records)} bytes exceed message.max.bytes={self._max_batch_bytes}"
            )
        assert isinstance(records, memoryview | bytearray)
        return self._replicas.append(topic, partition, records, acks, max(timeout_ms, 0) / 1000)

    def _append(
        self, data: PartitionProduceData, topic: str, request: ProduceRequest, answer: _Answer
    ) -> PartitionProduceResponse:
        response = PartitionProduceResponse(index=data.index, base_offset=-1)
        try:
            appended = self.append(topic, data.index, data.records, request.acks, request.timeout_ms)
        except ProtocolError as refused:
            response.error_code, response.error_message = refused.code, str(refused)
        else:
            response.base_offset, response.log_start_offset = appended.base_offset, appended.log_start_offset
            if appended.done is not None:
                answer.wait_for(appended.done, response)
        return response

    def _learn(self, call: Call, request: ProduceRequest) -> None:
        """Give the connection a shortcut when its next request is likely to differ in records only."""
        if call.version < FIRST_FLEXIBLE or len(request.topic_data) != 1:
            return
        (topic,) = request.topic_data
        if len(topic.partition_data) == 1 and request.acks in (ALL, LEADER_ONLY):
            (data,) = topic.partition_data
            length = uvarint(len(data.records or b"") + 1)
            start = len(call.frame) - len(_NO_TAGS) - len(data.records or b"") - len(length)
            if call.frame[start : start + len(length)] == length and call.frame[-len(_NO_TAGS) :] == _NO_TAGS:
                prefix = bytes(call.frame[:start])
                call.connection.shortcut = Shortcut(self.append, call, prefix, topic.name, data.index, request).serve


def _settle(response: PartitionProduceResponse, code: ErrorCode) -> None:
    """An append whose acknowledgement failed keeps no offset: it may be lost, or committed later."""
    if code is not ErrorCode.NONE:
        response.error_code, response.base_offset = code, -1


class _Answer:
    """A response that becomes complete one partition at a time."""

    def __init__(self, call: Call) -> None:
        self.response = ProduceResponse()
        self._call = call
        self._waiting = 0
        self._slot: Slot | None = None

    def wait_for(self, done: asyncio.Future[ErrorCode], response: PartitionProduceResponse) -> None:
        self._waiting += 1

        def settled(future: asyncio.Future[ErrorCode]) -> None:
            _settle(response, ErrorCode.REQUEST_TIMED_OUT if future.cancelled() else future.result())
            self._waiting -= 1
            if self._waiting == 0 and self._slot is not None:
                self._slot.fill([response_frame(self._call, self.response)])

        done.add_done_callback(settled)

    def outcome(self) -> Outcome:
        if self._waiting == 0:
            return response_frame(self._call, self.response)
        self._slot = self._call.connection.reserve(blocking=False)
        return self._slot

    def reject_errors(self) -> None:
        """Nobody waits for an answer, so a lost connection is the only way to tell of an error, as in Kafka."""
        for topic in self.response.responses:
            for partition in topic.partition_responses:
                if partition.error_code:
                    raise Rejected(f"Produce with acks=0 to {topic.name}-{partition.index}: {partition.error_message}")


class Shortcut:
    """The requests of one connection that are like its last one: same client, topic, partition, acks and timeout."""

    def __init__(
        self,
        append: Callable[[str, int, Buffer | None, int, int], Appended],
        call: Call,
        prefix: bytes,
        topic: str,
        partition: int,
        request: ProduceRequest,
    ) -> None:
        self._append = append
        self._connection: Connection = call.connection
        self._version = call.version
        self._topic, self._partition = topic, partition
        self._acks, self._timeout_ms = request.acks, request.timeout_ms
        # Everything in front of the records but the correlation id, which differs in each request.
        self._unpack = Struct(f">4si{len(prefix) - 8}s").unpack_from
        self._key, self._rest = prefix[:4], prefix[8:]
        self._records_at = len(prefix)
        name = topic.encode()
        head = b"\2" + uvarint(len(name) + 1) + name + b"\2" + partition.to_bytes(4, "big", signed=True)
        # no record errors, no message, no tags of the partition, none of the topic; throttle time, no tags
        tail = b"\1\0\0\0" + bytes(4) + b"\0"
        layout = Struct(f">iiB{len(head)}shqqq{len(tail)}s")
        self._pack = layout.pack
        self._frame_length = layout.size - 4
        self._head, self._tail = head, tail

    def serve(self, frame: memoryview) -> Outcome | NotRecognised:
        """Answer a request that differs in correlation id and records only."""
        try:
            key, correlation_id, rest = self._unpack(frame)
            if rest != self._rest or key != self._key:
                return NotRecognised.NOT_RECOGNISED
            length, start = read_uvarint(frame, self._records_at)
        except (error, IndexError, DecodeError):
            return NotRecognised.NOT_RECOGNISED
        end = start + length - 1
        if length < 1 or end + 3 != len(frame) or frame[end:] != _NO_TAGS:
            return NotRecognised.NOT_RECOGNISED
        try:
            appended = self._append(self._topic, self._partition, frame[start:end], self._acks, self._timeout_ms)
        except ProtocolError as refused:
            return self._refused(correlation_id, refused.code, str(refused))
        answer: bytes = self._pack(
            self._frame_length, correlation_id, 0, self._head, 0, appended.base_offset, -1, appended.log_start_offset,
            self._tail,
        )  # fmt: skip
        if appended.done is None:
            return answer
        slot = Slot(self._connection, blocking=False)

        def settled(future: asyncio.Future[ErrorCode]) -> None:
            code = ErrorCode.REQUEST_TIMED_OUT if future.cancelled() else future.result()
            slot.fill([answer if code is ErrorCode.NONE else self._refused(correlation_id, code, None)])

        appended.done.add_done_callback(settled)
        return slot

    def _refused(self, correlation_id: int, code: ErrorCode, message: str | None) -> bytes:
        partition = PartitionProduceResponse(
            index=self._partition, error_code=code, base_offset=-1, error_message=message
        )
        response = ProduceResponse(responses=[TopicProduceResponse(name=self._topic, partition_responses=[partition])])
        return bytes(encode_response(_PRODUCE, response, self._version, correlation_id))


_PRODUCE: Api = APIS[ApiKey.PRODUCE]

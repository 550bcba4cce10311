"""The fast way for a producer that sends many small requests for one partition: recognise, gather, append together.

Such requests differ in their correlation id and their records only. They are recognised by the bytes that stay the
same; all that one read of the socket has brought are appended as one, and answered as one.
"""

from __future__ import annotations

import asyncio
from struct import Struct, error
from typing import NamedTuple, Protocol

from broker.errors import ErrorCode, ProtocolError
from broker.protocol.api import APIS, ApiKey, encode_response
from broker.protocol.decoder import DecodeError, read_uvarint
from broker.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from broker.protocol.records import BATCH_HEADER_SIZE, COMPRESSION_MASK, MAGIC
from broker.replica.partition import PendingAppend
from broker.server.connection import Outcome, Slot
from broker.server.dispatch import Call
from broker.server.frames import LENGTH_SIZE
from broker.server.handlers.fetch_response import uvarint

NO_TAGS = b"\0\0\0"  # of the partition, the topic and the request
LARGEST = 1 << 13  # bytes of records; larger ones are not worth being copied together, and are appended alone
MOST_BYTES = 1 << 18  # of records that are appended together
COMPRESSED = 16  # so many times its size counts what is compressed: it is opened within one turn of the loop

_PRODUCE = APIS[ApiKey.PRODUCE]
_BATCH_FIELDS = "8xi4xb4xh34xi"
"""Of a batch's header: its length behind the field, its format, its attributes, its number of records."""
_BATCH = Struct(f">{_BATCH_FIELDS}")
_LENGTH_BEHIND = 12


class Appending(Protocol):
    """The replicas, as far as producers are concerned."""

    def append(
        self, topic: str, partition: int, records: bytearray | memoryview, acks: int, timeout: float
    ) -> PendingAppend:
        """Append to a partition that this broker leads; `timeout` in seconds. Raises `ProtocolError`: nothing done."""
        ...


_Gathered = tuple[int, memoryview, int]
"""One request that waits to be appended: its correlation id, its records, their number."""


class _Alike(NamedTuple):
    """Frames of one length: where what lies, and what those have in common that are like one that was checked."""

    size: int
    """Of a frame, with the length in front of it."""
    start: int
    """Where in it the records begin,"""
    end: int
    """and end."""
    weight: int
    layout: Struct
    """Length and API; correlation id; what is in front of the records; of a batch its length, format, attributes and
    number of records; the tags."""
    common: tuple[bytes, bytes, int, int, int, bytes]
    """All of these but the correlation id and the number of records."""


class ProduceShortcut:
    """The requests of one connection that are like its last one: same client, topic, partition, acks and timeout."""

    def __init__(
        self,
        replicas: Appending,
        max_batch_bytes: int,
        call: Call,
        prefix: bytes,
        topic: str,
        partition: int,
        request: ProduceRequest,
    ) -> None:
        """`prefix` is everything in front of the length of the records in the request of `call`."""
        self._replicas = replicas
        self._largest = max_batch_bytes
        self._connection = call.connection
        self._version = call.version
        self._topic, self._partition = topic, partition
        self._acks, self._timeout = request.acks, max(request.timeout_ms, 0) / 1000
        self._gathered: list[_Gathered] = []
        self._bytes = 0
        self._length = 0  # of the last frame that was checked field by field
        self._alike: _Alike | None = None
        # Everything in front of the records but the correlation id, which differs in each request.
        self._unpack = Struct(f">4si{len(prefix) - 8}s").unpack_from
        self._key, self._rest = prefix[:4], prefix[8:]
        self._records_at = len(prefix)
        name = topic.encode()
        self._head = b"\2" + uvarint(len(name) + 1) + name + b"\2" + partition.to_bytes(4, "big", signed=True)
        # No record errors, no message, no tags of the partition, none of the topic; throttle time, no tags.
        self._tail = b"\1\0\0\0" + bytes(4) + b"\0"
        layout = Struct(f">iiB{len(self._head)}shqqq{len(self._tail)}s")
        self._pack = layout.pack
        self._frame_length = layout.size - 4

    def take(self, frame: memoryview) -> bool:
        """Gather a request that differs from the known one in correlation id and records only."""
        try:
            key, correlation_id, rest = self._unpack(frame)
            if rest != self._rest or key != self._key:
                return False
            length, start = read_uvarint(frame, self._records_at)
            batch_length, magic, attributes, count = _BATCH.unpack_from(frame, start)
        except (error, IndexError, DecodeError):
            return False
        end = start + length - 1
        size = end - start
        if frame[end:] != NO_TAGS:
            return False
        # One whole batch, so that its count is that of the request.
        whole = magic == MAGIC and batch_length + _LENGTH_BEHIND == size
        if not whole or not BATCH_HEADER_SIZE <= size <= self._largest:
            return False
        weight = size * COMPRESSED if attributes & COMPRESSION_MASK else size
        if size > LARGEST:
            weight = MOST_BYTES
        if self._gathered and self._bytes + weight > MOST_BYTES:
            return False
        self._bytes += weight
        self._gathered.append((correlation_id, frame[start:end], count))
        if len(frame) != self._length:  # once is no habit
            self._length, self._alike = len(frame), None
        elif self._alike is None:
            layout = Struct(f">8si{start - 8}s{_BATCH_FIELDS}{size - BATCH_HEADER_SIZE}x{len(NO_TAGS)}s")
            front = len(frame).to_bytes(LENGTH_SIZE, "big") + key
            common = (front, bytes(frame[8:start]), batch_length, magic, attributes, NO_TAGS)
            self._alike = _Alike(layout.size, LENGTH_SIZE + start, LENGTH_SIZE + end, weight, layout, common)
        return True

    def take_alike(self, unread: memoryview) -> int:
        """Gather those requests at the front that have the same bytes as the last one that was taken, wherever these
        say what it is: they need not be checked field by field."""
        alike = self._alike
        if alike is None:
            return 0
        size, start, end, weight, layout, common = alike
        most = min(len(unread) // size, (MOST_BYTES - self._bytes) // weight)
        if most < 1:
            return 0
        gathered, at = self._gathered, 0
        for front, correlation_id, head, length, magic, attributes, count, tags in layout.iter_unpack(
            unread[: most * size]
        ):
            if (front, head, length, magic, attributes, tags) != common:
                break
            gathered.append((correlation_id, unread[at + start : at + end], count))
            at += size
        self._bytes += at // size * weight
        return at

    def finish(self) -> Outcome:
        """Append what was gathered; if that is refused, append each alone, so that only the faulty ones are refused."""
        gathered, self._gathered, self._bytes = self._gathered, [], 0
        if len(gathered) == 1:
            return self._append_alone(gathered[0])
        records = bytearray().join([records for _, records, _ in gathered])
        try:
            appended = self._replicas.append(self._topic, self._partition, records, self._acks, self._timeout)
        except ProtocolError:
            return self._append_each(gathered)
        return self._answer(gathered, appended)

    def _append_alone(self, it: _Gathered) -> Outcome:
        correlation_id, records, _ = it
        try:
            appended = self._replicas.append(self._topic, self._partition, records, self._acks, self._timeout)
        except ProtocolError as refused:
            return self._refused(correlation_id, refused.code, str(refused))
        return self._answer([it], appended)

    def _append_each(self, gathered: list[_Gathered]) -> Outcome:
        """One slot for all: their answers are sent when the last one is known."""
        slot = Slot(self._connection, blocking=False)
        answers: list[bytes] = [b""] * len(gathered)
        missing = len(gathered)

        def known(index: int, answer: bytes) -> None:
            nonlocal missing
            answers[index] = answer
            missing -= 1
            if not missing:
                slot.fill([b"".join(answers)])

        for index, it in enumerate(gathered):
            correlation_id, records, _ = it
            try:
                appended = self._replicas.append(self._topic, self._partition, records, self._acks, self._timeout)
            except ProtocolError as refused:
                known(index, self._refused(correlation_id, refused.code, str(refused)))
                continue
            if appended.done is None:
                known(index, self._accepted([it], appended))
                continue

            def settled(
                future: asyncio.Future[ErrorCode],
                index: int = index,
                it: _Gathered = it,
                appended: PendingAppend = appended,
            ) -> None:
                known(index, self._acknowledged(future, [it], appended))

            appended.done.add_done_callback(settled)
        return slot

    def _answer(self, gathered: list[_Gathered], appended: PendingAppend) -> Outcome:
        if appended.done is None:
            return self._accepted(gathered, appended)
        slot = Slot(self._connection, blocking=False)
        appended.done.add_done_callback(lambda future: slot.fill([self._acknowledged(future, gathered, appended)]))
        return slot

    def _acknowledged(
        self, future: asyncio.Future[ErrorCode], gathered: list[_Gathered], appended: PendingAppend
    ) -> bytes:
        code = ErrorCode.REQUEST_TIMED_OUT if future.cancelled() else future.result()
        if code is ErrorCode.NONE:
            return self._accepted(gathered, appended)
        return b"".join([self._refused(correlation_id, code, None) for correlation_id, _, _ in gathered])

    def _accepted(self, gathered: list[_Gathered], appended: PendingAppend) -> bytes:
        """The answers to requests that were appended one behind the other."""
        pack, length, head, tail = self._pack, self._frame_length, self._head, self._tail
        offset, log_start_offset = appended.base_offset, appended.log_start_offset
        answers = []
        for correlation_id, _, records_count in gathered:
            answers.append(pack(length, correlation_id, 0, head, 0, offset, -1, log_start_offset, tail))
            offset += records_count
        return b"".join(answers)

    def _refused(self, correlation_id: int, code: ErrorCode, message: str | None) -> bytes:
        partition = PartitionProduceResponse(
            index=self._partition, error_code=code, base_offset=-1, error_message=message
        )
        topic = TopicProduceResponse(name=self._topic, partition_responses=[partition])
        return bytes(encode_response(_PRODUCE, ProduceResponse(responses=[topic]), self._version, correlation_id))

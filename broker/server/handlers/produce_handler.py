"""Produce: appended within the turn of the loop in which it arrived, answered when its acknowledgement is due.

Records go from the receive buffer to the log, which validates them; here they are only required to be one batch. A
producer that sends to one partition at a time gets a `ProduceShortcut` for its next requests. Records whose validation
exceeds a turn are handled in later turns, and the connection's next request waits for them.

The produce fast path: recognises, gathers and appends together the many small requests of one producer.

Theory of operation. A producer that sends one record per request to one partition sends frames that differ only in the
correlation id and in the records. Decoding each costs more than appending it, so the connection skips the decoder:

1. `ProduceHandler` decodes and serves a request for one partition in full, and `learn` leaves a `ProduceShortcut` on
   the connection. It keeps the bytes in front of the records: API, version, client id, acks, timeout, topic, partition.
2. `Connection` calls `gather` before it gives a request to the dispatcher. `gather` takes frames from the receive
   buffer until one differs, is incomplete or exceeds the bound.
3. `take` compares a frame with the known bytes and checks its structure: one whole batch of acceptable size. A frame
   that differs goes back to the buffer, and the dispatcher serves it in the ordinary way.
4. Two consecutive frames of one length give a layout (`_Layout`). `take_equal` compares all further whole frames of
   that length with one `iter_unpack`, without looking at each field.
5. `finish` appends the gathered records with one call and packs one answer per request. If the append is refused, each
   request is appended alone, so that only the faulty ones are refused.

Invariants: requests are appended in the order of their arrival, and answered in that order. Gathered memory is used
before the connection reads again. What is appended together is bounded by `MOST_BYTES`, because it is validated within
one turn of the loop. The shortcut does not check permissions: it exists only after a request that was permitted in
full, and a change of the ACLs removes it from every connection (`Listener.forget_shortcuts`).
"""

import asyncio
from collections.abc import Callable
from struct import Struct, error
from typing import NamedTuple, Protocol, cast

from broker.errors import ErrorCode, ProtocolError
from broker.log.validation import bytes_examined, require_one_batch
from broker.ports import Buffer
from broker.protocol.api import APIS, ApiKey, encode_response
from broker.protocol.decoder import DecodeError, read_uvarint
from broker.protocol.messages.producer_apis import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from broker.protocol.records import BATCH_HEADER_SIZE, COMPRESSION_MASK, MAGIC
from broker.replica.partition import ALL, PendingAppend
from broker.server.connection import Outcome, Rejected, Slot
from broker.server.dispatch import Call, Dispatcher
from broker.server.frames import LENGTH_SIZE, FrameBuffer
from broker.server.handlers.fetch_response import uvarint
from broker.server.handlers.internal_topics import INTERNAL, check_writer
from broker.server.reply import Reply
from broker.server.work_budget import ENTRIES_PER_TURN, EXAMINED_PER_ENTRY, Turns, Work

LEADER_ONLY = 1  # acks
FIRST_FLEXIBLE = 9  # the first version with tagged fields
NO_TAGS = b"\0\0\0"  # the empty tagged fields of partition, topic and request
LARGEST = 1 << 13  # bytes of records; larger requests are not worth the copy and are appended alone
MOST_BYTES = 1 << 18  # bytes of records that are appended together
COMPRESSED = 16  # factor for the size of compressed records: they are decompressed within one turn of the loop

_PRODUCE = APIS[ApiKey.PRODUCE]
_BATCH = Struct(">8xi4xb4xh34xi")
"""Fields of a batch header: its length (of what follows the field), format, attributes, number of records."""
_BATCH_START = 17
"""Bytes of a batch header in front of the CRC: they are equal in all batches of a producer that have one length."""
_LENGTH_BEHIND = 12


class Appending(Protocol):
    """The part of the replica manager that appends."""

    def append(
        self, topic: str, partition: int, records: bytearray | memoryview, acks: int, timeout: float
    ) -> PendingAppend:
        """Append to a partition that this broker leads; `timeout` in s. Raises `ProtocolError`; nothing is appended."""
        ...


_Gathered = tuple[int, memoryview, int]
"""One request that waits to be appended: its correlation id, records and number of records."""


class _Layout(NamedTuple):
    """The layout of frames of one length, and the bytes that they share with a frame that was checked in full."""

    size: int
    """Of a frame, its length field included."""
    start: int
    """Offset of the first byte of the records,"""
    end: int
    """and of the byte after the last."""
    weight: int
    fields: Struct
    """Length and API; correlation id; bytes up to the CRC of the batch, its length and format included; attributes and
    number of records of the batch; tags."""
    common: tuple[bytes, bytes, int, bytes]
    """The values of all these fields, without the correlation id and the number of records."""


def learn(call: Call, request: ProduceRequest, replicas: Appending, max_batch_bytes: int) -> None:
    """Give the connection of `call` a shortcut if its next request is likely to differ only in its records."""
    if call.version < FIRST_FLEXIBLE or request.acks not in (ALL, LEADER_ONLY) or not call.is_whole:
        return
    if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
        return
    name, (data,) = request.topic_data[0].name, request.topic_data[0].partition_data
    if name in INTERNAL:
        return
    frame, size = call.frame, len(data.records or b"")
    length = uvarint(size + 1)
    start = len(frame) - len(NO_TAGS) - size - len(length)
    if frame[start : start + len(length)] == length and frame[-len(NO_TAGS) :] == NO_TAGS:
        prefix = bytes(frame[:start])
        call.connection.shortcut = ProduceShortcut(replicas, max_batch_bytes, call, prefix, name, data.index, request)


class ProduceShortcut:
    """Serves requests that equal the last one of their connection in client, topic, partition, acks and timeout."""

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
        """`prefix`: all bytes of the request of `call` in front of the length of its records."""
        self._replicas = replicas
        self._largest = max_batch_bytes
        self._connection = call.connection
        self._version = call.version
        self._topic, self._partition = topic, partition
        self._acks, self._timeout = request.acks, max(request.timeout_ms, 0) / 1000
        self._gathered: list[_Gathered] = []
        self._bytes = 0
        self._length = 0  # of the last frame that was checked field by field
        self._layout: _Layout | None = None
        # All bytes in front of the records except the correlation id, which differs in each request.
        self._unpack = Struct(f">4si{len(prefix) - 8}s").unpack_from
        self._key, self._rest = prefix[:4], prefix[8:]
        self._records_at = len(prefix)
        name = topic.encode()
        self._head = b"\2" + uvarint(len(name) + 1) + name + b"\2" + partition.to_bytes(4, "big", signed=True)
        # No record errors, no message, no tags of partition and topic; throttle time 0, no tags.
        self._tail = b"\1\0\0\0" + bytes(4) + b"\0"
        layout = Struct(f">iiB{len(self._head)}shqqq{len(self._tail)}s")
        self._pack = layout.pack
        self._frame_length = layout.size - 4

    def gather(self, received: FrameBuffer) -> bool:
        """See `connection.Shortcut`."""
        while True:
            received.skip(self.take_equal(received.unread))
            if self._bytes >= MOST_BYTES or (frame := received.next_frame()) is None:
                break
            if not self.take(frame):
                received.put_back(frame)
                break
        return bool(self._gathered)

    def take(self, frame: memoryview) -> bool:
        """Gather a request that differs from the known one only in its correlation id and records."""
        try:
            key, correlation_id, remainder = self._unpack(frame)
            if remainder != self._rest or key != self._key:
                return False
            length, start = read_uvarint(frame, self._records_at)
            batch_length, magic, attributes, count = _BATCH.unpack_from(frame, start)
        except (error, IndexError, DecodeError):
            return False
        end = start + length - 1
        size = end - start
        if frame[end:] != NO_TAGS:
            return False
        # One whole batch: its number of records is that of the request.
        is_whole = magic == MAGIC and batch_length + _LENGTH_BEHIND == size
        if not is_whole or not BATCH_HEADER_SIZE <= size <= self._largest:
            return False
        weight = size * COMPRESSED if attributes & COMPRESSION_MASK else size
        if size > LARGEST:
            weight = MOST_BYTES
        if self._gathered and self._bytes + weight > MOST_BYTES:
            return False
        self._bytes += weight
        self._gathered.append((correlation_id, frame[start:end], count))
        if len(frame) != self._length:  # a layout pays off only for a length that repeats
            self._length, self._layout = len(frame), None
        elif self._layout is None:
            crc = start + _BATCH_START
            fields = Struct(f">8si{crc - 8}s4xh34xi{size - BATCH_HEADER_SIZE}x{len(NO_TAGS)}s")
            front = len(frame).to_bytes(LENGTH_SIZE, "big") + key
            common = (front, bytes(frame[8:crc]), attributes, NO_TAGS)
            self._layout = _Layout(fields.size, LENGTH_SIZE + start, LENGTH_SIZE + end, weight, fields, common)
        return True

    def take_equal(self, unread: memoryview) -> int:
        """Gather the requests at the front whose bytes, apart from correlation id and records, equal those of the last
        one taken: their fields need no separate check. Returns the size of their frames in bytes."""
        layout = self._layout
        if layout is None:
            return 0
        size, start, end, weight, fields, common = layout
        requests_limit = min(len(unread) // size, (MOST_BYTES - self._bytes) // weight)
        if requests_limit < 1:
            return 0
        gathered, at = self._gathered, 0
        for front, correlation_id, head, attributes, count, tags in fields.iter_unpack(unread[: requests_limit * size]):
            if (front, head, attributes, tags) != common:
                break
            gathered.append((correlation_id, unread[at + start : at + end], count))
            at += size
        self._bytes += at // size * weight
        return at

    def finish(self) -> Outcome:
        """Append the gathered requests together. If that is refused, append each alone: faulty ones spoil no others."""
        gathered, self._gathered, self._bytes = self._gathered, [], 0
        correlation_id, records, _ = gathered[0]
        is_single = len(gathered) == 1
        together = records if is_single else bytearray().join([records for _, records, _ in gathered])
        try:
            appended = self._replicas.append(self._topic, self._partition, together, self._acks, self._timeout)
        except ProtocolError as refused:
            if is_single:
                return self._refused(correlation_id, refused.code, str(refused))
            return self._append_each(gathered)
        if appended.done is None:
            return self._accepted(gathered, appended)
        slot = Slot(self._connection, blocking=False)
        appended.done.add_done_callback(lambda future: slot.fill([self._acknowledged(future, gathered, appended)]))
        return slot

    def _append_each(self, gathered: list[_Gathered]) -> Outcome:
        """Append each request alone, with one slot for all: their answers are sent when the last one is available."""
        slot = Slot(self._connection, blocking=False)
        answers: list[bytes] = [b""] * len(gathered)
        missing = len(gathered)

        def known(index: int, answer: bytes) -> None:
            nonlocal missing
            answers[index] = answer
            missing -= 1
            if not missing:
                slot.fill([b"".join(answers)])

        for index, request in enumerate(gathered):
            correlation_id, records, _ = request
            try:
                appended = self._replicas.append(self._topic, self._partition, records, self._acks, self._timeout)
            except ProtocolError as refused:
                known(index, self._refused(correlation_id, refused.code, str(refused)))
                continue
            if appended.done is None:
                known(index, self._accepted([request], appended))
                continue

            def settled(
                future: asyncio.Future[ErrorCode],
                index: int = index,
                request: _Gathered = request,
                appended: PendingAppend = appended,
            ) -> None:
                known(index, self._acknowledged(future, [request], appended))

            appended.done.add_done_callback(settled)
        return slot

    def _acknowledged(
        self, future: asyncio.Future[ErrorCode], gathered: list[_Gathered], appended: PendingAppend
    ) -> bytes:
        code = ErrorCode.REQUEST_TIMED_OUT if future.cancelled() else future.result()
        if code is ErrorCode.NONE:
            return self._accepted(gathered, appended)
        return b"".join([self._refused(correlation_id, code, None) for correlation_id, _, _ in gathered])

    def _accepted(self, gathered: list[_Gathered], appended: PendingAppend) -> bytes:
        """The answers to requests that were appended consecutively."""
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


NO_ACKS = 0


class _Charged:
    """The replicas; the records that they validate are charged to the turn."""

    def __init__(self, replicas: Appending, turns: Turns) -> None:
        self._replicas = replicas
        self._turns = turns
        self.spent = 0  # entries, of all requests

    def append(
        self, topic: str, partition: int, records: bytearray | memoryview, acks: int, timeout: float
    ) -> PendingAppend:
        """See `Appending`."""
        earlier_entries = bytes_examined() // EXAMINED_PER_ENTRY
        try:
            return self._replicas.append(topic, partition, records, acks, timeout)
        finally:
            if entries := bytes_examined() // EXAMINED_PER_ENTRY - earlier_entries:
                self._turns.spend(entries)
                self.spent += entries


class ProduceHandler:
    """Serves Produce requests. `max_batch_bytes` bounds the records for one partition in one request.
    `between_brokers`: brokers reach this one over this listener, too."""

    def __init__(
        self, replicas: Appending, max_batch_bytes: int, dispatcher: Dispatcher, *, between_brokers: bool = True
    ) -> None:
        self._between_brokers = between_brokers
        self._dispatcher = dispatcher
        self._turns = dispatcher.turns
        self._replicas = _Charged(replicas, dispatcher.turns)
        self._max_batch_bytes = max_batch_bytes

    def serve(self, call: Call) -> Outcome:
        request = cast(ProduceRequest, call.request(self._turns))
        answer = _Answer(call, request.acks)
        work = self._appended(request, answer)
        earlier_entries = self._replicas.spent
        for _ in work:
            # Below a whole turn's work it is not interrupted: each connection starts a request in each turn.
            if self._turns.is_over and self._replicas.spent - earlier_entries >= ENTRIES_PER_TURN:
                give_back = call.connection.keep_frame()
                return self._dispatcher.later(call, self._finish(work, answer, give_back), blocking=True)
        learn(call, request, self._replicas, self._max_batch_bytes)
        if request.acks == NO_ACKS:
            answer.reject_errors()
            return None
        return answer.outcome()

    async def _finish(self, work: Work["_Answer"], answer: "_Answer", give_back: Callable[[], None]) -> Reply:
        try:
            await self._turns.finish(work)
        finally:
            give_back()
        return await answer.whole()

    def _appended(self, request: ProduceRequest, answer: "_Answer") -> Work["_Answer"]:
        """Append to one partition after the other; returns `answer`."""
        partitions: set[tuple[str, int]] = set()
        for topic in request.topic_data:
            topic_response = TopicProduceResponse(name=topic.name)
            answer.response.responses.append(topic_response)
            for data in topic.partition_data:
                is_repeated = (topic.name, data.index) in partitions
                partitions.add((topic.name, data.index))
                topic_response.partition_responses.append(
                    _repeated(data) if is_repeated else self._append(data, topic.name, request, answer)
                )
                yield
        return answer

    def _checked_append(
        self, topic: str, partition: int, records: Buffer | None, acks: int, timeout_ms: int, client_id: str | None
    ) -> PendingAppend:
        """Check for errors of the producer, then append. Raises `ProtocolError`."""
        if acks not in (ALL, LEADER_ONLY, NO_ACKS):
            raise ProtocolError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be -1, 0 or 1, not {acks}")
        check_writer(topic, client_id, between_brokers=self._between_brokers)
        if not records:
            raise ProtocolError(ErrorCode.INVALID_RECORD, "the partition data contain no records")
        if len(records) > self._max_batch_bytes:
            raise ProtocolError(
                ErrorCode.MESSAGE_TOO_LARGE, f"{len(records)} bytes exceed message.max.bytes={self._max_batch_bytes}"
            )
        assert isinstance(records, memoryview | bytearray)
        require_one_batch(records)
        return self._replicas.append(topic, partition, records, acks, max(timeout_ms, 0) / 1000)

    def _append(
        self, data: PartitionProduceData, topic: str, request: ProduceRequest, answer: "_Answer"
    ) -> PartitionProduceResponse:
        response = PartitionProduceResponse(index=data.index, base_offset=-1)
        try:
            appended = self._checked_append(
                topic, data.index, data.records, request.acks, request.timeout_ms, answer.client_id
            )
        except ProtocolError as refused:
            response.error_code, response.error_message = refused.code, str(refused)
        else:
            response.base_offset, response.log_start_offset = appended.base_offset, appended.log_start_offset
            if appended.done is not None:
                answer.wait_for(appended.done, response)
        return response


def _settle(response: PartitionProduceResponse, code: ErrorCode) -> None:
    """An append whose acknowledgement failed gets no offset: it may be lost, or committed later."""
    if code is not ErrorCode.NONE:
        response.error_code, response.base_offset = code, -1


def _repeated(data: PartitionProduceData) -> PartitionProduceResponse:
    """Clients send one batch per partition and request: the order of two in one request is undefined."""
    reason = "the partition is named twice"
    return PartitionProduceResponse(
        index=data.index, base_offset=-1, error_code=ErrorCode.INVALID_REQUEST, error_message=reason
    )


class _Answer:
    """A response that is completed one partition at a time."""

    def __init__(self, call: Call, acks: int) -> None:
        self.response = ProduceResponse()
        self.client_id = call.client_id
        self._call = call
        self._acks = acks
        self._due: list[asyncio.Future[ErrorCode]] = []
        self._waiting = 0
        self._slot: Slot | None = None

    def wait_for(self, done: asyncio.Future[ErrorCode], response: PartitionProduceResponse) -> None:
        self._waiting += 1
        self._due.append(done)

        def settled(future: asyncio.Future[ErrorCode]) -> None:
            _settle(response, ErrorCode.REQUEST_TIMED_OUT if future.cancelled() else future.result())
            self._waiting -= 1
            if self._waiting == 0 and self._slot is not None:
                self._slot.fill([self._call.respond(self.response)])

        done.add_done_callback(settled)

    def outcome(self) -> Outcome:
        if self._waiting == 0:
            return self._call.respond(self.response)
        self._slot = self._call.connection.reserve(blocking=False)
        return self._slot

    async def whole(self) -> Reply:
        """The response once it is complete; empty for acks=0."""
        if self._acks == NO_ACKS:
            try:
                self.reject_errors()
            except Rejected as error:
                self._call.connection.reject(str(error))
            return []
        if self._due:
            await asyncio.wait(self._due)
        return [self._call.respond(self.response)]

    def reject_errors(self) -> None:
        """Without a response (acks=0) an error can only be reported by closing the connection, as in Kafka."""
        for topic in self.response.responses:
            for partition in topic.partition_responses:
                if partition.error_code:
                    raise Rejected(f"Produce with acks=0 to {topic.name}-{partition.index}: {partition.error_message}")

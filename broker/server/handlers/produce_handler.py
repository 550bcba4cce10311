"""Produce: appended within the turn of the loop in which it arrived, answered when its acknowledgement is due.

Records go from the receive buffer to the log, which validates them; here they are only required to be one batch. A
producer that sends to one partition at a time gets a `ProduceShortcut` for its next requests. Records whose validation
exceeds a turn are handled in later turns, and the connection's next request waits for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from broker.errors import ErrorCode, ProtocolError
from broker.log.validation import bytes_examined, require_one_batch
from broker.ports import Buffer
from broker.protocol.messages.producer_apis import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from broker.replica.partition import ALL, PendingAppend
from broker.server.connection import Outcome, Rejected, Slot
from broker.server.dispatch import Call, Dispatcher
from broker.server.handlers.internal_topics import check_writer
from broker.server.handlers.produce_fast_path import LEADER_ONLY, Appending, learn
from broker.server.reply import Reply
from broker.server.work_budget import ENTRIES_PER_TURN, EXAMINED_PER_ENTRY, Turns, Work

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
        before = bytes_examined() // EXAMINED_PER_ENTRY
        try:
            return self._replicas.append(topic, partition, records, acks, timeout)
        finally:
            if entries := bytes_examined() // EXAMINED_PER_ENTRY - before:
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
        before = self._replicas.spent
        for _ in work:
            # Below a whole turn's work it is not interrupted: each connection starts a request in each turn.
            if self._turns.is_over and self._replicas.spent - before >= ENTRIES_PER_TURN:
                give_back = call.connection.keep_frame()
                return self._dispatcher.later(call, self._finish(work, answer, give_back), blocking=True)
        learn(call, request, self._replicas, self._max_batch_bytes)
        if request.acks == NO_ACKS:
            answer.reject_errors()
            return None
        return answer.outcome()

    async def _finish(self, work: Work[_Answer], answer: _Answer, give_back: Callable[[], None]) -> Reply:
        try:
            await self._turns.finish(work)
        finally:
            give_back()
        return await answer.whole()

    def _appended(self, request: ProduceRequest, answer: _Answer) -> Work[_Answer]:
        """Append to one partition after the other; returns `answer`."""
        seen: set[tuple[str, int]] = set()
        for topic in request.topic_data:
            its = TopicProduceResponse(name=topic.name)
            answer.response.responses.append(its)
            for data in topic.partition_data:
                again = (topic.name, data.index) in seen
                seen.add((topic.name, data.index))
                its.partition_responses.append(
                    _repeated(data) if again else self._append(data, topic.name, request, answer)
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
        self, data: PartitionProduceData, topic: str, request: ProduceRequest, answer: _Answer
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

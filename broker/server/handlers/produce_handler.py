"""Produce: appended within the turn of the loop in which it arrived, answered when its acknowledgement is due.

Records go from the receive buffer to the log, which looks into them; here they are only found to be one batch. A
producer that sends to one partition at a time gets a `ProduceShortcut` for its next requests.
"""

from __future__ import annotations

import asyncio
from typing import cast

from broker.coordinator.offsets_topic import OFFSETS_TOPIC
from broker.errors import ErrorCode, ProtocolError
from broker.log.validation import require_one_batch
from broker.ports import Buffer
from broker.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from broker.replica.partition import Appended
from broker.server.connection import Outcome, Rejected, Slot
from broker.server.dispatch import Call
from broker.server.handlers.fetch_response import uvarint
from broker.server.handlers.produce_shortcut import NO_TAGS, Appending, ProduceShortcut
from broker.server.turns import Turns

ALL, LEADER_ONLY, NOBODY = -1, 1, 0
FIRST_FLEXIBLE = 9


class ProduceHandler:
    """Serves Produce requests. `max_batch_bytes` bounds the records for one partition in one request."""

    def __init__(self, replicas: Appending, max_batch_bytes: int, turns: Turns) -> None:
        self._replicas = replicas
        self._turns = turns
        self._max_batch_bytes = max_batch_bytes

    def serve(self, call: Call) -> Outcome:
        request = cast(ProduceRequest, call.request(self._turns))
        answer = _Answer(call)
        for topic in request.topic_data:
            responses = [self._append(data, topic.name, request, answer) for data in topic.partition_data]
            answer.response.responses.append(TopicProduceResponse(name=topic.name, partition_responses=responses))
        self._learn(call, request)
        if request.acks == NOBODY:
            answer.reject_errors()
            return None
        return answer.outcome()

    def _checked_append(
        self, topic: str, partition: int, records: Buffer | None, acks: int, timeout_ms: int
    ) -> Appended:
        """Check what a producer may get wrong, then append. Raises `ProtocolError`."""
        if acks not in (ALL, LEADER_ONLY, NOBODY):
            raise ProtocolError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be -1, 0 or 1, not {acks}")
        if topic == OFFSETS_TOPIC:
            raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is written by coordinators alone")
        if not records:
            raise ProtocolError(ErrorCode.INVALID_RECORD, "there are no records")
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
            appended = self._checked_append(topic, data.index, data.records, request.acks, request.timeout_ms)
        except ProtocolError as refused:
            response.error_code, response.error_message = refused.code, str(refused)
        else:
            response.base_offset, response.log_start_offset = appended.base_offset, appended.log_start_offset
            if appended.done is not None:
                answer.wait_for(appended.done, response)
        return response

    def _learn(self, call: Call, request: ProduceRequest) -> None:
        """Give the connection a shortcut when its next request is likely to differ in records only."""
        if call.version < FIRST_FLEXIBLE or len(request.topic_data) != 1 or not call.is_whole:
            return
        (topic,) = request.topic_data
        if topic.name == OFFSETS_TOPIC:
            return
        if len(topic.partition_data) == 1 and request.acks in (ALL, LEADER_ONLY):
            (data,) = topic.partition_data
            length = uvarint(len(data.records or b"") + 1)
            start = len(call.frame) - len(NO_TAGS) - len(data.records or b"") - len(length)
            if call.frame[start : start + len(length)] == length and call.frame[-len(NO_TAGS) :] == NO_TAGS:
                prefix = bytes(call.frame[:start])
                call.connection.shortcut = ProduceShortcut(
                    self._replicas, self._max_batch_bytes, call, prefix, topic.name, data.index, request
                )


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
                self._slot.fill([self._call.respond(self.response)])

        done.add_done_callback(settled)

    def outcome(self) -> Outcome:
        if self._waiting == 0:
            return self._call.respond(self.response)
        self._slot = self._call.connection.reserve(blocking=False)
        return self._slot

    def reject_errors(self) -> None:
        """Nobody waits for an answer, so a lost connection is the only way to tell of an error, as in Kafka."""
        for topic in self.response.responses:
            for partition in topic.partition_responses:
                if partition.error_code:
                    raise Rejected(f"Produce with acks=0 to {topic.name}-{partition.index}: {partition.error_message}")

"""How clients in virtual time send appends: each once, or as an idempotent producer until the outcome is known.

Theory of operation. For each partition an idempotent producer has one *lane*. Records wait in the lane until a batch
takes them. A batch gets its sequence when it takes its records, and keeps it. At most `IN_FLIGHT` batches of a lane are
in flight: sent, or refused and to be sent again, and without an outcome. The lane sends batches in the order of their
sequences: a batch that was refused waits for `RETRY_S`, and no later batch is sent before it. So requests of a
partition overlap, as those of librdkafka and of the Java client do, and a broker can accept the second of two after it
refused the first.

A broker answers OUT_OF_ORDER_SEQUENCE_NUMBER to a batch that came before its predecessor. The batch is sent again if an
earlier batch was in flight when it was sent. A batch that was the earliest when it was sent has no predecessor to wait
for: the broker has accepted something else in its place, and the producer gives the batch up. It also gives up a batch
whose time is over. A batch that was given up may still be appended. So the lane then takes no further records until all
batches in flight have an outcome, and goes on under a new producer id, with sequence 0.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker.errors import ErrorCode
from simulator.client import SimulatedClient, UncertainError
from workloads import outcomes
from workloads.settings import ALL, BATCH_RECORDS, ClientSettings, retries
from workloads.virtual.pipe import VirtualControl

ATTEMPT_S = 2.0  # how long a request waits for its answer before it is sent again
RETRY_S = 0.1
IN_FLIGHT: Final = 5  # batches of a partition, as librdkafka and the Java client allow an idempotent producer at most
NO_PRODUCER: Final = -1

NO_ANSWER: Final = "no answer"

# Errors after which a library sends a batch again: the leader moved, or too few replicas were in sync.
RETRIABLE: Final = frozenset(
    code.name
    for code in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
) | {NO_ANSWER}


class Sent(NamedTuple):
    """`offset` is -1 unless the outcome is ok."""

    outcome: outcomes.Outcome
    offset: int
    error: str


class _Waiting(NamedTuple):
    """A record that waits for a batch. `outcome` is resolved with the outcome of its append."""

    payload: bytes
    deadline_s: float
    outcome: asyncio.Future[Sent]


@dataclass(eq=False)
class _Batch:
    """Records of a lane that are sent together. `timestamp`: of all of them, ms; `due_s`: not sent again before;
    `is_sent`: a request is under way; `error`: of its last request."""

    records: tuple[_Waiting, ...]
    sequence: int
    timestamp: int = 0
    due_s: float = 0.0
    is_sent: bool = False
    error: str = "not sent"

    @property
    def deadline_s(self) -> float:
        return self.records[0].deadline_s


@dataclass(eq=False)
class _Lane:
    """The state of an idempotent producer for one partition. `sequence`: of the next batch's first record. `is_spent`:
    a batch was given up, so the producer id takes no further records."""

    partition: int
    waiting: deque[_Waiting] = field(default_factory=deque)
    in_flight: deque[_Batch] = field(default_factory=deque)
    producer_id: int = NO_PRODUCER
    sequence: int = 0
    is_spent: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    sending: asyncio.Task[None] | None = None
    requests: dict[asyncio.Task[None], None] = field(default_factory=dict)

    def fill(self, limit: int, timestamp: int) -> None:
        """Put waiting records into batches of at most `limit` records, as far as batches may be in flight."""
        while self.waiting and len(self.in_flight) < IN_FLIGHT and not self.is_spent:
            records = tuple(self.waiting.popleft() for _ in range(min(limit, len(self.waiting))))
            self.in_flight.append(_Batch(records, self.sequence, timestamp))
            self.sequence += len(records)

    def settle(self, batch: _Batch, sent: Sent) -> None:
        """The outcome of a batch is known."""
        self.in_flight.remove(batch)
        self.is_spent |= sent.outcome != "ok"
        for number, record in enumerate(batch.records):
            if not record.outcome.done():
                record.outcome.set_result(sent._replace(offset=sent.offset + number) if sent.outcome == "ok" else sent)

    def give_up_overdue(self, now_s: float) -> None:
        """Give up batches whose time is over and that have no request in flight."""
        for batch in [batch for batch in self.in_flight if not batch.is_sent and batch.deadline_s <= now_s]:
            self.settle(batch, Sent("info", -1, batch.error))

    def renew(self) -> None:
        """Leave a spent producer id, once nothing under it is in flight."""
        if self.is_spent and not self.in_flight:
            self.producer_id, self.sequence, self.is_spent = NO_PRODUCER, 0, False

    def next_due(self, now_s: float) -> _Batch | None:
        """The earliest batch that is not under way, if it is due."""
        batch = next((entry for entry in self.in_flight if not entry.is_sent), None)
        return batch if batch is not None and batch.due_s <= now_s else None

    def pause_s(self, now_s: float) -> float | None:
        """Seconds until there is something to do, if nothing changes; None: until something changes."""
        idle = [batch for batch in self.in_flight if not batch.is_sent]
        return max(0.0, min(idle[0].due_s, *(batch.deadline_s for batch in idle)) - now_s) if idle else None


class Sender:
    """Sends appends to partitions, those of one partition in the order in which they are given."""

    def __init__(
        self,
        settings: ClientSettings,
        control: VirtualControl,
        client: SimulatedClient,
        now_ms: Callable[[], int],
    ) -> None:
        """`now_ms`: the timestamp of a record that is sent now."""
        self._now_ms = now_ms
        self._settings = settings
        self._control = control
        self._client = client
        self._compression = settings.parameters.get("compression", "none")
        self._batch_records = settings.parameters.get("batch_records", BATCH_RECORDS)
        self._lanes = {partition: _Lane(partition) for partition in range(settings.partitions)}

    async def send(self, partition: int, payload: bytes, acks: int, timeout_s: float) -> Sent:
        """One append, with an honest outcome within `timeout_s` virtual seconds."""
        if not retries(self._settings, acks):
            return await self._once(partition, payload, acks, timeout_s)
        loop, lane = asyncio.get_running_loop(), self._lanes[partition]
        outcome: asyncio.Future[Sent] = loop.create_future()
        lane.waiting.append(_Waiting(payload, loop.time() + timeout_s, outcome))
        lane.changed.set()
        if lane.sending is None or lane.sending.done():
            lane.sending = self._control.run(self._serve(lane))
        return await outcome

    def close(self) -> None:
        for lane in self._lanes.values():
            for task in (lane.sending, *lane.requests):
                if task is not None:
                    task.cancel()

    async def _serve(self, lane: _Lane) -> None:
        """Send what a lane holds until all of it has an outcome."""
        loop = asyncio.get_running_loop()
        while lane.waiting or lane.in_flight:
            lane.changed.clear()
            lane.renew()
            if await self._is_prepared(lane):
                lane.fill(self._batch_records, self._now_ms())
                while (batch := lane.next_due(loop.time())) is not None:
                    self._begin(lane, batch)
            elif not lane.in_flight:
                lane.fill(self._batch_records, self._now_ms())  # their time runs, though nothing can be sent
            lane.give_up_overdue(loop.time())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(lane.pause_s(loop.time())):
                    await lane.changed.wait()

    async def _is_prepared(self, lane: _Lane) -> bool:
        """Whether the lane has a producer id and its leader is known, after at most `ATTEMPT_S` for each."""
        try:
            if lane.producer_id == NO_PRODUCER:
                lane.producer_id = await self._client.init_producer_id(ATTEMPT_S)
            await self._client.find_leader(self._settings.topic, lane.partition, ATTEMPT_S)
        except TimeoutError:
            return False
        return True

    def _begin(self, lane: _Lane, batch: _Batch) -> None:
        batch.is_sent = True
        task = self._control.run(self._request(lane, batch, is_earliest=batch is lane.in_flight[0]))
        lane.requests[task] = None
        task.add_done_callback(lambda done: lane.requests.pop(done, None))

    async def _request(self, lane: _Lane, batch: _Batch, *, is_earliest: bool) -> None:
        """Send a batch once, and draw the conclusion from the answer."""
        loop = asyncio.get_running_loop()
        error, offset = await self._attempt(lane, batch, min(ATTEMPT_S, max(0.0, batch.deadline_s - loop.time())))
        batch.is_sent, batch.due_s, batch.error = False, loop.time() + RETRY_S, error
        out_of_order = error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.name
        if not error:
            lane.settle(batch, Sent("ok", offset, ""))
        elif error not in RETRIABLE and (is_earliest or not out_of_order):
            lane.settle(batch, Sent("info", -1, error))
        lane.changed.set()

    async def _attempt(self, lane: _Lane, batch: _Batch, timeout_s: float) -> tuple[str, int]:
        """The error, empty without one, and the offset of the batch's first record."""
        try:
            code, offset = await self._client.append(
                self._settings.topic,
                lane.partition,
                [record.payload for record in batch.records],
                acks=ALL,
                timeout=timeout_s,
                timestamp=batch.timestamp,
                producer_id=lane.producer_id,
                sequence=batch.sequence,
                compression=self._compression,
            )
        except (UncertainError, TimeoutError):
            return NO_ANSWER, -1
        return ("" if code == ErrorCode.NONE else code.name), offset

    async def _once(self, partition: int, payload: bytes, acks: int, timeout_s: float) -> Sent:
        try:
            code, offset = await self._client.append(
                self._settings.topic,
                partition,
                [payload],
                acks=acks,
                timeout=timeout_s,
                timestamp=self._now_ms(),
                compression=self._compression,
            )
        except UncertainError as error:
            return Sent("info", -1, str(error))
        outcome = outcomes.of_append(None if code == ErrorCode.NONE else code, sent_once=True)
        return Sent(outcome, offset if outcome == "ok" else -1, "" if code == ErrorCode.NONE else code.name)

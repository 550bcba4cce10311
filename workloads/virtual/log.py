"""Clients of the log workloads in virtual time. A poll is one fetch, which is sent after the poll's invocation.

They send appends each once, or as an idempotent producer until the outcome is known.

Theory of operation. For each partition an idempotent producer has one *lane*. Records wait in the lane until a batch
takes them. A batch gets its sequence when it takes its records, and keeps it. At most `IN_FLIGHT` batches of a lane are
in flight: sent, or refused and to be sent again, and without an outcome. The lane sends batches in the order of their
sequences: a batch that was refused waits for `SEND_AGAIN_S`, and no later batch is sent before it. So requests of a
partition overlap, as those of librdkafka and of the Java client do, and a broker can accept the second of two after it
refused the first.

A broker answers OUT_OF_ORDER_SEQUENCE_NUMBER to a batch that came before its predecessor. The batch is sent again if an
earlier batch was in flight when it was sent. A batch that was the earliest when it was sent has no predecessor to wait
for: the broker has accepted something else in its place, and the producer gives the batch up. It also gives up a batch
whose time is over. A batch that was given up may still be appended. So the lane then takes no further records until all
batches in flight have an outcome, and goes on with sequence 0: under a new producer id, or in the next epoch of its id,
as current libraries do (KIP-360). A lane without batches in flight does so sometimes, too, as a restarted producer.

Two more things happen to real producers. A connection ends after the leader has appended a batch, and the answer is
lost: the batch is sent again, and must be recognised (K98-3). And a request of an old epoch, delayed on its way, comes
after the first batch of the new epoch: it must be refused (K98-2). Its outcome is known as unknown already.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NamedTuple

from broker.errors import ErrorCode
from broker.producers.producer_ids import Identity
from broker.protocol.records import Record
from history.record.record_payload import record_bytes, value_of_record
from history.record.schemas import ACKS_ALL
from history.record.values import NOT_A_VALUE
from simulator.client import NEW, NoResultError, SimulatedClient
from workloads import outcomes
from workloads.contiguous_reads import columns_of_read, contiguous_runs
from workloads.control import (
    Append,
    Appended,
    AppendResult,
    Command,
    DeleteRecords,
    DeletionSent,
    FirstAck,
    Probe,
    Probed,
    ReadAll,
    ReadDone,
    RecordsDeleted,
    RefusedCommand,
    SetPhase,
    StartLoad,
    StopLoad,
)
from workloads.drawn_deletions import DELETION_TIMEOUT_S, DrawnDeletions
from workloads.pacing import END_QUERIES_SHARE, MakePacing, Pacer, Slots, depth
from workloads.settings import ALL, BATCH_RECORDS, ClientSettings, retries
from workloads.virtual.pipe import ClientParts, VirtualClient, VirtualControl

ATTEMPT_S = 2.0  # how long a request waits for its answer before it is sent again
SEND_AGAIN_S = 0.1
IN_FLIGHT: Final = 5  # batches of a partition, as librdkafka and the Java client allow an idempotent producer at most
RENEWALS: Final = 0.02
"""How often an idle lane goes on as another producer, or in another epoch."""

LOST_ANSWERS: Final = 0.03
"""The share of a lane's acknowledgements that do not arrive."""

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
    a batch was given up, so the producer's epoch takes no further records. `is_prepared`: it has an id and epoch."""

    partition: int
    waiting: deque[_Waiting] = field(default_factory=deque)
    in_flight: deque[_Batch] = field(default_factory=deque)
    producer: Identity = NEW
    is_prepared: bool = False
    sequence: int = 0
    is_spent: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    given_up: tuple[Identity, _Batch] | None = None
    """The last batch that was sent and given up, with its producer."""
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
        if sent.outcome != "ok":
            self.is_spent, self.given_up = True, (self.producer, batch)
        for number, record in enumerate(batch.records):
            if not record.outcome.done():
                record.outcome.set_result(sent._replace(offset=sent.offset + number) if sent.outcome == "ok" else sent)

    def give_up_overdue(self, now_s: float) -> None:
        """Give up batches whose time is over and that have no request in flight."""
        for batch in [batch for batch in self.in_flight if not batch.is_sent and batch.deadline_s <= now_s]:
            self.settle(batch, Sent("info", -1, batch.error))

    def renew(self, chance: Random) -> None:
        """Leave a spent epoch, and sometimes another one, once nothing of it is in flight."""
        if not self.in_flight and (self.is_spent or chance.random() < RENEWALS):
            self.sequence, self.is_spent, self.is_prepared = 0, False, False
            self.producer = chance.choice((self.producer, NEW))

    def take_fenced(self) -> tuple[Identity, _Batch] | None:
        """The given-up batch, once, if its producer has a newer epoch now."""
        if self.given_up is None:
            return None
        (producer, _), fenced = self.given_up, self.given_up
        if producer.producer_id != self.producer.producer_id or producer.epoch >= self.producer.epoch:
            return None
        self.given_up = None
        return fenced

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
        self._chance = Random(f"{settings.seed}/producers")
        self._losses = Random(f"{settings.seed}/answers")
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
            lane.renew(self._chance)
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
        """Whether the lane has a producer id and epoch and its leader is known, after at most `ATTEMPT_S` for each."""
        try:
            if not lane.is_prepared:
                lane.producer = await self._client.init_producer_id(ATTEMPT_S, lane.producer)
                lane.is_prepared = True
            await self._client.find_leader(self._settings.topic, lane.partition, ATTEMPT_S)
        except TimeoutError:
            return False
        return True

    def _begin(self, lane: _Lane, batch: _Batch) -> None:
        batch.is_sent = True
        self._run(lane, self._request(lane, batch, is_earliest=batch is lane.in_flight[0]))

    def _run(self, lane: _Lane, request: Coroutine[Any, Any, None]) -> None:
        task = self._control.run(request)
        lane.requests[task] = None
        task.add_done_callback(lambda done: lane.requests.pop(done, None))

    async def _request(self, lane: _Lane, batch: _Batch, *, is_earliest: bool) -> None:
        """Send a batch once, and draw the conclusion from the answer."""
        loop = asyncio.get_running_loop()
        timeout_s = min(ATTEMPT_S, max(0.0, batch.deadline_s - loop.time()))
        error, offset = await self._attempt(lane, lane.producer, batch, timeout_s)
        if not error and self._losses.random() < LOST_ANSWERS:
            error = NO_ANSWER
        batch.is_sent, batch.due_s, batch.error = False, loop.time() + SEND_AGAIN_S, error
        out_of_order = error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.name
        if not error:
            lane.settle(batch, Sent("ok", offset, ""))
            if fenced := lane.take_fenced():
                self._run(lane, self._late(lane, *fenced))
        elif error not in RETRIABLE and (is_earliest or not out_of_order):
            lane.settle(batch, Sent("info", -1, error))
        lane.changed.set()

    async def _late(self, lane: _Lane, producer: Identity, batch: _Batch) -> None:
        """A request that was given up arrives, after the first one of the next epoch."""
        await self._attempt(lane, producer, batch, ATTEMPT_S)

    async def _attempt(self, lane: _Lane, producer: Identity, batch: _Batch, timeout_s: float) -> tuple[str, int]:
        """The error, empty without one, and the offset of the batch's first record."""
        try:
            offset = await self._client.produce(
                self._settings.topic,
                lane.partition,
                [record.payload for record in batch.records],
                acks=ALL,
                timeout=timeout_s,
                timestamp=batch.timestamp,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                sequence=batch.sequence,
                compression=self._compression,
            )
        except NoResultError as error:
            return (NO_ANSWER if error.code is None else error.code.name), -1
        return "", offset

    async def _once(self, partition: int, payload: bytes, acks: int, timeout_s: float) -> Sent:
        try:
            offset = await self._client.produce(
                self._settings.topic,
                partition,
                [payload],
                acks=acks,
                timeout=timeout_s,
                timestamp=self._now_ms(),
                compression=self._compression,
            )
        except NoResultError as error:
            outcome = "info" if error.code is None else outcomes.of_append(error.code, sent_once=True)
            return Sent(outcome, -1, str(error))
        return Sent("ok", offset, "")


# ---- The clients. A poll is one fetch, which is sent after the poll's invocation.

POLL_S: Final = 0.1
IDLE_S: Final = 0.05
RETRY_S: Final = 0.05
EPOCH_MS: Final = 1_700_000_000_000
"""The timestamp of a record at the start of a simulated run."""


class VirtualProducer(VirtualClient):
    """Appends at its pace between `start` and `stop`, and on command at any time."""

    def __init__(self, parts: ClientParts, *, pacing: MakePacing) -> None:
        super().__init__(parts)
        settings, control, _, clock = parts
        self._pacing = pacing
        self._client = SimulatedClient(addresses(settings), first=settings.seed)
        self._sender = Sender(settings, control, self._client, lambda: EPOCH_MS + clock() // 1_000_000)
        self._rng = Random(settings.seed)
        self._slots = Slots(settings.partitions, self._rng, depth(settings))
        self._upkeep = control.run(self._client.keep_up(settings.topic))
        self._load: asyncio.Task[None] | None = None
        self._in_flight: dict[asyncio.Task[None], None] = {}  # in the order of sending
        self._acknowledged = False
        self._deletions: DrawnDeletions | None = None
        self._requests = 0

    async def obey(self, command: Command) -> None:
        match command:
            case StartLoad():
                self._load = self._control.run(self._issue())
            case StopLoad():
                await self._stop()
            case Append(acks=0):
                self._control.tell(RefusedCommand(command.id, "a client in the simulation does not append with acks=0"))
            case Append():
                results = await self._append(command.partition, command.acks, command.count, command.timeout_s)
                self._control.tell(Appended(command.id, results))
            case Probe():
                acks = self._settings.parameters.get("probe_acks", ACKS_ALL)
                (result,) = await self._append(command.place, acks, 1, command.timeout_s)
                self._control.tell(Probed(command.id, result.outcome == "ok", result.error))
            case DeleteRecords():
                await self._delete(command.partition, command.offset, command.timeout_s, command=command.id)
            case SetPhase():
                self._writer.phase = command.name
            case _:
                self._control.decline("producer", command)

    async def close(self) -> None:
        self._upkeep.cancel()
        self._sender.close()
        self._client.close()

    async def _issue(self) -> None:
        loop = asyncio.get_running_loop()
        pacer = self._pacing(self._settings, self._rng, loop.time())
        self._deletions = DrawnDeletions(self._settings, loop.time())
        while True:
            await asyncio.sleep(min(IDLE_S, pacer.wait_s(loop.time())))
            while pacer.take(loop.time()):
                partition = self._slots.take()
                if partition is not None:
                    task = self._control.run(self._one(partition))
                    self._in_flight[task] = None
                    task.add_done_callback(self._landed)
            if drawn := self._deletions.take(loop.time()):
                self._control.run(self._delete(*drawn, DELETION_TIMEOUT_S * self._settings.time_scale))
            self._counts.report(loop.time())

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._in_flight.pop(task, None)

    async def _one(self, partition: int) -> None:
        result = await self._send(partition, -1, self._settings.append_timeout_s)
        self._slots.give_back(partition)
        if result.outcome == "ok" and self._deletions is not None:
            self._deletions.acknowledged(partition, result.offset)
        if result.outcome == "ok" and not self._acknowledged:
            self._acknowledged = True
            self._control.tell(FirstAck(self._clock()))

    async def _stop(self) -> None:
        if self._load is not None:
            self._load.cancel()
            self._load = None
        if self._in_flight:
            await asyncio.wait(self._in_flight, timeout=self._settings.append_timeout_s + 2.0)
        self._report_stop(len(self._in_flight))

    async def _delete(self, partition: int, offset: int, timeout_s: float, *, command: int = 0) -> None:
        """Send DeleteRecords once, and report it before and after. `command`: its id, 0 under load."""
        self._requests += 1
        number, low_watermark, text = self._requests, -1, ""
        self._control.tell(DeletionSent(number, partition, offset))
        try:
            low_watermark = await self._client.delete_records(
                self._settings.topic, partition, offset, timeout=timeout_s
            )
        except NoResultError as error:
            text = str(error)
        self._control.tell(RecordsDeleted(command, number, low_watermark, text))

    async def _append(self, partition: int, acks: int, count: int, timeout_s: float) -> list[AppendResult]:
        """`count` appends to one partition, each after the outcome of its predecessor, until one is not ok.

        A library asks for the new leader as soon as it loses a leader's connection; here that happens before the first.
        """
        await self._client.refresh(self._settings.topic)
        results: list[AppendResult] = []
        while len(results) < count and all(result.outcome == "ok" for result in results):
            results.append(await self._send(partition, acks, timeout_s))
        self._writer.flush()
        return results

    async def _send(self, partition: int, acks: int, timeout_s: float) -> AppendResult:
        """One append, recorded with its outcome."""
        invocation = self._writer.start("append", topic=self._settings.topic, partition=partition, acks=acks)
        payload = record_bytes(invocation.value, self._settings.parameters["record_bytes"])
        outcome, offset, text = await self._sender.send(partition, payload, acks, timeout_s)
        self._writer.end(invocation, outcome, offset=offset, error=text)
        self._counts.add(outcome)
        return AppendResult(outcome, offset, text)


class VirtualRead:
    """Reads partitions and records each contiguous run of records as one read."""

    def __init__(self, parts: ClientParts) -> None:
        self._settings, control, self._writer, self._clock = parts
        settings = self._settings
        self.on_records: Callable[[int, Sequence[Record], int], None] | None = None
        """Called for each run of records with its partition and the time of the answer."""
        self._client = SimulatedClient(addresses(settings), first=settings.seed)
        self._upkeep = control.run(self._client.keep_up(settings.topic))
        self.next = dict.fromkeys(range(settings.partitions), 0)
        """By partition: the offset after the last record that was read."""

    async def close(self) -> None:
        self._upkeep.cancel()
        self._client.close()

    async def poll(self, partition: int, wait_s: float = POLL_S) -> tuple[int, int]:
        """Fetch once and record it; returns the number of reads, and how many of them failed."""
        topic, start, inv = self._settings.topic, self.next[partition], self._clock()
        try:
            fetched = await self._client.fetch(
                topic, partition, start, max_wait=wait_s, timeout=self._settings.query_timeout_s
            )
        except NoResultError as error:
            place = {"topic": topic, "partition": partition, "offset": start}
            self._writer.add("read", "fail", inv=inv, ret=self._clock(), error=str(error), **place)
            if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                await self.restart(partition)
            return 0, 1
        ret, reads = self._clock(), 0
        for run in contiguous_runs(fetched.records, _offset):
            offsets, values = [record.offset for record in run], [_value(record) for record in run]
            read = columns_of_read(self.next[partition], offsets, values)
            self._writer.add("read", "ok", inv=inv, ret=ret, topic=topic, partition=partition, **read)
            self.next[partition] = offsets[-1] + 1
            if self.on_records is not None:
                self.on_records(partition, run, ret)
            reads += 1
        self.next[partition] = max(self.next[partition], fetched.next_offset)
        if not fetched.records and self._settings.polls_show_ends and fetched.high_watermark == start:
            self._writer.add("read", "ok", inv=inv, ret=ret, topic=topic, partition=partition, offset=start, hi=start)
            reads += 1
        return reads, 0

    async def restart(self, partition: int) -> None:
        """Continue at the start of the log; at 0 without an answer."""
        self.next[partition] = 0
        with contextlib.suppress(NoResultError):
            timeout = self._settings.query_timeout_s
            self.next[partition] = await self._client.start(self._settings.topic, partition, timeout=timeout)

    async def offset_of_time(self, partition: int, timestamp: int) -> int | None:
        """The offset of the first record that is not earlier than a timestamp in ms, -1 without one; None without an
        answer."""
        timeout = self._settings.query_timeout_s
        try:
            return await self._client.offset(self._settings.topic, partition, timestamp, timeout=timeout)
        except NoResultError:
            return None

    async def end(self, partition: int) -> int | None:
        """Ask the leader for the log's end and record the answer; None without an answer."""
        topic = self._settings.topic
        invocation = self._writer.start("end", topic=topic, partition=partition)
        try:
            end = await self._client.end(topic, partition, timeout=self._settings.query_timeout_s)
        except NoResultError as error:
            self._writer.end(invocation, "fail", error=str(error))
            return None
        self._writer.end(invocation, "ok", lo=end, hi=end)
        return end


class Consumer(VirtualClient):
    """Reads all partitions from their start while the load runs, and queries their ends from time to time."""

    def __init__(self, parts: ClientParts) -> None:
        super().__init__(parts)
        self._rng = Random(parts.settings.seed)
        self._reading = VirtualRead(parts)
        self._load: asyncio.Task[None] | None = None

    async def obey(self, command: Command) -> None:
        match command:
            case StartLoad():
                self._load = self._control.run(self._work())
            case StopLoad():
                if self._load is not None:
                    self._load.cancel()
                    self._load = None
                self._report_stop()
            case _:
                self._control.decline("consumer", command)

    async def close(self) -> None:
        await self._reading.close()

    async def _work(self) -> None:
        loop, rate = asyncio.get_running_loop(), self._settings.rate
        polls = Pacer(rate * (1 - END_QUERIES_SHARE), self._rng, start_s=loop.time())
        ends = Pacer(rate * END_QUERIES_SHARE, self._rng, start_s=loop.time())
        while True:
            await asyncio.sleep(min(POLL_S, polls.wait_s(loop.time())))
            if polls.take(loop.time()):
                await self._poll(self._rng.randrange(self._settings.partitions))
            if ends.take(loop.time()):
                end = await self._reading.end(self._rng.randrange(self._settings.partitions))
                self._counts.add("fail" if end is None else "ok")
            self._counts.report(loop.time())

    async def _poll(self, partition: int) -> None:
        reads, failed = await self._reading.poll(partition)
        self._counts.add("ok", reads)
        self._counts.add("fail", failed)


class FinalReader(VirtualClient):
    """Reads whole partitions on command, from the first record to the end that the leader states."""

    def __init__(self, parts: ClientParts) -> None:
        super().__init__(parts)
        self._reading = VirtualRead(parts)

    async def obey(self, command: Command) -> None:
        match command:
            case SetPhase():
                self._writer.phase = command.name
            case ReadAll():
                self._control.tell(await self._read(command))
            case _:
                self._control.decline("reader", command)

    async def close(self) -> None:
        await self._reading.close()

    async def _read(self, command: ReadAll) -> ReadDone:
        loop, partition = asyncio.get_running_loop(), command.place
        advanced_s = loop.time()
        give_up = advanced_s + command.timeout_s
        end = await self._reading.end(partition)
        while end is None and loop.time() < give_up:
            await asyncio.sleep(RETRY_S)
            end = await self._reading.end(partition)
        if end is None:
            return ReadDone(command.id, complete=False, end=-1, read=0, idle_s=loop.time() - advanced_s)
        self._reading.next[partition] = furthest = 0  # a reset to the start of the log does not count as an advance
        while self._reading.next[partition] < end and loop.time() < give_up:
            _, failed = await self._reading.poll(partition)
            if self._reading.next[partition] > furthest:
                furthest, advanced_s = self._reading.next[partition], loop.time()
            if failed:
                await asyncio.sleep(RETRY_S)
        self._writer.flush()
        read, idle_s = self._reading.next[partition], loop.time() - advanced_s
        return ReadDone(command.id, complete=read >= end, end=end, read=read, idle_s=idle_s)


def addresses(settings: ClientSettings) -> dict[int, tuple[str, int]]:
    """The brokers' addresses by id: in the simulation the ids are 1 to n, in the order of the endpoints."""
    pairs = (endpoint.rsplit(":", 1) for endpoint in settings.endpoints)
    return {number: (host, int(port)) for number, (host, port) in enumerate(pairs, 1)}


def _offset(record: Record) -> int:
    return record.offset


def _value(record: Record) -> int:
    """The value of a record; `NOT_A_VALUE` for bytes that producers do not send."""
    if record.key is not None or record.headers:
        return NOT_A_VALUE
    return value_of_record(record.value)

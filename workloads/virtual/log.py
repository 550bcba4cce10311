"""Clients of the log workloads in virtual time. A poll is one fetch, which is sent after the poll's invocation."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from broker.errors import ErrorCode
from broker.protocol.records import Record
from history.record.record_payload import record_bytes, value_of_record
from history.record.schemas import ACKS_ALL
from history.record.values import NOT_A_VALUE
from history.record.writer import OperationWriter
from simulator.client import RefusedError, SimulatedClient, UncertainError
from workloads.contiguous_reads import columns_of_read, contiguous_runs
from workloads.control import (
    Append,
    Appended,
    AppendResult,
    Command,
    Counts,
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
    Stopped,
)
from workloads.drawn_deletions import DELETION_TIMEOUT_S, DrawnDeletions
from workloads.pacing import END_QUERIES_SHARE, MakePacing, Pacer, Slots, depth
from workloads.settings import ClientSettings
from workloads.virtual.pipe import ClockNs, VirtualControl
from workloads.virtual.sender import Sender

POLL_S: Final = 0.1
IDLE_S: Final = 0.05
RETRY_S: Final = 0.05
EPOCH_MS: Final = 1_700_000_000_000
"""The timestamp of a record at the start of a simulated run."""


class VirtualProducer:
    """Appends at its pace between `start` and `stop`, and on command at any time."""

    def __init__(
        self,
        settings: ClientSettings,
        control: VirtualControl,
        writer: OperationWriter,
        clock: ClockNs,
        *,
        pacing: MakePacing,
    ) -> None:
        self._settings = settings
        self._control = control
        self._writer = writer
        self._clock = clock
        self._pacing = pacing
        self._client = SimulatedClient(addresses(settings))
        self._sender = Sender(settings, control, self._client, lambda: EPOCH_MS + clock() // 1_000_000)
        self._counts = Counts(control)
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
        self._writer.flush()
        self._counts.report(asyncio.get_running_loop().time(), force=True)
        self._control.tell(Stopped(len(self._in_flight)))

    async def _delete(self, partition: int, offset: int, timeout_s: float, *, command: int = 0) -> None:
        """Send DeleteRecords once, and report it before and after. `command`: its id, 0 under load."""
        self._requests += 1
        number, low_watermark, text = self._requests, -1, ""
        self._control.tell(DeletionSent(number, partition, offset))
        try:
            low_watermark = await self._client.delete_records(
                self._settings.topic, partition, offset, timeout=timeout_s
            )
        except (RefusedError, UncertainError) as error:
            text = _name(error)
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

    def __init__(
        self,
        settings: ClientSettings,
        control: VirtualControl,
        writer: OperationWriter,
        clock: ClockNs,
    ) -> None:
        self._settings = settings
        self._writer = writer
        self._clock = clock
        self.on_records: Callable[[int, Sequence[Record], int], None] | None = None
        """Called for each run of records with its partition and the time of the answer."""
        self._client = SimulatedClient(addresses(settings))
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
        except (RefusedError, UncertainError) as error:
            place = {"topic": topic, "partition": partition, "offset": start}
            self._writer.add("read", "fail", inv=inv, ret=self._clock(), error=_name(error), **place)
            if isinstance(error, RefusedError) and error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
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
        with contextlib.suppress(RefusedError, UncertainError):
            timeout = self._settings.query_timeout_s
            self.next[partition] = await self._client.start(self._settings.topic, partition, timeout=timeout)

    async def offset_of_time(self, partition: int, timestamp: int) -> int | None:
        """The offset of the first record that is not earlier than a timestamp in ms, -1 without one; None without an
        answer."""
        timeout = self._settings.query_timeout_s
        try:
            return await self._client.offset(self._settings.topic, partition, timestamp, timeout=timeout)
        except (RefusedError, UncertainError):
            return None

    async def end(self, partition: int) -> int | None:
        """Ask the leader for the log's end and record the answer; None without an answer."""
        topic = self._settings.topic
        invocation = self._writer.start("end", topic=topic, partition=partition)
        try:
            end = await self._client.end(topic, partition, timeout=self._settings.query_timeout_s)
        except (RefusedError, UncertainError) as error:
            self._writer.end(invocation, "fail", error=_name(error))
            return None
        self._writer.end(invocation, "ok", lo=end, hi=end)
        return end


class Consumer:
    """Reads all partitions from their start while the load runs, and queries their ends from time to time."""

    def __init__(
        self, settings: ClientSettings, control: VirtualControl, writer: OperationWriter, clock: ClockNs
    ) -> None:
        self._settings = settings
        self._control = control
        self._writer = writer
        self._counts = Counts(control)
        self._rng = Random(settings.seed)
        self._reading = VirtualRead(settings, control, writer, clock)
        self._load: asyncio.Task[None] | None = None

    async def obey(self, command: Command) -> None:
        match command:
            case StartLoad():
                self._load = self._control.run(self._work())
            case StopLoad():
                if self._load is not None:
                    self._load.cancel()
                    self._load = None
                self._writer.flush()
                self._counts.report(asyncio.get_running_loop().time(), force=True)
                self._control.tell(Stopped(0))
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


class FinalReader:
    """Reads whole partitions on command, from the first record to the end that the leader states."""

    def __init__(
        self, settings: ClientSettings, control: VirtualControl, writer: OperationWriter, clock: ClockNs
    ) -> None:
        self._control = control
        self._writer = writer
        self._reading = VirtualRead(settings, control, writer, clock)

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


def _name(error: RefusedError | UncertainError) -> str:
    return error.code.name if isinstance(error, RefusedError) else str(error)


def _offset(record: Record) -> int:
    return record.offset


def _value(record: Record) -> int:
    """The value of a record; `NOT_A_VALUE` for bytes that producers do not send."""
    if record.key is not None or record.headers:
        return NOT_A_VALUE
    return value_of_record(record.value)

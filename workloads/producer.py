"""A client process that appends unique values to a topic and records the outcome of each append."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from random import Random
from typing import Any

from confluent_kafka import KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from history.record.record_payload import record_bytes
from history.record.schemas import ACKS_ALL, SENT_AGAIN
from history.record.writer import Invocation, OperationWriter
from workloads import outcomes
from workloads.attempts import AttemptLog
from workloads.client_record import LibraryClient, open_record
from workloads.control import (
    Append,
    Appended,
    AppendResult,
    Command,
    Control,
    DeleteRecords,
    DeletionSent,
    FirstAck,
    Probe,
    Probed,
    RecordsDeleted,
    SetPhase,
    StartLoad,
    StopLoad,
)
from workloads.drawn_deletions import DELETION_TIMEOUT_S, DrawnDeletions
from workloads.pacing import MakePacing, Pacing, Slots, depth, steady
from workloads.settings import ClientSettings, admin_config, is_debugged, producer_config, retries

IDLE_S = 0.05
Done = Callable[[str, int, str], None]


class Appender:
    """Appends through one librdkafka producer with one `acks`, and records each append once with its outcome.

    A producer that retries is idempotent: how often it sends a record is not observed, and brokers store it once."""

    def __init__(
        self, settings: ClientSettings, writer: OperationWriter, acks: int, *, timeout_s: float | None = None
    ) -> None:
        self._settings = settings
        self._writer = writer
        self._acks = acks
        config = producer_config(settings, acks, timeout_s=timeout_s)
        self._attempts = None if retries(settings, acks) else AttemptLog(also_debug=is_debugged())
        self._producer = Producer(config) if self._attempts is None else Producer(config, logger=self._attempts)
        self.in_flight = 0

    def append(self, partition: int, done: Done) -> None:
        """Send one value; `poll` calls `done(outcome, offset, error)` when the outcome is known."""
        topic = self._settings.topic
        invocation = self._writer.start("append", topic=topic, partition=partition, acks=self._acks)
        payload = record_bytes(invocation.value, self._settings.parameters["record_bytes"])
        repeats = 0 if self._attempts is None else self._attempts.repeats(partition)
        try:
            self._producer.produce(
                topic,
                payload,
                partition=partition,
                on_delivery=lambda error, message: self._delivered(
                    partition, invocation, repeats, error, message, done
                ),
            )
        except (BufferError, KafkaException) as refused:
            # The library rejected the record, so that no broker has seen it.
            error = str(refused) or "queue full"
            self._writer.end(invocation, "fail", error=error)
            done("fail", -1, error)
            return
        self.in_flight += 1

    def poll(self, timeout_s: float) -> None:
        self._producer.poll(timeout_s)

    def drain(self, timeout_s: float) -> None:
        """Wait until every append has its outcome, which the library reports within its message timeout."""
        give_up = time.monotonic() + timeout_s
        while self.in_flight and time.monotonic() < give_up:
            self._producer.poll(0.05)

    def _delivered(
        self, partition: int, invocation: Invocation, repeats: int, error: Any, message: Message, done: Done
    ) -> None:
        self.in_flight -= 1
        sent_once = self._attempts is not None and self._attempts.sent_once(partition, repeats)
        outcome = outcomes.of_append(None if error is None else error.code(), sent_once=sent_once)
        offset = message.offset() if error is None else -1
        offset = -1 if offset is None or offset < 0 else offset
        text = "" if error is None else error.name()
        repeat_note = SENT_AGAIN if self._attempts is not None and not sent_once else ""
        told = "; ".join(filter(None, (text, repeat_note)))
        self._writer.end(invocation, outcome, offset=offset, error=told)
        done(outcome, offset, text)


class ProducerClient(LibraryClient):
    """Appends at its rate between `start` and `stop`, and on command at any time."""

    def __init__(
        self,
        settings: ClientSettings,
        control: Control,
        writer: OperationWriter,
        pacing: MakePacing = steady,
    ) -> None:
        super().__init__(settings, control, writer)
        self._pacing = pacing
        self._rng = Random(settings.seed)
        self._slots = Slots(settings.partitions, self._rng, depth(settings))
        self._load = Appender(settings, writer, acks=-1)
        self._pacer: Pacing | None = None
        self._acknowledged = False
        self._single: dict[tuple[int, float], Appender] = {}
        self._deletions: DrawnDeletions | None = None
        self._admin: AdminClient | None = None
        self._requests = 0

    def _patience_s(self) -> float:
        return 0.0  # it waits for outcomes

    def _obey(self, command: Command) -> None:
        match command:
            case StartLoad():
                self._pacer = self._pacing(self._settings, self._rng, time.monotonic())
                self._deletions = DrawnDeletions(self._settings, time.monotonic())
            case StopLoad():
                self._pacer = self._deletions = None
                self._load.drain(self._settings.append_timeout_s + 2.0)
                self._report_stop(self._load.in_flight)
            case Append():
                results = self._append(command.partition, command.acks, command.count, command.timeout_s)
                self._control.tell(Appended(command.id, results))
            case Probe():
                acks = self._settings.parameters.get("probe_acks", ACKS_ALL)
                results = self._append(command.place, acks, 1, command.timeout_s)
                error = results[-1].error if results else "no answer"
                self._control.tell(Probed(command.id, [result.outcome for result in results] == ["ok"], error))
            case DeleteRecords():
                self._delete(command.partition, command.offset, command.timeout_s, command=command.id)
            case SetPhase():
                self._writer.phase = command.name
            case _:
                self._control.decline("producer", command)

    def _work(self) -> None:
        now_s = time.monotonic()
        wait_s = IDLE_S if self._pacer is None else min(IDLE_S, self._pacer.wait_s(now_s))
        self._load.poll(wait_s)
        now_s = time.monotonic()
        while self._pacer is not None and self._pacer.take(now_s):
            partition = self._slots.take()
            if partition is not None:
                self._load.append(partition, partial(self._done, partition))
        if self._deletions is not None and (drawn := self._deletions.take(now_s)):
            self._delete(*drawn, DELETION_TIMEOUT_S * self._settings.time_scale)
        self._counts.report(now_s)
        self._writer.tick()

    def _delete(self, partition: int, offset: int, timeout_s: float, *, command: int = 0) -> None:
        """Send DeleteRecords, and report it before and after. `command`: its id, 0 under load."""
        self._admin = self._admin or AdminClient(admin_config(self._settings))
        self._requests += 1
        number = self._requests
        self._control.tell(DeletionSent(number, partition, offset))

        def answered(answer: Future[Any]) -> None:
            error = answer.exception()
            text = "" if error is None else str(error)
            low_watermark = answer.result().low_watermark if error is None else -1
            self._control.tell(RecordsDeleted(command, number, low_watermark, text))

        place = TopicPartition(self._settings.topic, partition, offset)
        [answer] = self._admin.delete_records(
            [place], request_timeout=timeout_s + 1.0, operation_timeout=timeout_s
        ).values()
        answer.add_done_callback(answered)

    def _done(self, partition: int, outcome: str, offset: int, _error: str) -> None:
        self._slots.give_back(partition)
        if outcome == "ok" and self._deletions is not None:
            self._deletions.acknowledged(partition, offset)
        self._counts.add(outcome)
        if outcome == "ok" and not self._acknowledged:
            self._acknowledged = True
            self._control.tell(FirstAck(time.monotonic_ns()))

    def _append(self, partition: int, acks: int, count: int, timeout_s: float) -> list[AppendResult]:
        """`count` appends to one partition, each after the outcome of its predecessor, until one is not ok."""
        appender = self._single.get((acks, timeout_s))
        if appender is None:
            appender = self._single[acks, timeout_s] = Appender(self._settings, self._writer, acks, timeout_s=timeout_s)
        results: list[AppendResult] = []
        for _ in range(count):
            done = len(results)
            appender.append(partition, lambda *outcome: results.append(AppendResult(*outcome)))
            appender.drain(timeout_s + 2.0)
            if len(results) == done:
                break
            self._counts.add(results[-1].outcome)
            if results[-1].outcome != "ok":
                break
        self._writer.flush()
        return results


def main(settings: ClientSettings, control: Control, pacing: MakePacing = steady) -> None:
    """Run a producer process."""
    with open_record(settings) as writer:
        ProducerClient(settings, control, writer, pacing).run()

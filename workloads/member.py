"""Client processes in a consumer group: members that share a topic's partitions, and the reader of the final state.

A member commits the records that it was given, periodically and before partitions are taken from it. It continues after
the end of the load, so that the group reaches the end of every partition. The outcome of a commit without an
acknowledgement is unknown: the library retries it automatically.
"""

import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from history.record.offset_record import ATTEMPT_S, GROUPS, NO_OFFSET, OffsetWriter
from history.record.writer import OperationWriter
from workloads.client_record import POLL_S, LibraryClient, open_record
from workloads.consumer import POLL_RECORDS, ReaderClient, offset_of, value_of
from workloads.contiguous_reads import columns_of_read, contiguous_runs
from workloads.control import Command, Control, ReadAll, ReadDone, StartLoad, StopLoad
from workloads.group_settings import FETCH_EVERY_S, HEARTBEATS_PER_SESSION, group_behind, group_of, session_ms
from workloads.settings import ClientSettings, consumer_config


def group_config(settings: ClientSettings) -> dict[str, Any]:
    """The configuration of a member. Its session is short, so that the group notices a silent coordinator soon."""
    silence_ms = session_ms(settings)
    return {
        **consumer_config(settings),
        "group.id": group_of(settings),
        "auto.offset.reset": "earliest",
        "session.timeout.ms": silence_ms,
        "heartbeat.interval.ms": silence_ms // HEARTBEATS_PER_SESSION,
        "partition.assignment.strategy": "range",
    }


class MemberClient(LibraryClient):
    """Reads the partitions that the group assigns and commits, from `start` until it is closed."""

    def __init__(
        self, settings: ClientSettings, control: Control, writer: OperationWriter, group: OffsetWriter
    ) -> None:
        super().__init__(settings, control, writer)
        self._group = group
        self._consumer: Consumer | None = None
        self._read_to: dict[int, int] = {}
        self._committed: dict[int, int] = {}
        self._assigned: set[int] = set()
        self._commit_at = self._fetch_at = 0.0

    def _patience_s(self) -> float:
        return 0.0 if self._consumer else POLL_S

    def _close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()

    def _obey(self, command: Command) -> None:
        match command:
            case StartLoad():
                self._consumer = Consumer(group_config(self._settings))
                self._consumer.subscribe(
                    [self._settings.topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
                )
            case StopLoad():  # the group keeps reading: it must reach the end of every partition
                self._report_stop()
            case _:
                self._control.decline("member", command)

    def _work(self) -> None:
        if (consumer := self._consumer) is not None:
            self._poll(consumer)
            now_s = time.monotonic()
            if now_s >= self._commit_at:
                self._commit(consumer, self._assigned)
                self._commit_at = time.monotonic() + 1.0 / self._settings.rate
            if now_s >= self._fetch_at:
                self._fetch(consumer)
                self._fetch_at = time.monotonic() + FETCH_EVERY_S
            self._counts.report(now_s)
        self._writer.tick()

    def _poll(self, consumer: Consumer) -> None:
        inv = time.monotonic_ns()
        messages = consumer.consume(POLL_RECORDS, POLL_S)
        ret = time.monotonic_ns()
        records: dict[int, list[Any]] = {}
        for message in messages:
            if message.error() is None:
                records.setdefault(int(message.partition() or 0), []).append(message)
        topic = self._settings.topic
        for partition, batch in records.items():
            if partition not in self._assigned:
                continue  # revoked during the poll: the partition's next owner gets these records, too
            for run in contiguous_runs(batch, offset_of):
                offsets = [offset_of(message) for message in run]
                values = [value_of(message) for message in run]
                read = columns_of_read(offsets[0], offsets, values)
                self._writer.add("read", "ok", inv=inv, ret=ret, topic=topic, partition=partition, **read)
                self._group.add("deliver", partition, ret=ret, first=offsets[0], offset=offsets[-1])
                self._read_to[partition] = offsets[-1] + 1
                self._counts.add("ok")

    # --- offsets

    def _commit(self, consumer: Consumer, partitions: set[int]) -> None:
        """Commit what was read of these partitions since the last commit."""
        offsets = {
            partition: offset
            for partition, offset in sorted(self._read_to.items())
            if partition in partitions and self._committed.get(partition) != offset
        }
        if not offsets:
            return
        acknowledged = self._group.commit(offsets, ATTEMPT_S * self._settings.time_scale)
        topic = self._settings.topic
        try:
            answer = consumer.commit(
                offsets=[TopicPartition(topic, *place) for place in offsets.items()], asynchronous=False
            )
        except KafkaException:
            self._counts.add("info")
            return
        done = [place.partition for place in answer or () if place.error is None]
        acknowledged(done)
        self._committed.update({partition: offsets[partition] for partition in done})
        self._counts.add("ok" if len(done) == len(offsets) else "info")

    def _fetch(self, consumer: Consumer) -> None:
        """Fetch the committed offsets of all partitions, including those of other members."""
        offsets = fetch_committed(consumer, self._settings, range(self._settings.partitions), self._group)
        self._counts.add("fail" if offsets is None else "ok")

    # --- the group

    def _on_assign(self, _: Consumer, places: Sequence[TopicPartition]) -> None:
        partitions = [place.partition for place in places]
        self._assigned |= set(partitions)
        for partition in partitions:
            self._read_to.pop(partition, None)
            self._committed.pop(partition, None)
        self._group.event("assign", partitions)

    def _on_revoke(self, consumer: Consumer, places: Sequence[TopicPartition]) -> None:
        self._commit(consumer, {place.partition for place in places})
        self._release("revoke", places)

    def _on_lost(self, _: Consumer, places: Sequence[TopicPartition]) -> None:
        self._release("lose", places)

    def _release(self, how: str, places: Sequence[TopicPartition]) -> None:
        partitions = {place.partition for place in places}
        self._assigned -= partitions
        self._group.event(how, sorted(partitions))


def fetch_committed(
    consumer: Consumer, settings: ClientSettings, partitions: Sequence[int], group: OffsetWriter
) -> dict[int, int] | None:
    """The group's committed offsets, recorded; None without an answer."""
    inv = time.monotonic_ns()
    places = [TopicPartition(settings.topic, partition) for partition in partitions]
    try:
        answer = consumer.committed(places, timeout=settings.query_timeout_s)
    except KafkaException:
        return None
    offsets = {place.partition: max(place.offset, NO_OFFSET) for place in answer if place.error is None}
    if offsets:
        group.fetched(offsets, inv)
    return offsets


class GroupReaderClient(ReaderClient):
    """Reads whole partitions, and waits until the group has committed their ends."""

    def __init__(
        self, settings: ClientSettings, control: Control, writer: OperationWriter, group: OffsetWriter
    ) -> None:
        super().__init__(settings, control, writer)
        self._group = group
        self._asking = Consumer(group_config(settings))

    def _close(self) -> None:
        super()._close()
        self._asking.close()

    def _read(self, command: ReadAll) -> ReadDone:
        give_up = time.monotonic() + command.timeout_s  # one limit for both steps: the caller waits no longer
        done = super()._read(command)
        if not done.complete:
            return done
        committed, advanced_s = NO_OFFSET, time.monotonic()
        while time.monotonic() < give_up:
            offsets = fetch_committed(self._asking, self._settings, [command.place], self._group) or {}
            if offsets.get(command.place, NO_OFFSET) >= done.end or not done.end:
                return done
            if offsets.get(command.place, NO_OFFSET) > committed:
                committed, advanced_s = offsets[command.place], time.monotonic()
            time.sleep(POLL_S)
        return group_behind(done, time.monotonic() - advanced_s)


def _main(kind: type[MemberClient] | type[GroupReaderClient], settings: ClientSettings, control: Control) -> None:
    with (
        open_record(settings) as writer,
        OffsetWriter(settings.directory, GROUPS, settings.client) as group,
    ):
        kind(settings, control, writer, group).run()


def main(settings: ClientSettings, control: Control) -> None:
    """Run a member's process."""
    _main(MemberClient, settings, control)


def main_reader(settings: ClientSettings, control: Control) -> None:
    """Run the process of the final reads."""
    _main(GroupReaderClient, settings, control)

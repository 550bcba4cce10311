"""Client processes that read: consumers under load, and the fresh reader of the final reads.

Theory of operation. A poll that returns records proves their values and that the log is at least that long. An upper
bound of the log's length comes from an end query, or from a poll that finds the end. The library fetches ahead, so a
poll's answer may be older than the poll, but it is never older than the last request to fetch the partition again.
"""

import time
from collections.abc import Callable, Sequence
from random import Random

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from history.record.offset_record import LOOKUPS, OffsetWriter
from history.record.record_payload import value_of_record
from history.record.values import NOT_A_VALUE
from history.record.writer import OperationWriter
from workloads.client_record import POLL_S, LibraryClient, open_record
from workloads.contiguous_reads import columns_of_read, contiguous_runs
from workloads.control import Command, Control, ReadAll, ReadDone, SetPhase, StartLoad, StopLoad
from workloads.known_times import KnownTimes
from workloads.pacing import END_QUERIES_SHARE, Pacer
from workloads.settings import ClientSettings, consumer_config

POLL_RECORDS = 500
FRESH_SHARE = 0.5  # of a consumer's polls: before these, one partition is fetched again
PATIENCE_NS = 2_000_000_000  # without an answer to a repeated fetch, it is requested once more after this time

# Errors after which a partition is read again from its start.
_GONE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION, KafkaError.OFFSET_OUT_OF_RANGE})


class Reader:
    """Reads partitions through one librdkafka consumer and records each contiguous run of records as one read.

    `sees_ends`: a poll that finds the end of a partition is recorded, too: as a read without records, which shows that
    the log is no longer. Its invocation is the last request to fetch: the library discards what it fetched before.
    """

    def __init__(self, settings: ClientSettings, writer: OperationWriter, *, sees_ends: bool = False) -> None:
        self.settings = settings
        self._writer = writer
        self._consumer = Consumer(consumer_config(settings, sees_ends=sees_ends))
        self.on_records: Callable[[int, Sequence[Message]], None] | None = None
        """Called for each recorded run of records, with its partition."""
        self._next: dict[int, int] = {}
        self._since: dict[int, int] = {}  # time of the repeated fetch, for partitions whose end was not found since
        self._settled: set[int] = set()  # partitions whose position in the library is the end of their last record
        self._unanswered: dict[int, int] = {}  # time of the repeated fetch, for partitions without an answer since

    def assign(self, positions: dict[int, int]) -> None:
        """Read these partitions, each from its offset."""
        self._next = dict(positions)
        self._settled.clear()
        self._since = dict.fromkeys(positions, time.monotonic_ns())
        topic = self.settings.topic
        self._consumer.assign([TopicPartition(topic, p, offset) for p, offset in sorted(positions.items())])

    def ask_anew(self, partition: int) -> None:
        """Make the library discard what it fetched of a partition beyond the position and fetch it again, so that an
        end that it finds from now on is current. Pausing keeps the position's epoch, which seeking does not. It
        continues after the last record; a position that was set by a seek stays until a record has arrived."""
        since = time.monotonic_ns()
        is_waiting = since - self._unanswered.get(partition, since - PATIENCE_NS) < PATIENCE_NS
        if is_waiting or partition not in self._settled:
            return
        place = [TopicPartition(self.settings.topic, partition)]
        try:
            self._consumer.pause(place)
            self._consumer.resume(place)
        except KafkaException:
            return
        self._since[partition] = self._unanswered[partition] = since

    def position(self, partition: int) -> int:
        """The offset after the last record that was read."""
        return self._next[partition]

    def poll(self, timeout_s: float) -> tuple[int, int]:
        """Take and record what has arrived; returns the number of reads, and how many of them failed.

        A partition whose position is out of range moves after all that arrived was taken: the move may assign every
        partition again, each at its position."""
        inv = time.monotonic_ns()
        messages = self._consumer.consume(POLL_RECORDS, timeout_s)
        ret = time.monotonic_ns()
        reads = failed = 0
        records: dict[int, list[Message]] = {}
        moved: set[int] = set()
        for message in messages:
            error = message.error()
            if error is None:
                records.setdefault(_partition(message), []).append(message)
                continue
            partition = message.partition()
            if partition is None or partition < 0:
                continue  # the error concerns a broker, not a partition
            # Record earlier messages first: they belong to the position that the error may move.
            reads += self._take(partition, records.pop(partition, []), inv, ret, moved=partition in moved)
            if error.code() == KafkaError._PARTITION_EOF:
                reads += self._ended(partition, offset_of(message), ret)
            else:
                failed += 1
                if self._failed(partition, error, inv, ret):
                    moved.add(partition)
        for partition, batch in records.items():
            reads += self._take(partition, batch, inv, ret, moved=partition in moved)
        for partition in sorted(moved):
            self.go_to(partition, self._start(partition))
        return reads, failed

    def end(self, partition: int) -> int | None:
        """Ask the leader for the log's end and record the answer; None without an answer."""
        topic = self.settings.topic
        inv = time.monotonic_ns()
        try:
            answer = self._consumer.get_watermark_offsets(
                TopicPartition(topic, partition), timeout=self.settings.query_timeout_s, cached=False
            )
        except KafkaException as error:
            self._query_failed(partition, inv, error.args[0].name())
            return None
        if answer is None or answer[1] < 0:
            self._query_failed(partition, inv, "no answer")
            return None
        end = int(answer[1])
        ret = time.monotonic_ns()
        self._writer.add("end", "ok", inv=inv, ret=ret, topic=topic, partition=partition, lo=end, hi=end)
        return end

    def offset_of_time(self, partition: int, timestamp: int) -> int | None:
        """The offset of the first record that is not earlier than a timestamp in ms, -1 without one; None without an
        answer."""
        query = [TopicPartition(self.settings.topic, partition, timestamp)]
        try:
            [answer] = self._consumer.offsets_for_times(query, timeout=self.settings.query_timeout_s)
        except KafkaException:
            return None
        return None if answer.error is not None else max(-1, answer.offset)

    def close(self) -> None:
        self._consumer.close()

    def _query_failed(self, partition: int, inv: int, error: str) -> None:
        topic, ret = self.settings.topic, time.monotonic_ns()
        self._writer.add("end", "fail", inv=inv, ret=ret, topic=topic, partition=partition, error=error)

    def _take(self, partition: int, messages: Sequence[Message], inv: int, ret: int, *, moved: bool) -> int:
        """Record the records of one partition as reads; returns how many reads. `moved`: the position was moved in
        between, so that the requested offset is not known."""
        runs = list(contiguous_runs(messages, offset_of))
        for run in runs:
            offsets = [offset_of(message) for message in run]
            values = [value_of(message) for message in run]
            # The request was for the position; records that start at another offset skipped some or went back.
            start = offsets[0] if moved else self._next.get(partition, offsets[0])
            if not moved:
                self._next[partition] = offsets[-1] + 1
                self._settled.add(partition)
            read = columns_of_read(start, offsets, values)
            self._writer.add("read", "ok", inv=inv, ret=ret, topic=self.settings.topic, partition=partition, **read)
            if self.on_records is not None:
                self.on_records(partition, run)
        if messages:
            self._unanswered.pop(partition, None)
        return len(runs)

    def _ended(self, partition: int, end: int, ret: int) -> int:
        """Record that the log's end is at the position; returns whether it was recorded. Once for each repeated fetch:
        a later end of the same fetch proves nothing more about that moment."""
        self._unanswered.pop(partition, None)
        since, topic = self._since.pop(partition, None), self.settings.topic
        if since is None or end != self._next.get(partition):
            return 0
        self._writer.add("read", "ok", inv=since, ret=ret, topic=topic, partition=partition, offset=end, hi=end)
        return 1

    def _failed(self, partition: int, error: KafkaError, inv: int, ret: int) -> bool:
        """Record a read with an error; returns whether the log no longer has the offset, so that reading must restart
        at its beginning."""
        self._unanswered.pop(partition, None)
        place = {"topic": self.settings.topic, "partition": partition, "offset": self._next.get(partition, -1)}
        self._writer.add("read", "fail", inv=inv, ret=ret, error=error.name(), **place)
        return error.code() in _GONE

    def _start(self, partition: int) -> int:
        """The start of the log, as its leader states it; 0 without an answer."""
        place = TopicPartition(self.settings.topic, partition)
        try:
            answer = self._consumer.get_watermark_offsets(place, timeout=self.settings.query_timeout_s, cached=False)
        except KafkaException:
            return 0
        return 0 if answer is None else max(0, int(answer[0]))

    def go_to(self, partition: int, offset: int) -> None:
        """Continue at an offset. After a log has become shorter, the library may be in a state in which it cannot
        seek; assigning every partition again, at its position, ends that state."""
        self._next[partition] = offset
        self._unanswered.pop(partition, None)
        self._settled.discard(partition)
        try:
            self._since[partition] = time.monotonic_ns()
            self._consumer.seek(TopicPartition(self.settings.topic, partition, offset))
        except KafkaException:
            self.assign(self._next)


def offset_of(message: Message) -> int:
    offset = message.offset()
    assert offset is not None, "a record has an offset"
    return int(offset)


def value_of(message: Message) -> int:
    """The value of a record; `NOT_A_VALUE` for bytes that producers do not send."""
    if message.key() is not None or message.headers():
        return NOT_A_VALUE
    return value_of_record(message.value())


def _partition(message: Message) -> int:
    partition = message.partition()
    assert partition is not None, "a record has a partition"
    return int(partition)


class ConsumerClient(LibraryClient):
    """Reads all partitions from their start while the load runs, and queries their ends from time to time."""

    def __init__(self, settings: ClientSettings, control: Control, writer: OperationWriter) -> None:
        super().__init__(settings, control, writer)
        self._rng = Random(settings.seed)
        self._reader = Reader(settings, writer, sees_ends=settings.polls_show_ends)
        self._pacer: Pacer | None = None
        self._polls: Pacer | None = None

    def _patience_s(self) -> float:
        return 0.0 if self._polls else POLL_S

    def _close(self) -> None:
        self._reader.close()

    def _obey(self, command: Command) -> None:
        match command:
            case StartLoad():
                self._reader.assign(dict.fromkeys(range(self._settings.partitions), 0))
                now_s = time.monotonic()
                rate = self._settings.rate
                self._polls = Pacer(rate * (1 - END_QUERIES_SHARE), self._rng, start_s=now_s)
                self._pacer = Pacer(rate * END_QUERIES_SHARE, self._rng, start_s=now_s)
            case StopLoad():
                self._polls = self._pacer = None
                self._report_stop()
            case _:
                self._control.decline("consumer", command)

    def _work(self) -> None:
        if self._polls is not None and self._pacer is not None:
            time.sleep(min(POLL_S, self._polls.wait_s(time.monotonic())))
            if self._polls.take(time.monotonic()):
                self._poll()
            if self._pacer.take(time.monotonic()):
                end = self._reader.end(self._rng.randrange(self._settings.partitions))
                self._counts.add("fail" if end is None else "ok")
            self._counts.report(time.monotonic())
        self._writer.tick()

    def _poll(self) -> None:
        if self._settings.polls_show_ends and self._rng.random() < FRESH_SHARE:
            self._reader.ask_anew(self._rng.randrange(self._settings.partitions))
        reads, failed = self._reader.poll(POLL_S)
        self._counts.add("ok", reads)
        self._counts.add("fail", failed)


class ReaderClient(LibraryClient):
    """Reads whole partitions on command, from the first record to the end that the leader states."""

    def __init__(self, settings: ClientSettings, control: Control, writer: OperationWriter) -> None:
        super().__init__(settings, control, writer)
        self._reader = Reader(settings, writer)

    def _obey(self, command: Command) -> None:
        match command:
            case SetPhase():
                self._writer.phase = command.name
            case ReadAll():
                self._control.tell(self._read(command))
            case _:
                self._control.decline("reader", command)

    def _close(self) -> None:
        self._reader.close()

    def _read(self, command: ReadAll) -> ReadDone:
        """Read one partition completely; the answer has the offset that was reached, and the end."""
        partition, advanced_s = command.place, time.monotonic()
        give_up = advanced_s + command.timeout_s
        end = self._reader.end(partition)
        while end is None and time.monotonic() < give_up:
            time.sleep(0.05)
            end = self._reader.end(partition)
        if end is None:
            return ReadDone(command.id, complete=False, end=-1, read=0, idle_s=time.monotonic() - advanced_s)
        self._reader.assign({partition: 0})
        furthest = 0  # a reset to the start of the log does not count as an advance
        while self._reader.position(partition) < end and time.monotonic() < give_up:
            self._reader.poll(POLL_S)
            if self._reader.position(partition) > furthest:
                furthest, advanced_s = self._reader.position(partition), time.monotonic()
        self._writer.flush()
        read, idle_s = self._reader.position(partition), time.monotonic() - advanced_s
        return ReadDone(command.id, complete=read >= end, end=end, read=read, idle_s=idle_s)


def _main(kind: type[ConsumerClient] | type[ReaderClient], settings: ClientSettings, control: Control) -> None:
    with open_record(settings) as writer:
        kind(settings, control, writer).run()


def main(settings: ClientSettings, control: Control) -> None:
    """Run a consumer process."""
    _main(ConsumerClient, settings, control)


def main_reader(settings: ClientSettings, control: Control) -> None:
    """Run the process of the final reads."""
    _main(ReaderClient, settings, control)


class TieredConsumer(ConsumerClient):
    """A consumer of the workload `tiered`: it jumps before some of its polls, to the start or by timestamp.
    `workloads/kinds/tiered.py` has the theory of operation."""

    def __init__(
        self, settings: ClientSettings, control: Control, writer: OperationWriter, lookups: OffsetWriter
    ) -> None:
        super().__init__(settings, control, writer)
        self._lookups = lookups
        self._times = KnownTimes()
        self._reader.on_records = self._saw

    def _saw(self, partition: int, run: Sequence[Message]) -> None:
        stamped = [(offset_of(message), message.timestamp()[1]) for message in run]
        self._times.record(self._lookups, partition, stamped)

    def _poll(self) -> None:
        if self._rng.random() < self._settings.parameters["jumps_share"]:
            self._jump(self._rng.randrange(self._settings.partitions))
        super()._poll()

    def _jump(self, partition: int) -> None:
        timestamp = self._times.draw(partition, self._rng)
        if timestamp is None:
            self._reader.go_to(partition, 0)
            return
        inv = self._lookups.clock()
        offset = self._reader.offset_of_time(partition, timestamp)
        if offset is None:
            self._counts.add("fail")
            return
        self._lookups.add("lookup", partition, inv=inv, timestamp=timestamp, offset=offset)
        self._counts.add("ok")
        if offset >= 0:
            self._reader.go_to(partition, offset)


def main_tiered(settings: ClientSettings, control: Control) -> None:
    """Run a consumer process."""
    with OffsetWriter(settings.directory, LOOKUPS, settings.client) as lookups, open_record(settings) as writer:
        TieredConsumer(settings, control, writer, lookups).run()

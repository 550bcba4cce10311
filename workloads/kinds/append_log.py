"""A log that does not speak Kafka's protocol: appends, reads and end queries through a user-defined client."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from workloads import command_client, contract
from workloads.api import LogClient
from workloads.contiguous_reads import columns_of_read, contiguous_runs
from workloads.control import AppendResult, Control
from workloads.kind import ClientRole, WorkloadKind
from workloads.kinds.log import CONSUMERS, PRODUCERS, clients, mix, partitions
from workloads.pacing import END_QUERIES_SHARE
from workloads.settings import ClientSettings
from workloads.user_process import RETRY_S, OwnProcess

if TYPE_CHECKING:
    from history.record.writer import OperationWriter

READ_LIMIT: Final = 500


class _Log(OwnProcess[LogClient]):
    """The common base of producers and readers."""

    base = LogClient

    def __init__(self, settings: ClientSettings, control: Control, writer: OperationWriter) -> None:
        super().__init__(settings, control, writer)
        self._next = dict.fromkeys(range(settings.partitions), 0)

    def probe(self, place: int) -> str | None:
        result = self.append(place)
        return None if result.outcome == "ok" else result.error

    def append(self, partition: int) -> AppendResult:
        """One append; recorded if a client object existed to send it."""
        if error := self.connected():
            return AppendResult("fail", -1, error)
        invocation = self._writer.start("append", topic=self.settings.topic, partition=partition)
        called = self.call("append", lambda client: contract.appended(client.append(partition, invocation.value)))
        offset = called.value if called.outcome == "ok" else -1
        self._writer.end(invocation, called.outcome, offset=offset, error=called.error)
        return AppendResult(called.outcome, offset, called.error)

    def read_all(self, place: int, give_up_s: float) -> tuple[bool, int, int]:
        end = self._end(place)
        while end is None and time.monotonic() < give_up_s:
            time.sleep(RETRY_S)
            end = self._end(place)
        if end is None:
            return False, -1, 0
        self._next[place] = furthest = 0
        while self._next[place] < end and time.monotonic() < give_up_s:
            if not self._read(place):
                time.sleep(RETRY_S)
            if self._next[place] > furthest:
                furthest = self._next[place]
                self.advanced()
        return self._next[place] >= end, end, self._next[place]

    def _read(self, partition: int) -> int | None:
        """Read on from the position; returns the number of records, or None without an answer."""
        if self.connected():
            return None
        start, place = self._next[partition], {"topic": self.settings.topic, "partition": partition}
        inv = time.monotonic_ns()
        called = self.call(
            "read",
            lambda client: (
                contract.records(client.read(partition, start, READ_LIMIT)),
                contract.shows_ends(client.reads_show_ends),
            ),
        )
        ret = time.monotonic_ns()
        if called.outcome != "ok":
            self._writer.add("read", "fail", inv=inv, ret=ret, offset=start, error=called.error, **place)
            return None
        records, shows_end = called.value
        if not records and shows_end:
            self._writer.add("read", "ok", inv=inv, ret=ret, offset=start, hi=start, **place)
        for run in contiguous_runs(records, lambda record: record[0]):
            offsets, values = [offset for offset, _ in run], [value for _, value in run]
            read = columns_of_read(self._next[partition], offsets, values)
            self._writer.add("read", "ok", inv=inv, ret=ret, **place, **read)
            self._next[partition] = offsets[-1] + 1
        return len(records)

    def _end(self, partition: int) -> int | None:
        """Query the log's end. If it is below the position, the log was truncated: reading restarts at offset 0."""
        if self.connected():
            return None
        invocation = self._writer.start("end", topic=self.settings.topic, partition=partition)
        called = self.call("end", lambda client: contract.ended(client.end(partition)))
        if called.outcome != "ok":
            self._writer.end(invocation, "fail", error=called.error)
            return None
        end: int = called.value
        self._writer.end(invocation, "ok", lo=end, hi=end)
        if end < self._next[partition]:
            self._next[partition] = 0
        return end


class _Producer(_Log):
    who = "producer"

    def operate(self) -> str:
        result = self.append(self.rng.randrange(self.settings.partitions))
        if result.outcome == "ok":
            self.acknowledged()
        return result.outcome


class _Consumer(_Log):
    who = "consumer"

    def operate(self) -> str:
        partition = self.rng.randrange(self.settings.partitions)
        if self.rng.random() < END_QUERIES_SHARE:
            return "fail" if self._end(partition) is None else "ok"
        return "fail" if self._read(partition) is None else "ok"


def _main(kind: type[_Log]) -> Callable[[ClientSettings, Control], None]:
    def main(settings: ClientSettings, control: Control) -> None:
        from workloads.client_record import open_record

        if settings.own.client_command:
            command_client.main(settings, control, kind.who)
            return
        with open_record(settings) as writer:
            kind(settings, control, writer).run()

    return main


KIND: Final = WorkloadKind(
    name="append-log",
    description="Producers append, consumers read and query ends, through a user-defined client for any log.",
    judge="log",
    partitioned=True,
    own_client=True,
    parameters=(PRODUCERS, CONSUMERS),
    roles={
        "producer": ClientRole(_main(_Producer), changes=True),
        "consumer": ClientRole(_main(_Consumer), changes=False),
    },
    clients=clients,
    mix=mix,
    places=partitions,
    probe="producer",
    probe_means="an append to each partition is acknowledged",
    reader="consumer",
    read_means="each partition is read from offset 0 to the end that the system states",
    steps=frozenset({"produce", "consume"}),
)

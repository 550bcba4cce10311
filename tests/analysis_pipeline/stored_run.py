"""Makes a run's directory as an orchestrator would leave it: a small cluster's record, with one thing changed."""

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from analysis.evidence.earlier_dumps import REACHING
from history.journal.writer import Journal
from history.record.client_files import left_by
from history.record.offset_record import GROUPS, OffsetWriter
from history.record.schemas import PHASE_FINAL
from history.record.shapes import LOG
from history.record.values import encode_value
from history.record.writer import OperationWriter
from history.seal import seal
from orchestrator.campaign import toml_text
from orchestrator.campaign.plan import derived_seed
from tests.analysis.message_files import message, messages, wrapper
from tests.analysis.remote_files import json_started, write_events
from tests.analysis.segment_files import (
    batch,
    log_bytes,
    record,
    value,
    write_high_watermarks,
    write_identity,
    write_replica,
)

RECORDS = 40
MS = 1_000_000
NODES = ("n1", "n2", "n3")


@dataclass
class Clock:
    """A clock in nanoseconds that a test advances."""

    now: int = 1_000_000_000

    def __call__(self) -> int:
        return self.now

    def wall(self) -> float:
        return 1_700_000_000 + self.now / 1e9


@dataclass
class StoredRun:
    """One partition, `RECORDS` acknowledged appends, one fault, a final read, three equal replicas, unless the fields
    say otherwise."""

    path: Path
    clock: Clock = field(default_factory=Clock)
    expect: dict[str, str] = field(default_factory=lambda: {"verdict": "pass"})
    seed: int = 1
    world: str = "paper"
    cell: str = "main"
    campaign: str | None = None  # the text of campaign.toml
    partitions: int = 1
    changes: int = RECORDS  # that are planned
    min_ok: int = RECORDS
    required: tuple[str, ...] = ("kill",)
    use: tuple[str, ...] = ()  # checkers of the campaign's own
    checkers: dict[str, str] = field(default_factory=dict)  # the texts of their files
    fault_behind: int = RECORDS // 2  # it comes when the append at this offset has been acknowledged
    fault_status: str = "confirmed"
    fault_parameters: dict[str, Any] = field(default_factory=dict)
    fault_shows: str = "gone"  # the state of the node that it hit, as its evidence has it
    lost: int | None = None  # this offset's value is gone, and what follows has moved up
    diverging: str | None = None  # this node has another record at the last offset
    uploaded: int | None = None  # the last offset of a remote segment that the metadata on n1 declare
    final_read: bool = True
    shown_from: int = 0  # a read of the whole log starts here, and so does delivery to a member of a group
    has_group: bool = False  # there is such a member, and it commits the end
    magic: int = 2  # message format of the replicas' files
    codec: int = 0  # in which their records are compressed: 0, or one of `compressed_sets.ALL`
    corrupt: str | None = None  # in the last record of this node a byte is another
    unknown_format_on: str | None = None  # the last record of this node is in an unknown message format
    replica_format: str = "kafka"  # what run.toml says of them
    settings: dict[str, Any] = field(default_factory=dict)  # of the brokers
    records: str = "derived"  # what run.toml says that they are made of
    kind: str = "log"  # of the workload
    judge: str = "log"
    exits: tuple[tuple[str, int | None, int | None, str], ...] = ()  # node, exit code, signal, last words
    fatal_lines: tuple[tuple[str, str, str], ...] = ()  # node, pattern, line
    described: dict[str, Any] | None = None  # what run.toml says instead, of the same cluster
    phases: tuple[str, ...] = ("setup", "main", "heal", "quiesce", "final", "collect", "done")

    def values(self) -> list[int]:
        """The values in the log as replicas and readers have them."""
        return [encode_value(1, 0, n) for n in range(RECORDS) if n != self.lost]

    def write(self) -> Path:
        self.path.mkdir(parents=True)
        self._describe()
        self._replicas()
        self._record()
        if "done" in self.phases:
            seal(self.path)
        return self.path

    def _describe(self) -> None:
        if self.campaign is not None:
            (self.path / "campaign.toml").write_text(self.campaign)
        content = {
            "run": self.path.name,
            "campaign": "story",
            "cell": self.cell,
            "world": self.world,
            "seed": self.seed,
            "replay": "./brownout run story.toml --seed 1",
            "mutants": [],
            "limits": ["nothing here is real"],
            "expect": self.expect,
            "checks": {
                "upper_bound": "strict",
                "min_ok": self.min_ok,
                "min_queries": 0,
                "required_faults": list(self.required),
                "use": list(self.use),
            },
            "checkers": self.checkers,
            "topology": {"nodes": len(NODES)},
            "system": {"roles": dict.fromkeys(NODES, "broker")},
            "replicas": {"format": self.replica_format, "records": self.records},
            "metadata": {"format": "none", "traced": False},
            "workload": {
                "kind": self.kind,
                "judge": self.judge,
                "topic": "log",
                "partitions": self.partitions,
                "placement": "spread",
                "assignment": [[1, 2, 3]] * self.partitions,
                "record_bytes": 20,
            },
            "plan": {"clients": [*self._clients], "changes": self.changes, "queries": 0},
            "nemesis": {"kind": "random", "faults": ["kill"]},
            "settings": {"broker": self.settings},
            "versions": {"python": "3"},
        }
        (self.path / "run.toml").write_text(toml_text.dump(content if self.described is None else self.described))

    @property
    def _clients(self) -> tuple[str, ...]:
        """The clients that append and the clients that read."""
        return ("producer-0", "reader-0") if self.described is None else ("producer-1", "reader-1")

    def _record(self) -> None:
        journal = Journal(self.path, clock=self.clock, wall=self.clock.wall)
        journal.run_started(run=self.path.name, cell=self.cell, seed=self.seed, world=self.world)
        for phase in self.phases:
            self.clock.now += 100 * MS
            journal.phase(phase)
            if phase == "setup":
                journal.assignment([[1, 2, 3]] * self.partitions)
                for node in NODES:
                    journal.node(node, "started")
            if phase == "main":
                self._appends(journal)
                if self.described is not None:
                    self._probe(journal)
                if self.has_group:
                    self._group(journal)
                self._processes(journal)
                if self.described is not None:
                    self.clock.now += int(self.described["workload"]["duration_s"] * 1_000) * MS
            if phase == "final" and self.final_read:
                self._final_read(journal)
            if phase == "heal":
                self._earlier_dumps(journal)
                up = {node: {"port": "open"} for node in NODES}
                journal.event("heal_all", status="confirmed", evidence={"services": up})
            if phase == "collect":
                for number, node in enumerate(NODES, 1):
                    journal.node(node, "running", pid=number, start="7")
                    journal.node(node, "stopped", status=0, ran=True)
        journal.close()

    def _earlier_dumps(self, journal: Journal) -> None:
        """Where the world reaches the files of nodes the cluster was as it is at the end."""
        if self.world not in REACHING:
            journal.note("no earlier dump", dumped=[], undumped="nothing here runs")
            return
        for node in NODES:
            directory = self.path / "nodes" / node
            shutil.copytree(directory / "data", directory / "earlier")
        journal.note("dumped", dumped=list(NODES))

    def _appends(self, journal: Journal) -> None:
        self._client(journal, self._clients[0], process=0, role="producer", producers=(0, 1))
        writer = OperationWriter(
            LOG,
            self.path / "history" / "operations",
            client=self._clients[0],
            session=1,
            process=0,
            producer=0,
            clock=self.clock,
        )
        for offset in range(RECORDS):
            append = writer.start("append", topic="log", partition=0)
            self.clock.now += 3 * MS
            writer.end(append, "ok", offset=offset)
            if offset == self.fault_behind:
                self._fault(journal)
        writer.close()
        self._left(journal, self._clients[0])

    def _probe(self, journal: Journal) -> None:
        self._client(journal, "probe", process=2, role="producer", producers=(2, 1))
        OperationWriter(
            LOG,
            self.path / "history" / "operations",
            client="probe",
            session=1,
            process=2,
            producer=2,
            clock=self.clock,
        ).close()
        self._left(journal, "probe")

    def _client(self, journal: Journal, name: str, *, process: int, role: str, producers: tuple[int, int]) -> None:
        seed = derived_seed(self.seed, f"client/{name}")
        (self.path / "clients").mkdir(exist_ok=True)
        (self.path / "clients" / f"{name}.log").touch()
        journal.client(name, process=process, role=role, session=1, producers=producers, seed=seed)

    def _left(self, journal: Journal, client: str) -> None:
        files = left_by(self.path / "history" / "operations", client)
        journal.client_ended(client, exit_code=0, files=files)

    def _group(self, journal: Journal) -> None:
        self._client(journal, "member-0", process=2, role="member", producers=(0, 0))
        operations = OperationWriter(
            LOG, self.path / "history" / "operations", client="member-0", session=1, process=2, clock=self.clock
        )
        read = range(self.shown_from, RECORDS)
        values = [self.values()[offset] for offset in read]
        with OffsetWriter(self.path / "history" / "operations", GROUPS, "member-0", self.clock) as writer:
            writer.event("assign", [0])
            now = self.clock.now
            columns = {"offset": read[0], "offsets": list(read), "values": values, "lo": RECORDS}
            operations.add("read", "ok", inv=now, ret=now, topic="log", partition=0, **columns)
            writer.add("deliver", 0, ret=now, first=self.shown_from, offset=RECORDS - 1)
            self.clock.now += MS
            acknowledged = writer.commit({0: RECORDS}, attempt_s=4.0)
            self.clock.now += MS
            acknowledged([0])
        operations.close()
        with OffsetWriter(self.path / "history" / "operations", GROUPS, self._clients[1], self.clock) as writer:
            writer.fetched({0: RECORDS}, inv=self.clock.now)
        self._left(journal, "member-0")

    def _processes(self, journal: Journal) -> None:
        for node, code, signal, words in self.exits:
            journal.service_exit(node, code, signal, words)
        for node, pattern, line in self.fatal_lines:
            journal.fatal_line(node, pattern, line)

    def _fault(self, journal: Journal) -> None:
        must = {"seen": [{"key": "state", "values": ["gone"]}], "healed": [{"key": "port", "values": ["open"]}]}
        declared = {"sentence": "the service on n2 is killed", "must_show": must}
        journal.fault_invoked("f1", "kill", ["n2"], self.fault_parameters, **declared)  # type: ignore[arg-type]
        journal.fault_injected("f1", self.fault_status, {"n2": {"state": self.fault_shows}}, proof="n2: process gone")
        self.clock.now += 50 * MS
        journal.fault_healed("f1", evidence={"healed": {"status": "confirmed", "detail": {"n2": {"port": "open"}}}})

    def _final_read(self, journal: Journal) -> None:
        self._client(journal, self._clients[1], process=1, role="reader", producers=(0, 0))
        writer = OperationWriter(
            LOG, self.path / "history" / "operations", client=self._clients[1], session=1, process=1, clock=self.clock
        )
        writer.phase = PHASE_FINAL
        values = self.values()
        end = writer.start("end", topic="log", partition=0)
        self.clock.now += MS
        writer.end(end, "ok", lo=len(values), hi=len(values))
        read = writer.start("read", topic="log", partition=0, offset=0)
        self.clock.now += MS
        offsets = list(range(self.shown_from, len(values)))
        writer.end(read, "ok", offsets=offsets, values=values[self.shown_from :], lo=len(values))
        writer.close()
        self._left(journal, self._clients[1])

    def _replicas(self) -> None:
        for node in NODES:
            values = self.values()
            if node == self.diverging:
                values[-1] = encode_value(1, 0, 999)
            data = self.path / "nodes" / node / "data"
            if node == self.unknown_format_on:
                content = self._log_bytes(values[:-1]) + message(len(values) - 1, b"", magic=7)
            elif node == self.corrupt:
                wrong = record(0, value(values[-1], 19) + b"!")
                content = self._log_bytes(values[:-1]) + batch(len(values) - 1, 1, [wrong], codec=self.codec)
            else:
                content = self._log_bytes(values)
            write_replica(data, "log", 0, {0: content}, epochs=[(1, 0)] if self.magic == 2 else None)
            write_high_watermarks(data, {("log", 0): len(values)})
            write_identity(data, NODES.index(node) + 1)
            self._events(node, len(values))
        if self.uploaded is not None:
            write_events(self.path / "nodes" / "n1" / "data", [json_started(UUID(int=1), 0, self.uploaded, [(1, 0)])])

    def _log_bytes(self, values: list[int]) -> bytes:
        if self.magic == 2:
            return log_bytes([1] * len(values), values, codec=self.codec)
        if self.codec:
            return wrapper(0, [value(each, 20) for each in values], magic=self.magic, codec=self.codec)
        return messages(values, magic=self.magic)

    def _events(self, node: str, end: int) -> None:
        wall = int(self.clock.wall() * 1e9)
        event = {"event": "replica_progress", "node": 1, "wall": wall, "topic": "log", "partition": 0}
        event |= {"log_end_offset": end, "high_watermark": end, "leader_epoch": 1}
        torn = '{"event": "replica_prog'  # the node was killed while it wrote
        (self.path / "nodes" / node / "service.log").write_text("nothing to report\n")
        (self.path / "nodes" / node / "events.jsonl").write_text(json.dumps(event) + "\n" + torn)

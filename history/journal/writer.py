"""Writes the run loop's journal: `journal.jsonl`, one JSON object per line, written whole before the loop continues.

The lines have checksums (`history.checksummed_lines`): a reader (`history.journal.reader`) detects lost, changed and
moved lines. Every line has `t` (CLOCK_MONOTONIC ns, the clock of the operations), `wall` (seconds since the epoch) and
`event`: `run_started`, `phase` {name}, `assignment` {replicas}, `client` {client, process, role, session, producers},
`client_ended` {client, exit_code, files}, `fault_invoked` / `fault_injected` / `fault_healed` {id, ...}, `heal_all`
{status, evidence}, `step_done` {step}, `reassigned` {partition, replicas}, `joined` {node, partition, ...},
`deletion_sent` {client, number, partition, offset}, `records_deleted` {client, number, low_watermark, error},
`administered` {client, operation, target, outcome, error, arguments}, `cluster_seen` {client, nodes, ...}, `node`
{node, what, ...}: `running` as seen before the end {pid, start}, `stopped` in order {status}; `note` {text},
`service_exit` {node, exit_code, signal, last_words, way, kernel, core}, `fatal_line` {node, pattern, line}, `log_event`
{node, name, line}, `converged` {seconds} or `not_converged` {bound_s, seen, running, reached} after everything was
healed, the former only where the campaign states a bound. `final_read_stalled` {place, bound_s, reads, takes_writes,
ended, running, reached}: a final read was given up, and another reader's, too. `tester_short` {resource, since, seen}:
the tester itself ran out of something.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from history.checksummed_lines import LineWriter
from history.damage import Damage
from history.fault_looks import FaultGroup, FaultMark
from history.journal.service_events import ENDED, FATAL_LINE, LOG_EVENT, SERVICE_EXIT, WAYS

FILE_NAME: Final = "journal.jsonl"
RESERVE: Final = 1 << 16
"""Bytes of disk space that an open journal keeps, so that it can record that the disk is full."""
TESTER_SHORT: Final = "tester_short"
ASSIGNMENT: Final = "assignment"
REASSIGNED: Final = "reassigned"
JOINED: Final = "joined"
ADMINISTERED: Final = "administered"
REASSIGN: Final = "reassign"
"""The operation of an administrator that gives a partition of the workload's topic other replicas."""
CLUSTER_SEEN: Final = "cluster_seen"
DELETION_SENT: Final = "deletion_sent"
RECORDS_DELETED: Final = "records_deleted"
TOPIC_READY: Final = "topic_ready"
SCHEDULE_START: Final = "schedule_start"
"""The text of the note at the time from which a schedule of faults counts."""
"""The text of the note that all partitions of the topic take load."""
CLIENT: Final = "client"
CLIENT_ENDED: Final = "client_ended"
PHASES: Final = ("setup", "main", "heal", "quiesce", "final", "collect", "done")
CONVERGED: Final = "converged"
NOT_CONVERGED: Final = "not_converged"
FINAL_READ_STALLED: Final = "final_read_stalled"
STATUSES: Final = ("confirmed", "prevented", "mismatch", "inconclusive")


def wall_ahead(lines: Iterable[Mapping[str, Any]]) -> list[int]:
    """By how many ns the wall clock was ahead of the run's clock, for each line that has both. The values differ only
    by the time between reading the two clocks, unless the wall clock was set."""
    return [round(line["wall"] * 1e9) - line["t"] for line in lines if "wall" in line and "t" in line]


class Journal:
    """Appends to a run's journal. Safe to use from several threads."""

    def __init__(
        self,
        run: Path | str,
        *,
        clock: Callable[[], int] = time.monotonic_ns,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Opens (or continues) `<run>/history/journal.jsonl`."""
        self._clock = clock
        self._wall = wall
        self._lock = threading.Lock()
        path = Path(run) / "history" / FILE_NAME
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lines = LineWriter(path, continues=True, reserve=RESERVE)

    def event(self, event: str, **fields: Any) -> int:
        """Writes one line and returns its `t`; lines are in the order of their times."""
        with self._lock:
            t = self._clock()
            self._lines.write({"t": t, "wall": self._wall(), "event": event, **fields})
        return t

    @property
    def has_room(self) -> bool:
        """Whether disk space could be kept for further lines."""
        return self._lines.has_room

    def run_started(self, **fields: Any) -> int:
        """Ties the monotonic clock of this boot to the wall clock."""
        return self.event("run_started", **fields)

    def phase(self, name: str) -> int:
        """The run enters a phase. Raises ValueError for a name that is not in `PHASES`."""
        if name not in PHASES:
            raise ValueError(f"unknown phase {name!r}: one of {', '.join(PHASES)}")
        return self.event("phase", name=name)

    def assignment(self, replicas: Sequence[Sequence[int]]) -> int:
        """The nodes of each partition's replicas, by number, the preferred leader first; known when the topic is
        created."""
        return self.event(ASSIGNMENT, replicas=[list(ids) for ids in replicas])

    def reassigned(self, partition: int, replicas: Sequence[int]) -> int:
        """The cluster has accepted these nodes (by number) as a partition's replicas."""
        return self.event(REASSIGNED, partition=partition, replicas=list(replicas))

    def joined(
        self,
        node: str,
        partition: int,
        *,
        leader: str,
        seconds: float,
        before: Mapping[str, int],
        after: Mapping[str, int],
        segments: Sequence[int],
        moved: int,
        epochs: Sequence[Sequence[int]],
        leader_epochs: Sequence[Sequence[int]],
        starts_at: str | None,
    ) -> int:
        """A replica that was added to a partition is in sync. `seconds`: since the cluster accepted it. `before`,
        `after`: the leader's offsets by name, at the acceptance and when the replica was in sync. `segments`: the first
        offsets of the new replica's own segments; `moved`: their size in bytes. `epochs`, `leader_epochs`: the entries
        (epoch, start offset) of the epoch files of both. `starts_at`: the name of the offset at which the script
        requires the new replica to start, None without a requirement."""
        return self.event(
            JOINED,
            node=node,
            partition=partition,
            leader=leader,
            seconds=seconds,
            before=dict(before),
            after=dict(after),
            segments=list(segments),
            moved=moved,
            epochs=[list(entry) for entry in epochs],
            leader_epochs=[list(entry) for entry in leader_epochs],
            starts_at=starts_at,
        )

    def deletion_sent(self, client: str, number: int, partition: int, offset: int) -> int:
        """A client is about to ask for the deletion of a partition's records below an offset (DeleteRecords). `number`:
        of the client's requests."""
        return self.event(DELETION_SENT, client=client, number=number, partition=partition, offset=offset)

    def records_deleted(self, client: str, number: int, low_watermark: int, error: str) -> int:
        """The outcome of a client's request: the low watermark of the answer, or -1 and the error."""
        return self.event(RECORDS_DELETED, client=client, number=number, low_watermark=low_watermark, error=error)

    def client(
        self,
        client: str,
        *,
        process: int,
        role: str,
        session: int,
        producers: tuple[int, int],
        seed: int | None = None,
    ) -> int:
        """A client process is started. `producers`: the first number of a producer that its values may have, and the
        number of such numbers; 0 if it never writes. `seed`: of its random draws."""
        fields = {} if seed is None else {"seed": seed}
        return self.event(
            CLIENT, client=client, process=process, role=role, session=session, producers=list(producers), **fields
        )

    def client_ended(
        self, client: str, *, exit_code: int | None, files: Mapping[str, Mapping[str, Any]], killed: int = 0
    ) -> int:
        """A client process has ended and left these files, as `history.record.client_files` lists them. `killed`: the
        number of its child processes that were killed."""
        fields = {"killed": killed} if killed else {}
        return self.event(CLIENT_ENDED, client=client, exit_code=exit_code, files=dict(files), **fields)

    def fault_invoked(
        self,
        fault: str,
        kind: str,
        targets: Sequence[str],
        parameters: Mapping[str, Any] | None = None,
        *,
        sentence: str = "",
        must_show: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
        may_destroy: Iterable[Damage] = (),
        look: tuple[FaultGroup, FaultMark] | None = None,
    ) -> int:
        """A fault is about to be injected; `fault` is its id, unique in the run. `sentence` describes it for readers.
        `must_show`: what its evidence (`seen`) and its heal's (`healed`) must show, in the form of `EvidenceRule`.
        `may_destroy`: the damage that it may do to its targets, which checkers excuse. `look`: its colour group and
        shape in plots."""
        return self.event(
            "fault_invoked",
            id=fault,
            kind=kind,
            targets=list(targets),
            parameters=dict(parameters or {}),
            sentence=sentence,
            must_show={moment: list(facts) for moment, facts in (must_show or {}).items()},
            may_destroy=sorted(may_destroy),
            **({} if look is None else {"group": look[0], "mark": look[1]}),
        )

    def fault_injected(
        self, fault: str, status: str, evidence: Mapping[str, Any] | None = None, *, proof: str = ""
    ) -> int:
        """The fault is in force, according to `evidence`: confirmed, mismatch or inconclusive. `proof`: the most
        important part of the evidence, for people."""
        if status not in STATUSES:
            raise ValueError(f"unknown status {status!r}: one of {', '.join(STATUSES)}")
        return self.event("fault_injected", id=fault, status=status, evidence=dict(evidence or {}), proof=proof)

    def fault_healed(
        self, fault: str, status: str | None = None, evidence: Mapping[str, Any] | None = None, *, proof: str = ""
    ) -> int:
        """The fault is over. A `status` or `proof` given here replaces the one given at injection, because some
        evidence arrives late."""
        if status is not None and status not in STATUSES:
            raise ValueError(f"unknown status {status!r}: one of {', '.join(STATUSES)}")
        late = ({} if status is None else {"status": status}) | ({"proof": proof} if proof else {})
        return self.event("fault_healed", id=fault, evidence=dict(evidence or {}), **late)

    def node(self, node: str, what: str, **fields: Any) -> int:
        """Something happened to a node: started, stopped, gone."""
        return self.event("node", node=node, what=what, **fields)

    def service_exit(
        self,
        node: str,
        exit_code: int | None,
        signal: int | None,
        last_words: str,
        *,
        way: str = ENDED,
        kernel: str = "",
        core: str = "",
    ) -> int:
        """A process of the system on `node` did something that no fault, no step and no end of the run caused; see
        `history.journal.service_events.ServiceExit`. Raises ValueError for an unknown `way`, and if both an exit code
        and a signal are given.
        """
        if way not in WAYS:
            raise ValueError(f"unknown way {way!r}: one of {', '.join(WAYS)}")
        if exit_code is not None and signal is not None:
            raise ValueError(f"a process on {node} ended with exit code {exit_code} or by signal {signal}, not both")
        facts = {"exit_code": exit_code, "signal": signal, "last_words": last_words}
        fields = {key: text for key, text in (("kernel", kernel), ("core", core)) if text}
        return self.event(SERVICE_EXIT, node=node, **facts, way=way, **fields)

    def fatal_line(self, node: str, pattern: str, line: str) -> int:
        """A process of the system on `node` logged a line that matches a pattern which the system declares fatal."""
        return self.event(FATAL_LINE, node=node, pattern=pattern, line=line)

    def log_event(self, node: str, name: str, line: str) -> int:
        """A process of the system on `node` logged a line that the system declares to be this event. It was logged
        shortly before."""
        return self.event(LOG_EVENT, node=node, name=name, line=line)

    def tester_short(self, resource: str, *, since: int, seen: str) -> int:
        """The tester itself ran out of a resource (disk, descriptors, memory, processes). `since`: the `t` of the last
        check that found enough of it; `seen`: the observation, as a sentence."""
        return self.event(TESTER_SHORT, resource=resource, since=since, seen=seen)

    def converged(self, seconds: float) -> int:
        """This many seconds after everything was healed the cluster was whole and accepted writes everywhere."""
        return self.event(CONVERGED, seconds=seconds)

    def not_converged(
        self, bound_s: float, seen: str, *, running: Sequence[str] | None = None, reached: Sequence[str] | None = None
    ) -> int:
        """The bound (seconds of the world's clock) passed without recovery; `seen`: what was awaited and last
        observed. `running`, `reached`: the nodes whose services were then seen to run, and those that answered the
        tester; None: not examined."""
        fields = {"running": running, "reached": reached}
        looked = {key: list(names) for key, names in fields.items() if names is not None}
        return self.event(NOT_CONVERGED, bound_s=bound_s, seen=seen, **looked)

    def final_read_stalled(
        self,
        place: str,
        bound_s: float,
        reads: Sequence[Mapping[str, Any]],
        *,
        takes_writes: bool,
        ended: Sequence[str],
        running: Sequence[str],
        reached: Sequence[str],
    ) -> int:
        """Complete reads of a place by readers that were started one after the other, each given up after `bound_s`.
        `reads`: read, end, idle_s and error of each, as in `workloads.control.ReadDone`. `takes_writes`: whether the
        place took a change between them. `ended`: the clients that had ended. `running`, `reached`: as in
        `not_converged`."""
        return self.event(
            FINAL_READ_STALLED,
            place=place,
            bound_s=bound_s,
            reads=[dict(read) for read in reads],
            takes_writes=takes_writes,
            ended=list(ended),
            running=list(running),
            reached=list(reached),
        )

    def note(self, text: str, **fields: Any) -> int:
        """A remark for readers of the journal."""
        return self.event("note", text=text, **fields)

    def close(self) -> None:
        """Closes the file; safe to call twice."""
        with self._lock:
            self._lines.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

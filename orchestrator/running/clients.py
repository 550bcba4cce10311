"""The client processes of one run: starts, loads, probes and ends them. The workload's kind defines what they do.

Computes how long a run waits until its own clients are ready.

Late clients are not the fault of the system under test: each is a process that loads libraries, all start at once, and
the machine may have other work. A constant deadline would end healthy runs. So the deadline grows with the number of
clients, the load of the machine and the world's time scale. No verdict depends on it: a run whose clients are late is
unknown.
"""

import contextlib
import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from history.journal.writer import ADMINISTERED, CLUSTER_SEEN, REASSIGN, Journal
from history.record.client_files import left_by
from installation.counted import counted
from nemeses.scheduling import REAL_TIME, Scheduler, ThreadScheduler
from orchestrator.campaign.description import PROBE, reader_name
from orchestrator.campaign.plan import PlannedRun
from orchestrator.errors import OverdueError, RunError, StalledReadError
from workloads import control
from workloads.command_client import probe_every_s, producers_of
from workloads.kinds import KINDS
from workloads.process import ClientError, ClientHandle, ClientProcess, StartClient
from workloads.settings import ClientSettings, WorkloadFile, outcome_timeout_s

READY_S: Final = 30.0
EACH_CLIENT_S: Final = 2.0
MOST_CROWDED: Final = 8.0


def crowding() -> float:
    """Runnable processes per processor over the last minute: at least 1, at most `MOST_CROWDED`."""
    try:
        waiting = os.getloadavg()[0]
    except OSError:  # not available on every system
        return 1.0
    return min(MOST_CROWDED, max(1.0, waiting / (os.cpu_count() or 1)))


def ready_s(clients: int, *, time_scale: float, crowded: float) -> float:
    """Seconds within which this number of clients, started at once, must be ready. `crowded`: as `crowding`."""
    return (READY_S + EACH_CLIENT_S * clients) * time_scale * crowded


def crowding_of(scheduler: Scheduler) -> float:
    """The crowding of the machine whose time a scheduler measures. It is 1 for virtual time: a simulated run must be
    the same however busy the real machine is."""
    return crowding() if isinstance(scheduler, ThreadScheduler) else 1.0


LEAST_READ_S = 3.0
STOP_S = 8.0  # in addition to the time in which an operation gets its outcome
PROBE_ATTEMPT_S = 3.0
SESSION = 1
UNDER_LOAD, IN_THE_END = "main", "final"  # operation phases of history.record.schemas, which would import Arrow


class Fleet:
    """Not thread-safe. Use the main thread only: the kernel ends a client when the thread that started it ends."""

    def __init__(
        self,
        planned: PlannedRun,
        run_dir: Path,
        bootstrap: str,
        journal: Journal,
        time_scale: float = 1.0,
        *,
        scheduler: Scheduler = REAL_TIME,
        start_client: StartClient = ClientProcess,
        on_failure: Callable[[str, Sequence[str], int | None], None] = lambda *_: None,
    ) -> None:
        """`start_client`: the world's function that starts a client. `on_failure`: called with the name, the error
        output and the exit code of a client that ended unexpectedly."""
        workload = planned.campaign.workload
        self._planned = planned
        self._kind = KINDS[workload.kind]
        self._planned_clients = self._kind.clients(workload.load)
        self._places = self._kind.places(workload.load)
        self._run_dir = run_dir
        self._records = run_dir / "history" / "operations"
        self._bootstrap = bootstrap
        self._journal = journal
        self._time_scale = time_scale
        self._scheduler = scheduler
        self._start_client = start_client
        self._on_failure = on_failure
        self._number = 0
        self._clients: list[ClientHandle] = []
        self._load: list[ClientHandle] = []
        self._probe: ClientHandle | None = None
        self._readers = 0
        self._waiting: list[ClientHandle] = []  # ready; get their load after the first acknowledged operation
        self._others_started = False
        self._completed = False
        self._loading = False
        self._unresolved = 0
        self.reassigned: dict[int, tuple[int, ...]] = {}
        """The replicas, by node number, of the partitions that an administrator gave other ones."""

    @property
    def has_first(self) -> bool:
        """Whether any client starts the load; without one nothing is acknowledged before the probe."""
        return any(planned.first for planned in self._planned_clients)

    def start_first(self) -> None:
        """Start the clients that send the first operations, or else the probe."""
        for planned in self._planned_clients:
            if planned.first:
                self._load.append(self._start(planned.role, planned.name, planned.rate))
        if not self.has_first:
            self._probe = self._start_probe()

    def start_others(self) -> None:
        """Start all other clients and the probe. They get their load when `complete` is called. Clients that start
        while the load is under way would be ready too late on a busy machine, and would miss the first faults. Safe to
        call twice."""
        if self._others_started:
            return
        self._others_started = True
        for planned in self._planned_clients:
            if not planned.first:
                self._waiting.append(self._start(planned.role, planned.name, planned.rate))
        if self._probe is None:
            self._probe = self._start_probe()

    def complete(self) -> None:
        """Start the load of the clients that do not start first, unless that was done."""
        if self._completed:
            return
        self._completed = True
        self.start_others()
        for client in self._waiting:
            client.start()
            self._load.append(client)
            self._loading = True

    def append(self, partition: int, *, acks: int, count: int, timeout_s: float) -> list[control.AppendResult]:
        """Have the probe append values one after the other until one is not ok. A user-defined client has its own
        timeout for each."""
        if self._planned.client.is_given:
            timeout_s = max(timeout_s, self._planned.client.outcome_s * self._time_scale)
        return self._require_probe().append(partition, acks=acks, count=count, timeout_s=timeout_s)

    def delete_records(self, partition: int, offset: int, timeout_s: float) -> control.RecordsDeleted:
        """Have the probe delete the records of a partition below an offset."""
        return self._require_probe().delete_records(partition, offset, timeout_s)

    def start_reader(self) -> ClientHandle:
        """A new client for complete reads."""
        self._readers += 1
        return self._start(self._kind.reader, reader_name(self._readers), 1.0)

    def wait_ready(self) -> None:
        """Wait until every started client is ready. Raises `ClientError`."""
        give_up_s = self._scheduler.monotonic() + self._ready_s()
        for client in self._clients:
            client.wait_ready(max(0.0, give_up_s - self._scheduler.monotonic()))

    def _ready_s(self) -> float:
        crowded = crowding_of(self._scheduler)
        return ready_s(len(self._clients), time_scale=self._time_scale, crowded=crowded)

    def begin_load(self) -> None:
        """Start the load of the clients that start first."""
        for client in self._load:
            client.start()
        self._loading = True

    def end_load(self) -> None:
        """Stop issuing operations and wait until each pending one has its outcome."""
        if not self._loading:
            return
        self._loading = False
        for client in self._load:
            client.stop()
        outcome_s = max(outcome_timeout_s(self._planned.campaign.workload.parameters), self._planned.client.outcome_s)
        for client in self._load:
            self._unresolved += client.wait_stopped((outcome_s + STOP_S) * self._time_scale)
        if self._unresolved:
            self._journal.note(f"{counted(self._unresolved, 'operation')} without an outcome, counted as info")

    @property
    def counts(self) -> dict[str, int]:
        """Operations so far, by outcome, over all clients."""
        counts = [client.counts for client in self._clients]
        return {name: sum(getattr(count, name) for count in counts) for name in ("ok", "fail", "info")}

    @property
    def first_ack_ns(self) -> int | None:
        """The time at which the load's first change was acknowledged; None before."""
        times = [client.first_ack_ns for client in self._load if client.first_ack_ns is not None]
        return min(times, default=None)

    def check(self) -> None:
        """Raises `ClientError` when a client under load has ended."""
        for client in self._load:
            if not client.alive:
                trouble = f": {client.trouble[-1]}" if client.trouble else ""
                raise ClientError(f"client {client.name} ended in the middle of the run{trouble}")

    def await_service(self, timeout_s: float) -> None:
        """Wait until every place takes operations again, in the sense of the workload's kind. Raises `OverdueError`
        when the common time limit is over and a place does not. One failed attempt proves nothing: its connection may
        still lead to a node that was cut off. Raises `RunError` when only a second attempt, after the time limit, shows
        that a place takes operations."""
        probe, own_client = self._require_probe(), self._planned.client
        attempt_s = max(PROBE_ATTEMPT_S, own_client.patience_s) if own_client.is_given else PROBE_ATTEMPT_S
        every_s = probe_every_s(timeout_s, len(self._places)) if own_client.client_command else 0.0
        give_up = self._scheduler.monotonic() + timeout_s
        for place, name in enumerate(self._places):
            refused, is_late, next_s = 0, False, self._scheduler.monotonic() + every_s
            while not (answer := probe.probe(place, attempt_s * self._time_scale)).ok:
                now_s = self._scheduler.monotonic()
                refused, is_late = refused + 1, now_s >= give_up
                if is_late and refused > 1:
                    raise OverdueError(f"{name} takes no writes within {timeout_s:.3g} s: {answer.error}")
                self._scheduler.sleep(max(0.0, min(next_s, give_up) - now_s))
                next_s = self._scheduler.monotonic() + every_s
            if is_late:
                raise RunError(
                    f"{name} took a write at the second attempt, but {timeout_s:.3g} s were over during the first, "
                    "of up "
                    f"to {attempt_s * self._time_scale:.3g} s: whether it would have taken one by then is unknown"
                )

    def read_everything(self, reader: ClientHandle, timeout_s: float) -> list[control.ReadDone]:
        """Read every place to its end. Tries all places, so that their reads are recorded; then raises
        `StalledReadError` with those that were not read completely."""
        reader.wait_ready(self._ready_s())
        reader.phase(IN_THE_END)
        answers = [reader.read_all(place, timeout_s) for place in range(len(self._places))]
        incomplete = [
            _unread(name, read, timeout_s)
            for name, read in zip(self._places, answers, strict=True)
            if not read.complete
        ]
        if incomplete:
            place = next(place for place, answer in enumerate(answers) if not answer.complete)
            raise StalledReadError("; ".join(incomplete), self._read_again(place, answers[place], timeout_s))
        return answers

    def _read_again(self, place: int, first: control.ReadDone, timeout_s: float) -> dict[str, Any]:
        """The facts of a final read that did not reach the end. A change that the place takes shows that it is up and
        that clients reach it; another reader has none of the first one's state."""
        reads, is_taken = [first], False
        with contextlib.suppress(ClientError):
            is_taken = self._require_probe().probe(place, PROBE_ATTEMPT_S * self._time_scale).ok
            reader = self.start_reader()
            reader.wait_ready(self._ready_s())
            reader.phase(IN_THE_END)
            reads.append(reader.read_all(place, timeout_s))
        return {
            "place": self._places[place],
            "bound_s": timeout_s,
            "reads": [
                {"read": read.read, "end": read.end, "idle_s": round(read.idle_s, 3), "error": read.error}
                for read in reads
            ],
            "takes_writes": is_taken,
            "ended": [client.name for client in self._clients if not client.alive],
        }

    def read_what_answers(self, reader: ClientHandle, timeout_s: float) -> list[str]:
        """Read every place of a cluster that is not whole, within `timeout_s` as far as places answer; returns a
        sentence per place.

        A read shows the end of a place only if the place has just acknowledged a change of the probe: then every
        earlier acknowledged change is below the reported end. Reads of other places are recorded as ordinary reads, in
        which a missing record proves no loss.
        """
        try:
            reader.wait_ready(self._ready_s())
        except ClientError as error:
            return [f"nothing was read: {error}"]
        give_up_s = self._scheduler.monotonic() + timeout_s
        return [self._read_one(reader, place, name, give_up_s) for place, name in enumerate(self._places)]

    def _read_one(self, reader: ClientHandle, place: int, name: str, give_up_s: float) -> str:
        left_s = max(0.0, give_up_s - self._scheduler.monotonic()) / (len(self._places) - place)
        within_s = max(LEAST_READ_S * self._time_scale, left_s)
        try:
            probed = self._require_probe().probe(place, PROBE_ATTEMPT_S * self._time_scale)
            reader.phase(IN_THE_END if probed.ok else UNDER_LOAD)
            answer = reader.read_all(place, within_s)
        except ClientError as error:
            return f"{name} was not read: {error}"
        if not answer.complete:
            return _unread(name, answer, within_s)
        took = "it took a write before" if probed.ok else f"it took no write before: {probed.error}"
        return f"{name} was read to the end that it states, {answer.end}; {took}"

    def close(self) -> None:
        """End every client. Their records are then complete; the journal records each one's output."""
        for client in self._clients:
            if not client.alive:
                self._on_failure(client.name, client.trouble, client.exit_code)
        self._scheduler.for_each(self._clients, lambda client: client.close())
        for client in self._clients:
            for text in client.trouble:
                self._journal.note(f"client {client.name}: {text}")
            files = left_by(self._records, client.name)
            self._journal.client_ended(client.name, exit_code=client.exit_code, files=files, killed=client.killed)

    def kill(self) -> None:
        """Kill every client."""
        for client in self._clients:
            client.kill()

    def _require_probe(self) -> ClientHandle:
        if self._probe is None:
            raise RunError("the probe was not started yet")
        return self._probe

    def _start_probe(self) -> ClientHandle:
        return self._start(self._kind.probe, PROBE, 1.0)

    def _start(self, role: str, name: str, rate: float) -> ClientHandle:
        self._number += 1
        campaign = self._planned.campaign
        workload = campaign.workload
        changes = self._kind.roles[role].changes
        settings = ClientSettings(
            client=name,
            process=self._number,
            producer=self._number if changes else -1,
            session=SESSION,
            seed=self._planned.derived_seed(f"client/{name}"),
            bootstrap=self._bootstrap,
            topic=workload.topic,
            partitions=workload.partitions,
            directory=str(self._records),
            rate=rate,
            duration_s=workload.duration_s,
            time_scale=self._time_scale,
            parameters=dict(workload.parameters),
            polls_show_ends=campaign.checks.upper_bound == "strict",
            own=self._planned.client,
            workload=workload.source.of_client if workload.source else WorkloadFile(),
        )
        self._journal.client(
            name,
            process=settings.process,
            role=role,
            session=settings.session,
            seed=settings.seed,
            producers=producers_of(settings) if changes or settings.own.client_command else (0, 0),
        )
        client = self._start_client(self._kind.name, role, settings, self._run_dir / "clients" / f"{name}.log")
        client.on_administration = functools.partial(self._record_administration, name)
        self._clients.append(client)
        return client

    def _record_administration(
        self, client: str, event: control.DeletionSent | control.RecordsDeleted | control.Administration
    ) -> None:
        match event:
            case control.DeletionSent():
                self._journal.deletion_sent(client, event.number, event.partition, event.offset)
            case control.RecordsDeleted():
                self._journal.records_deleted(client, event.number, event.low_watermark, event.error)
            case control.Administered():
                self._journal.event(ADMINISTERED, client=client, **structs.asdict(event))
                if event.operation == REASSIGN and event.outcome == "ok":
                    self.reassigned[event.arguments["partition"]] = tuple(event.arguments["replicas"])
            case control.ClusterSeen():
                self._journal.event(CLUSTER_SEEN, client=client, **structs.asdict(event))


def _unread(name: str, answer: control.ReadDone, timeout_s: float) -> str:
    error_text = f"; the client reported: {answer.error}" if answer.error else ""
    return f"the final read of {name} reached {answer.read} of {answer.end} within {timeout_s:g} s{error_text}"

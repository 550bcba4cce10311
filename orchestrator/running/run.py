"""Makes one run, from starting nodes to collected evidence: the phases in order, and the cleanup after each.

setup (nodes, services, topic, clients) - main (load and nemesis) - heal - quiesce - final (writes, complete reads) -
collect. Each event is in the journal before the loop continues, so a run that is killed at any point can be analyzed.

Detects that the tester itself ran out of disk, descriptors or memory.

Theory of operation. A node may share a filesystem, a limit or the memory of this machine with the tester. When the
tester runs out of one of these, a process of the system may end, and a client may lose its record, through no fault of
the system. `OwnResources` therefore looks at the tester's own resources while the run waits, and once more before the
journal says what a process of the system did. What it finds goes into the journal (`tester_short`), with the time of
the last look that found enough. The analysis takes no anomaly for proven whose evidence is younger than that time
(`analysis.evidence.tester_shortages`). The journal keeps disk space for this (`history.checksummed_lines`).

Three kinds of evidence count:
- a look: too few free bytes or inodes on a filesystem that the run writes to, no free descriptor, a process limit that
  is too low for a run;
- an error of the orchestrator that names one of these resources;
- an error, or a SIGKILL by the kernel, that ended a client. Errors come later than the shortage: they count for the
  seconds before them, too.

A disk that a fault fills is a disk of a node: it is on none of the filesystems that are looked at.
"""

import contextlib
import errno
import os
import re
import resource
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from history import seal
from history.journal.service_events import STARTED
from history.journal.writer import SCHEDULE_START, TOPIC_READY, Journal
from installation.counted import counted
from nemeses import HostError, Nemesis
from nemeses.mechanisms.service import kill_service
from nemeses.scheduling import Scheduler
from orchestrator.campaign.load_targets import LONGEST_LOAD
from orchestrator.campaign.plan import PlannedRun
from orchestrator.cleanup import always, described
from orchestrator.errors import Interrupted, OverdueError, RunError, StalledReadError, WorldError
from orchestrator.machine.sandbox import PRIVATE_ROOT
from orchestrator.running.clients import Fleet
from orchestrator.running.cluster import Cluster
from orchestrator.running.event_tail import EventTail
from orchestrator.running.faults import FaultLog, follow_schedule
from orchestrator.running.interrupts import Interrupts
from orchestrator.running.progress import Progress
from orchestrator.running.script import StepClients, Stepper
from orchestrator.running.service_watch import Autopsy, LogEvents, ServiceWatch, record_fatal_lines
from orchestrator.store.directories import RunDirectory
from orchestrator.worlds.base import World
from orchestrator.worlds.node_collection import has_data
from orchestrator.worlds.selection import LEAST_FILES
from systems import Deployed, InputError, Member, View
from systems.service import in_url
from workloads.kind import UNDER_LOAD
from workloads.process import ClientError, ClientHandle

LEAST_FREE: Final = 8 << 20
"""Bytes. Below this, a service's next write, such as a batch or a segment's index, may not fit."""
LEAST_INODES: Final = 64
BEFORE_ERROR_NS: Final = 15_000_000_000
"""How long before an error the resource may have been short: a client waits for its outcome before it ends."""

_LIMITS: Final = {
    "RLIMIT_NOFILE": ("descriptors", LEAST_FILES),
    "RLIMIT_FSIZE": ("disk", 1 << 30),
    "RLIMIT_AS": ("memory", 2 << 30),
    "RLIMIT_DATA": ("memory", 2 << 30),
    "RLIMIT_NPROC": ("processes", 256),
}
"""Process limits that local nodes inherit: the resource, and the least value for a run."""
_RESOURCE_OF: Final = {
    errno.ENOSPC: "disk",
    errno.EDQUOT: "disk",
    errno.EFBIG: "disk",
    errno.EMFILE: "descriptors",
    errno.ENFILE: "descriptors",
    errno.ENOMEM: "memory",
}
_CLIENT_ERROR: Final = re.compile(r"(?P<kind>\w+): (\[Errno (?P<number>\d+)\])?")
"""How a client reports the error that ended it. Answers of the system have another form."""
_EVERY_S: Final = 0.05


class OwnResources:
    """The resources of one run's tester. Call it from the main thread.

    `places`: directories that the run writes to; several on one filesystem count once.
    """

    def __init__(self, places: Sequence[Path], journal: Journal, scheduler: Scheduler) -> None:
        self._places = _one_of_each_filesystem(places)
        self._journal = journal
        self._scheduler = scheduler
        self._ample_ns = self._now_ns()
        self._oom_kills = _oom_kills()
        self._oom_ns: int | None = None
        self._recorded: set[str] = set()
        self._next_s = 0.0

    def tick(self) -> None:
        """Look, if the interval of this machine's clock is over: a simulated run waits far more often."""
        if time.monotonic() >= self._next_s:
            self.look()
            self._next_s = time.monotonic() + _EVERY_S

    def look(self) -> None:
        """Record each resource that is short, once."""
        self._look_at_memory()
        shortages = list(self._short())
        for name, observation in shortages:
            self._record(name, self._ample_ns, observation)
        if not shortages:
            self._ample_ns = self._now_ns()

    def failed(self, error: BaseException) -> None:
        """Record the shortage that caused this error of the orchestrator, if any."""
        self.look()
        for cause in _chain(error):
            if name := _resource_of(cause):
                self._record_error(name, f"the orchestrator failed: {cause}")

    def client_failed(self, name: str, words: Sequence[str], exit_code: int | None) -> None:
        """Record the shortage that ended a client, if any. `words`: its error output; `exit_code`: negative for a
        signal."""
        self.look()
        for text in words:
            if short := resource_named(text):
                self._record_error(short, f"client {name} failed: {text}")
        if exit_code == -signal.SIGKILL and self._oom_ns is not None:
            observation = f"client {name} was killed, and the kernel has killed processes for lack of memory"
            self._record("memory", self._oom_ns - BEFORE_ERROR_NS, observation)

    def _now_ns(self) -> int:
        """The run's time. `Scheduler.monotonic_ns` would move the virtual clock, at moments of this machine's clock."""
        return round(self._scheduler.monotonic() * 1e9)

    def _look_at_memory(self) -> None:
        """Note when the kernel first killed a process for lack of memory; it does not report whose process it was."""
        if self._oom_ns is None and _oom_kills() > self._oom_kills:
            self._oom_ns = self._now_ns()

    def _short(self) -> Iterator[tuple[str, str]]:
        if not self._journal.has_room:
            yield "disk", "no space could be kept for the journal"
        yield from _short_disks(self._places)
        yield from _short_limits()
        if reason := _no_descriptor():
            yield "descriptors", reason

    def _record_error(self, name: str, observation: str) -> None:
        self._record(name, self._now_ns() - BEFORE_ERROR_NS, observation)

    def _record(self, name: str, since_ns: int, seen: str) -> None:
        if name in self._recorded:
            return
        self._recorded.add(name)
        try:
            self._journal.tester_short(name, since=since_ns, seen=seen)
        except OSError:  # even the reserve is used up: the journal then has no end, which has the same effect
            self._recorded.discard(name)


def resource_named(text: str) -> str:
    """The resource named by the error that ended a client; empty without one."""
    match = _CLIENT_ERROR.match(text)
    if match is None:
        return ""
    if match["kind"] == "MemoryError":
        return "memory"
    return _RESOURCE_OF.get(int(match["number"] or 0), "")


def _resource_of(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "memory"
    number = error.errno if isinstance(error, OSError) else None
    return _RESOURCE_OF.get(number, "") if number is not None else ""


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and the errors that it was raised from or while handling."""
    visited: set[int] = set()
    while error is not None and id(error) not in visited:
        visited.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _one_of_each_filesystem(places: Sequence[Path]) -> list[Path]:
    places_of: dict[int, Path] = {}
    for place in places:
        try:
            places_of.setdefault(place.stat().st_dev, place)
        except OSError:
            continue  # not present in this world
    return list(places_of.values())


def _short_disks(places: Sequence[Path]) -> Iterator[tuple[str, str]]:
    for place in places:
        try:
            state = os.statvfs(place)
        except OSError:
            continue  # removed together with the world
        free_blocks = state.f_bfree if os.geteuid() == 0 else state.f_bavail
        free, inodes = free_blocks * state.f_frsize, state.f_ffree if os.geteuid() == 0 else state.f_favail
        if free < LEAST_FREE:
            yield "disk", f"{place} has {free} bytes free, and a run needs {LEAST_FREE}"
        elif state.f_files > 0 and inodes < LEAST_INODES:
            yield "disk", f"{place} has {counted(inodes, 'inode')} free, and a run needs {LEAST_INODES}"


def _short_limits() -> Iterator[tuple[str, str]]:
    for limit, (name, minimum) in _LIMITS.items():
        soft, _ = resource.getrlimit(getattr(resource, limit))
        if soft != resource.RLIM_INFINITY and soft < minimum:
            yield name, f"{limit} is {soft}, and a run needs {minimum}"


def _no_descriptor() -> str:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return str(error)
    return ""


def _oom_kills(read: Callable[[], str] = lambda: Path("/proc/vmstat").read_text(encoding="ascii")) -> int:
    """How often the kernel has killed a process for lack of memory since boot; 0 if it does not count that."""
    try:
        match = re.search(r"^oom_kill (\d+)$", read(), re.MULTILINE)
    except OSError:
        return 0
    return 0 if match is None else int(match[1])


REGISTERED_S = 30.0
TOPIC_S = 20.0
QUIESCE_S = 90.0  # longer than the system's timeouts need: a cluster that is not whole by then stands still
PROBE_S = 30.0
REACH_S = 3.0
READ_S = 60.0
CONVERGE_S = FIRST_ACK_S = 10.0
APPENDS_WAIT_S = 1.0  # under load before the topic is created, so that each producer has appends waiting for it
TICK_S = 0.05
_FORESEEN = (RunError, HostError, ClientError, OSError, InputError, MemoryError)


@dataclass(frozen=True)
class RunDependencies:
    """The inputs of a run. `on_first_ack` is called once, from the main thread, after the first acknowledged operation.

    With `keep`, the world remains after the run and the caller takes it down.
    """

    planned: PlannedRun
    directory: RunDirectory
    world: World
    deployed: Deployed
    journal: Journal
    progress: Progress
    interrupts: Interrupts
    started_ns: int
    on_first_ack: Callable[[], None]
    keep: bool = False


class Run:
    """The phases of one run. Call `execute` once."""

    def __init__(self, dependencies: RunDependencies) -> None:
        self._dependencies = dependencies
        self._campaign = dependencies.planned.campaign
        self._world = dependencies.world
        self._journal = dependencies.journal
        self._progress = dependencies.progress
        self._deployed = dependencies.deployed
        self._scheduler = dependencies.world.scheduler
        members = self._deployed.members(self._world.nodes)
        topic, system = self._campaign.workload.topic, self._deployed.system
        self._serving = [member for member in members if self._deployed.role(member.id).serves_clients]
        observer = self._world.observe(system, members, topic)
        self._cluster = Cluster(observer, members, topic, self._scheduler)
        places = (dependencies.directory.path, PRIVATE_ROOT, Path(tempfile.gettempdir()))  # may hold nodes' disks
        self._own = OwnResources(places, self._journal, self._scheduler)
        self._fleet = Fleet(
            dependencies.planned,
            dependencies.directory.path,
            bootstrap(self._serving),
            self._journal,
            self._world.time_scale,
            scheduler=self._scheduler,
            start_client=self._world.start_client,
            on_failure=self._own.client_failed,
        )
        self._book: FaultLog | None = None
        self._first_ack_seen = False
        self._assignment: tuple[tuple[int, ...], ...] = ()
        self._services_started = False
        scale, hosts = self._world.time_scale, self._world.hosts
        autopsy = Autopsy(hosts, scale, self._world.kernel_words, self._scheduler)
        self._watch = ServiceWatch(
            hosts, self._last_words, self._journal, scale, autopsy, self._scheduler, before_record=self._own.look
        )
        self._logs = {node.name: node.record_dir / "service.log" for node in self._world.nodes}
        self._log_events = LogEvents(self._logs, self._deployed.system.description.log.events, self._journal)
        self._finished = False

    def execute(self) -> None:
        """Make the run. Raises `RunError` when it could not be finished and `Interrupted` when the user asked to stop;
        the evidence until then is in the store, and (without `keep`) the world is removed."""
        with always(self._leave, shield=self._dependencies.interrupts.shielded):
            try:
                self._phases()
            except Interrupted as error:
                self._say_unfinished(error, "it was interrupted")
                raise
            except _FORESEEN as error:
                self._say_unfinished(error, described(error))
                if isinstance(error, RunError):
                    raise
                raise RunError(described(error)) from error
            self._finished = True

    def _say_unfinished(self, error: BaseException, reason: str) -> None:
        self._own.failed(error)
        with contextlib.suppress(OSError):  # a full disk may be the reason why the run was not finished
            self._journal.note(f"the run was not finished: {reason}", unfinished=True)

    def _phases(self) -> None:
        self._setup()
        self._main()
        reader = self._heal()
        try:
            self._quiesce()
        except OverdueError:
            self._read_what_answers(reader)
            raise
        self._final(reader)

    def _enter(self, phase: str, detail: str = "") -> None:
        self._own.look()
        self._journal.phase(phase)
        self._progress.phase(phase, detail)

    # ---- setup

    def _setup(self) -> None:
        nodes = self._campaign.topology.nodes
        self._enter("setup", f"{counted(nodes, 'node')} in the {self._world.name} world")
        self._world.up(self._progress.detail)
        endpoints = {member.name: endpoint_of(member) for member in self._serving}
        self._journal.note("nodes_up", seconds=self._since_start(), endpoints=endpoints)
        nemesis = Nemesis(self._world.site, self._campaign.nemesis.known_kinds)
        self._book = FaultLog(nemesis, self._journal, self._progress, self._watch)
        # Clients take as long to start as services, so both start at the same time.
        starting = self._scheduler.begin(self._start_services)
        self._services_started = True
        self._fleet.start_first()
        starting.result()
        self._fleet.start_others()
        for node in self._world.nodes:
            self._journal.node(node.name, STARTED)
        self._watch.expect(node.name for node in self._world.nodes)
        arming = self._scheduler.begin(lambda: _arm(nemesis))  # needed only before the first fault
        self._progress.detail("waiting for the quorum")
        view = self._cluster.await_view(
            self._all_alive,
            f"waiting for all nodes of {self._deployed.system.description.title} to be alive",
            self._scaled(REGISTERED_S),
            meanwhile=self._require_services,
        )
        self._journal.note("registered", seconds=self._since_start(), controller=view.controller)
        controller = next((node.id for node in self._world.nodes if node.name == view.controller), None)
        self._assignment = self._campaign.workload.assign([member.id for member in self._serving], controller)
        self._journal.assignment(self._assignment)
        if not self._creates_under_load:
            self._create_topic(self._require_services)
        self._fleet.wait_ready()
        self._journal.note("clients_ready", seconds=self._since_start())
        arming.result()

    @property
    def _creates_under_load(self) -> bool:
        return bool(self._assignment) and self._campaign.workload.topic_creation == UNDER_LOAD

    def _create_topic(self, meanwhile: Callable[[], None]) -> None:
        """Create the topic, if the data is in one, and wait until the cluster takes load for all of it."""
        if self._assignment:
            self._cluster.create_topic(self._assignment, self._scaled(TOPIC_S), self._campaign.workload.topic_settings)
        self._cluster.await_view(
            self._all_whole,
            "waiting for every partition's leader" if self._assignment else "waiting for the cluster to take load",
            self._scaled(TOPIC_S),
            meanwhile=meanwhile,
        )
        self._journal.note(TOPIC_READY, seconds=self._since_start())

    def _require_services(self) -> None:
        """Raise `RunError` with a service's last output if it has ended without any fault."""
        self._look()
        for name, output in self._watch.ended.items():
            raise RunError(f"{name}: the service has ended unexpectedly; its last output: {output.splitlines()[-1]}")

    def _last_words(self, name: str) -> str:
        return self._world.last_words(next(node for node in self._world.nodes if node.name == name))

    def _start_services(self) -> None:
        self._world.prepare_services()
        try:
            self._world.start_services()
            self._world.run_after_start()
        except WorldError:
            self._watch.expect(node.name for node in self._world.nodes)  # also records one that failed at its start
            raise

    def _all_alive(self, view: View) -> bool:
        """Every node is alive, except those that ended unexpectedly, and where the system has a controller one is
        known."""
        knows_controller = view.controller is not None or not self._deployed.system.has_controller
        return knows_controller and view.unfenced >= set(self._campaign.topology.names) - self._watch.ended.keys()

    def _all_whole(self, view: View) -> bool:
        """Every node is alive, every partition has a leader and is fully in sync, except nodes that ended
        unexpectedly."""
        partitions = self._campaign.workload.partitions if self._deployed.system.has_partitions else 0
        return (
            self._all_alive(view)
            and len(view.partitions) == partitions
            and all(state.whole_without(self._watch.ended) for state in view.partitions.values())
        )

    # ---- main

    def _main(self) -> None:
        assert self._book is not None
        workload, nemesis = self._campaign.workload, self._campaign.nemesis
        self._enter("main", f"load and nemesis ({nemesis.kind})")
        self._fleet.begin_load()
        if self._creates_under_load:
            self._wait_until(self._scheduler.monotonic() + self._scaled(APPENDS_WAIT_S))
            self._create_topic(self._tick)
        self._wait_for_first_ack()
        ends_s = self._scheduler.monotonic() + workload.duration_s
        if not nemesis.steps:
            self._progress.ends(ends_s)
        if nemesis.kind in ("random", "schedule"):
            schedule = self._dependencies.planned.schedule(self._world.capabilities)
            self._journal.note(SCHEDULE_START)
            follow_schedule(
                schedule,
                self._book,
                self._cluster.fault_view,
                self._wait_until,
                ends_s=ends_s,
                overlap=nemesis.overlap,
                on_time=nemesis.kind == "schedule",
                scheduler=self._scheduler,
            )
        elif nemesis.kind == "steps":
            self._stepper().run(nemesis.steps)
        if not nemesis.steps:
            self._wait_until(ends_s)
            self._wait_for_operations(ends_s + workload.duration_s * (LONGEST_LOAD - 1))

    def _stepper(self) -> Stepper:
        assert self._book is not None
        return Stepper(
            cluster=self._cluster,
            clients=StepClients(self._fleet, self._acknowledged, self._scheduler),
            faults=self._book,
            hosts=self._world.hosts,
            nodes=self._world.nodes,
            journal=self._journal,
            progress=self._progress,
            tick=self._tick,
            command_for=lambda words, node: self._dependencies.deployed.command(
                words, node, self._world.nodes, self._world.time_scale
            ),
            time_scale=self._world.time_scale,
            scheduler=self._scheduler,
        )

    def _wait_until(self, moment_s: float) -> None:
        while self._scheduler.monotonic() < moment_s:
            self._tick()
            self._scheduler.sleep(max(0.0, min(TICK_S, moment_s - self._scheduler.monotonic())))

    def _wait_for_first_ack(self) -> None:
        """The nemesis starts when the log is being written; the other clients do not slow down the start."""
        give_up = self._scheduler.monotonic() + self._scaled(FIRST_ACK_S)
        while self._fleet.has_first and not self._first_ack_seen and self._scheduler.monotonic() < give_up:
            self._tick()
            self._scheduler.sleep(TICK_S)
        self._fleet.complete()

    def _wait_for_operations(self, latest_s: float) -> None:
        """Continue the load until the required operations are completed, up to the longest load."""
        required = self._campaign.workload.operations
        while sum(self._fleet.counts.values()) < required and self._scheduler.monotonic() < latest_s:
            self._tick()
            self._scheduler.sleep(TICK_S)

    def _tick(self) -> None:
        """Monitor the run while waiting."""
        self._fleet.check()
        self._look()
        self._progress.counts(self._fleet.counts)
        if not self._first_ack_seen and self._fleet.first_ack_ns is not None:
            self._acknowledged(self._fleet.first_ack_ns)
        if self._first_ack_seen:
            self._fleet.complete()

    def _look(self) -> None:
        """Check the tester's own resources, the services and their logs."""
        self._own.tick()
        self._watch.tick()
        self._log_events.look()

    def _acknowledged(self, at_ns: int) -> None:
        """Record the first acknowledged operation; later calls do nothing."""
        if self._first_ack_seen:
            return
        self._first_ack_seen = True
        seconds = (at_ns - self._dependencies.started_ns) / 1e9
        self._journal.note("first_ack", seconds=round(seconds, 3))
        self._progress.say(f"first acknowledged operation {seconds:.1f} s after the start", dim=True)
        self._dependencies.on_first_ack()

    # ---- heal, quiesce, final

    def _heal(self) -> ClientHandle:
        assert self._book is not None
        self._enter("heal", "ending all faults")
        reader = self._fleet.start_reader()
        self._dump()
        self._book.heal_all()
        self._fleet.end_load()
        self._progress.counts(self._fleet.counts)
        return reader

    def _dump(self) -> None:
        """Records below high watermarks before the heal must still exist afterwards; this dump shows them."""
        power = self._world.power
        on = [node for node in self._world.nodes if power is None or power.is_on(node.name)]
        try:
            dumped = [node.name for node in on if self._world.dump(node)]
        except WorldError as error:
            self._journal.note(f"no earlier dump of the replicas' files: {error}", dumped=[], undumped=str(error))
        else:
            self._journal.note("the replicas' files were dumped", dumped=dumped)

    def _quiesce(self) -> None:
        """Wait until the cluster is whole. A service that ends unexpectedly is recorded, and the run continues without
        it.

        The bound covers all of it: leaders, in-sync sets and writes to every place. Without a stated bound the writes
        have at least `PROBE_S`. If the world fails meanwhile, that is not evidence about the cluster."""
        self._enter(
            "quiesce", "waiting for leaders and full in-sync sets" if self._assignment else "waiting for all nodes"
        )
        bound_s, began_s = self._campaign.checks.converge_s, self._scheduler.monotonic()
        limit_s = self._scaled(bound_s or QUIESCE_S)
        try:
            view = self._cluster.await_view(
                self._all_whole,
                "waiting for the cluster to recover after everything was healed",
                limit_s,
                meanwhile=self._look,
            )
            self._journal.note("recovered", view=str(view))
            left_s = max(0.0, began_s + limit_s - self._scheduler.monotonic())
            self._fleet.await_service(max(left_s, self._scaled(PROBE_S)) if bound_s is None else left_s)
        except OverdueError as error:
            self._journal.not_converged(limit_s, str(error), **self._nodes_seen())
            raise
        if bound_s is not None:
            self._journal.converged(round(self._scheduler.monotonic() - began_s, 3))
        self._acknowledged(self._scheduler.monotonic_ns())

    def _read_what_answers(self, reader: ClientHandle) -> None:
        """Read from a cluster that is not whole, to find losses nevertheless. This does not finish the run, and its
        replicas are not considered at rest: there is no phase `final`."""
        self._progress.detail("reading what answers")
        for problem in self._fleet.read_what_answers(reader, self._scaled(READ_S)):
            self._journal.note(f"the cluster is not whole: {problem}")

    def _final(self, reader: ClientHandle) -> None:
        self._enter("final", "reading everything")
        try:
            answers = self._fleet.read_everything(reader, self._scaled(READ_S))
        except StalledReadError as error:
            self._journal.final_read_stalled(**error.facts, **self._nodes_seen())
            raise
        self._await_convergence([answer.end for answer in answers] if self._assignment else [])
        self._progress.counts(self._fleet.counts)

    def _nodes_seen(self) -> dict[str, Any]:
        """The nodes whose services run, and those that this machine reaches."""
        patience_s, ask_s = self._scaled(REACH_S), self._world.site.first_word_s
        reached = [name for name, host in self._world.hosts.items() if ask_s(host, patience_s) is not None]
        return {"running": self._watch.running(), "reached": reached}

    def _await_convergence(self, ends: list[int]) -> None:
        """Followers get the last high watermark, of partitions and of metadata, with their next fetch. The analysis
        compares the replicas; this method only waits as long as that needs. For systems that do not report their
        progress, it waits for full in-sync sets."""
        if not self._deployed.system.description.promises.events:
            self._await_in_sync()
            return
        topic = self._campaign.workload.topic
        tails = [EventTail(node.record_dir / "events.jsonl") for node in self._world.nodes]
        give_up = self._scheduler.monotonic() + self._scaled(CONVERGE_S)
        committed = max(tail.metadata for tail in tails)
        replicas = {**dict(enumerate(self._assignment)), **self._fleet.reassigned}
        while self._scheduler.monotonic() < give_up:
            lagging: list[tuple[str, object]] = [
                (node.name, "metadata")
                for node, tail in zip(self._world.nodes, tails, strict=True)
                if tail.metadata < committed and node.name not in self._watch.ended
            ]
            lagging += [
                (node.name, partition)
                for partition, end in enumerate(ends)
                for node, tail in zip(self._world.nodes, tails, strict=True)
                if node.id in replicas[partition] and not _reached(tail.progress(topic, partition), end)
            ]
            if not lagging:
                return
            self._scheduler.sleep(TICK_S)
        self._journal.note(f"not every replica has reported the end of the log: {lagging}")

    def _await_in_sync(self) -> None:
        try:
            self._cluster.await_view(self._all_whole, "waiting for full in-sync sets", self._scaled(CONVERGE_S))
        except OverdueError as error:
            self._journal.note(str(error))

    # ---- cleanup

    def _leave(self) -> None:
        """Collect the evidence and take the world down, whatever state the run is in and whichever step fails. An
        unexpected exception is raised at the end. Can be called again after an interrupt."""
        unforeseen: list[Exception] = []
        with contextlib.suppress(OSError):
            self._enter("collect", "stopping services, collecting their logs")
        steps: list[tuple[str, Callable[[], None]]] = [("clients", self._fleet.close)]
        if self._services_started:
            steps.append(("stopping services", self._stop_services if self._finished else self._end_services))
            steps.append(("collecting", self._collect))
        if not self._dependencies.keep:
            steps.append(("taking the world down", self._world.down))
        steps.append(("cluster client", self._cluster.close))
        for name, step in steps:
            try:
                step()
            except Exception as error:
                self._own.failed(error)
                unforeseen += [error] if not isinstance(error, _FORESEEN) else []
                self._progress.say(f"{name}: {error}")
                of_record = step not in (self._world.down, self._cluster.close)
                if of_record:  # the analysis must not take uncollected evidence for absent
                    self._finished = False
                with contextlib.suppress(OSError):
                    self._journal.note(f"{name}: {error}", unfinished=of_record)
        if self._finished:  # the analysis does not accept a run whose last phase is another one
            self._journal.phase("done")
            self._seal()
        for unknown in unforeseen:
            raise unknown

    def _seal(self) -> None:
        """Record the digests of all evidence. Later changes are detected; a run without a seal is never a pass."""
        try:
            seal.seal(self._dependencies.directory.path)
        except OSError as error:
            self._progress.say(f"the run cannot be sealed: {error}")

    def _collect(self) -> None:
        self._world.collect_all()
        if self._finished:
            self._require_data()
        self._log_events.look()
        record_fatal_lines(self._logs, self._deployed.system.description.log.fatal, self._journal)

    def _require_data(self) -> None:
        """Raise `RunError` if a service that was started, and stores data, has left none."""
        _, patterns = self._deployed.collected
        serving = {member.id for member in self._serving}
        bare = [node.name for node in self._world.nodes if node.id in serving and not has_data(node.record_dir)]
        if patterns and bare:
            raise RunError(
                f"{', '.join(bare)}: the service was started, but none of these exist: {', '.join(patterns)}"
            )

    def _stop_services(self) -> None:
        """Stop every service; record how each ends, and that it ran until then."""
        self._watch.attest()
        pids = self._watch.pids()
        self._watch.excuse(pids)
        pids_asked = self._world.stop_services()
        for name, left_pids in self._world.left_behind.items():
            self._journal.note(
                f"{name}: the service ended and left processes behind, which were ended, too: {left_pids}"
            )
        for node in self._world.nodes:
            accepted = self._world.service(node).stop_exit_codes
            self._watch.say_stopped(node.name, pids.get(node.name), pids_asked.get(node.name), accepted)

    def _end_services(self) -> None:
        """Restore every node's reachability and kill its service without waiting, whatever state the run is in. Tries
        every node and raises `RunError` with all failures at the end, so that one node that does not answer does not
        leave the others under faults. An unexpected exception is raised unchanged.

        First records what services have done on their own."""
        names, power = [node.name for node in self._world.nodes], self._world.power
        actions: list[Callable[[], object]] = [self._watch.look]
        if (suspender := self._world.site.suspender) is not None:
            actions.append(lambda: suspender.resume(names))
        if (network := self._world.network) is not None:
            actions.append(network.heal)
        if power is not None:
            actions.append(lambda: power.restore([name for name in names if not power.is_on(name)]))
        if self._book is not None:
            actions.append(self._book.clear_leftovers)  # nodes that are not rebuilt are used by the next run
        actions.append(lambda: self._scheduler.for_each(self._world.hosts.values(), kill_service))
        failures: list[Exception] = []
        for action in actions:
            try:
                action()
            except Exception as error:
                failures.append(error)
        for failure in failures:
            if not isinstance(failure, _FORESEEN):
                raise failure
        if failures:
            raise RunError("; ".join(map(str, failures)))

    def _scaled(self, seconds: float) -> float:
        """A time to wait, scaled for this world."""
        return seconds * self._world.time_scale

    def _since_start(self) -> float:
        return round((self._scheduler.monotonic_ns() - self._dependencies.started_ns) / 1e9, 3)


def _arm(nemesis: Nemesis) -> None:
    armed = nemesis.arm()
    if not armed.confirmed:
        raise RunError(f"the hosts could not be prepared for the faults: {armed.cause}")


def _reached(progress: Mapping[str, Any] | None, end: int) -> bool:
    """Whether a replica's log and high watermark have reached the end."""
    return progress is not None and progress["log_end_offset"] == end == progress["high_watermark"]


def bootstrap(members: Sequence[Member]) -> str:
    """The addresses of these services, in the form that clients take."""
    return ",".join(map(endpoint_of, members))


def endpoint_of(member: Member) -> str:
    """The address of this service, in the form that clients take and record."""
    return f"{in_url(member.address)}:{member.port}"

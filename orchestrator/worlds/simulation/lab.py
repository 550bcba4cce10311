"""The world and the lab of the simulation: nothing outlives a run."""

import asyncio
import gc
import json
import shutil
import time
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Final

import msgspec

from history.regular_files import replace_text
from nemeses import Host, Site, injectable
from nemeses.ports import DiskCount, HostError, MachineState, PacketCount
from orchestrator.cleanup import clean_up, on_failure
from orchestrator.errors import WorldError
from orchestrator.worlds.base import SHARED, Node, Progress, World, WorldSpec, no_progress
from orchestrator.worlds.lab import PerRunLab
from orchestrator.worlds.node_collection import keep_configuration
from orchestrator.worlds.simulation.files import MESSAGES, ORACLES, SUMMARY
from orchestrator.worlds.simulation.host import COMMAND_S, SimulatedHost, SimulatedWire
from orchestrator.worlds.simulation.scheduling import VirtualScheduler
from simulator.cluster import Program, SimulatedCluster, SimulatedMachine
from simulator.crash_points import WINDOWS, CrashPoint
from simulator.determinism import DeterminismGuard
from simulator.disk import FileSystem
from simulator.messages import Recorder
from simulator.object_store import PROBE_PREFIX, SimulatedObjectStore, StoreFaults, probe, reads_own, shows_new
from systems import Member, System
from systems.kafka_protocol.observer import KafkaObserver
from systems.service import Service
from workloads.control import Close, Command, Trouble
from workloads.process import ClientError, ClientHandle
from workloads.settings import ClientSettings
from workloads.virtual.clients import KINDS, serve
from workloads.virtual.pipe import VirtualControl

# ---- What a nemesis acts on in a simulated cluster: power, network, suspension, rate of the clocks, object store.

Pair = tuple[str, str]


class SimulatedPower:
    """The power switches of all machines."""

    def __init__(self, cluster: SimulatedCluster, hosts: Mapping[str, SimulatedHost]) -> None:
        self._cluster = cluster
        self._hosts = hosts
        self._cuts = 0

    def is_on(self, name: str) -> bool:
        return self._cluster.machines[name].powered

    def cut(self, names: Collection[str], tear: int | None = None) -> dict[str, dict[str, Any]]:
        on = [name for name in names if self.is_on(name)]
        boots = {name: self._hosts[name].boot_id for name in on}
        self._cuts += 1
        chance = Random(f"{self._cluster.seed}/cut {self._cuts}/{tear}")
        # Without tearing nothing is written back first, as when a filesystem is shut down without flushing.
        self._cluster.power_loss(*on, rng=chance, commit=tear is not None) if on else None
        return {name: {"boot_id": boots[name], "journal_flushed": tear is not None} for name in on}

    def restore(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        dark = [name for name in names if not self.is_on(name)]
        for name in dark:
            self._cluster.restore_power(name)
        return {name: {"boot_id": self._hosts[name].boot_id} for name in dark}


class SimulatedCables:
    """The connections between the machines, cut by directed pairs."""

    def __init__(self, cluster: SimulatedCluster, hosts: Mapping[str, SimulatedHost]) -> None:
        self._cluster = cluster
        self._names = tuple(hosts)

    def cut(self, pairs: Collection[Pair], *, reject: bool = False) -> None:
        for source, target in sorted(pairs):
            (self._cluster.reject if reject else self._cluster.cut)(source, target)

    def heal(self, pairs: Collection[Pair] | None = None) -> None:
        cut = self.cut_pairs()
        for source, target in sorted(cut if pairs is None else cut & set(pairs)):
            self._cluster.heal(source, target)

    def counters(self) -> dict[Pair, PacketCount]:
        count = self._cluster.network.counts
        return {(a, b): PacketCount(*count(a, b)) for a in self._names for b in self._names if a != b}

    def cut_pairs(self) -> set[Pair]:
        return set(self._cluster.network.cuts)


_BY = {"by": "the simulator"}


class SimulatedSuspender:
    """Suspends whole machines."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    def stall(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        return self._suspend(names, frozen=False)

    def freeze(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        return self._suspend(names, frozen=True)

    def resume(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        for name in names:
            self._cluster.resume(name)
        return {name: dict(_BY) for name in names}

    def state(self, name: str) -> MachineState:
        machine = self._cluster.machines[name]
        return "running" if not machine.suspended else "frozen" if machine.clock.frozen else "stalled"

    def _suspend(self, names: Collection[str], *, frozen: bool) -> dict[str, dict[str, Any]]:
        for name in names:
            self._cluster.suspend(name, frozen=frozen)
        return {name: dict(_BY) for name in names}


class SimulatedOscillators:
    """The rate of clocks."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    def drift(self, name: str, gain: float) -> None:
        self._cluster.let_drift(name, gain)


class SimulatedObjects:
    """The object store of a simulated cluster; a `nemeses.ports.Objects`. `reason` None: with all its faults."""

    def __init__(self, cluster: SimulatedCluster, scheduler: VirtualScheduler, reason: str | None = None) -> None:
        self._cluster = cluster
        self._scheduler = scheduler
        self._reason = reason
        self._probes = 0

    def under(self, reason: str) -> "SimulatedObjects":
        return type(self)(self._cluster, self._scheduler, reason)

    @property
    def _faults(self) -> StoreFaults:
        store = self._cluster.objects
        return store.faults if self._reason is None else store.reasons.setdefault(self._reason, StoreFaults())

    @property
    def _met(self) -> SimulatedObjectStore:
        """The store as probes meet it."""
        store = self._cluster.objects
        return store if self._reason is None else store.with_only(store.reasons.get(self._reason, StoreFaults()))

    def slow_down(self, by_s: float) -> None:
        self._faults.slow_s = by_s

    def hang(self) -> None:
        self._faults.hung = True

    def fail(self, operations: Collection[str], reason: str) -> None:
        self._faults.failing = dict.fromkeys(sorted(operations), reason)

    def keep_part(self, reason: str) -> None:
        self._faults.partial = 1.0
        self._faults.failing_midway = reason

    def show_old(self, age_s: float) -> None:
        self._faults.stale_s = age_s

    def mix_up(self) -> int:
        self._faults.mixed = True
        rng = Random(f"{self._cluster.seed}/strays {self._reason}")
        return self._scheduler.run(self._cluster.objects.put_strays(rng))

    def damage(self, change: str, seed: int) -> dict[str, str]:
        store = self._cluster.objects
        damaged = store.damaged(change, seed)
        if not damaged:
            return {"absent": "yes"}
        name = next(iter(damaged))
        facts = {"object": name, "size": str(len(store.objects[name])), "before": store.digest(name)}
        self._faults.damaged = damaged
        return {**facts, "after": store.digest(name)}

    def put_back(self) -> dict[str, str]:
        store = self._cluster.objects
        damaged = self._faults.damaged
        self.work()
        name = next(iter(damaged), None)
        if name is None:
            return {"restored": "nothing"}
        if name not in store.objects:
            return {"restored": "deleted"}
        return {"restored": name, "digest": store.digest(name)}

    def work(self) -> None:
        if self._reason is not None:
            self._cluster.objects.reasons.pop(self._reason, None)
            return
        self._cluster.objects.reasons.clear()
        self._cluster.objects.faults = StoreFaults()

    def probe(self, operation: str, seconds: float) -> tuple[str, float | None]:
        began_s, operation_result = self._cluster.loop.now, probe(self._met, operation, self._name())
        try:
            result = self._scheduler.run(asyncio.wait_for(operation_result, seconds))
        except TimeoutError:
            return "silent", None
        return result, self._cluster.loop.now - began_s

    def shows_new(self, seconds: float) -> bool:
        return self._scheduler.run(asyncio.wait_for(shows_new(self._met, self._name()), seconds))

    def reads_own(self, seconds: float) -> bool:
        reading = reads_own(self._met, (self._name(), self._name()))
        return self._scheduler.run(asyncio.wait_for(reading, seconds))

    def _name(self) -> str:
        self._probes += 1
        return f"{PROBE_PREFIX}{self._reason or ''}{self._probes}"


# ---- The disks of simulated machines, below their filesystems.

PROBE = ".brownout-probe"
METADATA, ASIDE = "__cluster_metadata", "-aside/"


class SimulatedDisks:
    """All disks and their faults."""

    def __init__(self, cluster: SimulatedCluster, scheduler: VirtualScheduler) -> None:
        self._cluster = cluster
        self._scheduler = scheduler
        self._copies: dict[str, list[tuple[str, bytes | None]]] = {}
        self._points: dict[str, CrashPoint] = {}

    def fail_syncs(self, name: str, failing: bool) -> None:
        self._machine(name).disk.faults.failing = failing

    def leave(self, name: str, free_bytes: int | None) -> None:
        self._machine(name).disk.faults.free_bytes = free_bytes

    def slow_down(self, name: str, by_s: float) -> None:
        self._machine(name).disk.faults.slow_s = by_s

    def hang(self, name: str, hung: bool) -> None:
        disk = self._machine(name).disk
        if hung:
            disk.faults.hung = True
        else:
            disk.release()

    def flip(self, name: str, seed: int, count: int) -> list[str]:
        machine = self._stopped(name)
        chance, flips = Random(f"{self._cluster.seed}/flip/{seed}"), list[str]()
        # A voter's metadata are excluded: the quorum does not promise to survive corruption of a majority of them.
        # Files that the broker has set aside are excluded: it never reads them again.
        logs = sorted(
            path
            for path, data in machine.disk.files()
            if data and path.endswith(".log") and METADATA not in path and ASIDE not in path
        )
        for _ in range(count):
            if (flip := machine.disk.flip(chance, logs)) is None:
                break
            flips.append(str(flip))
        return flips

    def mend(self, name: str) -> int:
        return self._stopped(name).disk.mend()

    def keep_copy(self, name: str) -> int:
        self._copies[name] = self._machine(name).disk.image()
        return _count(self._copies[name])

    def replace(self, name: str, *, by_copy: bool) -> int:
        machine = self._stopped(name)
        had = _count(machine.disk.files())
        directory = self._cluster.directory_of(name)
        machine.disk.replace(self._copies[name] if by_copy else _whole_path(directory))
        return had

    def crash_at(self, name: str, files: str, number: int, crash: str) -> None:
        self._points[name] = CrashPoint(number, crash, WINDOWS[files])
        self._cluster.crash_points.arm(self._points[name], name)

    def end_crash_point(self, name: str) -> dict[str, Any]:
        point = self._points.pop(name, None)
        if point is None:
            return {}
        self._cluster.crash_points.disarm(name)
        if self._machine(name).host is not None:  # also if it has struck at this moment
            self._cluster.crash(name, point)
        last = point.operations[-1] if point.struck else "none"
        return {"operation": last, "operations": len(point.operations)}

    def probe(self, name: str, seconds: float) -> float | None:
        disk, began_s = self._machine(name).disk, self._cluster.loop.now
        file = disk.open(PROBE, create=True)
        try:
            file.append([b"probe"])
            self._scheduler.run(asyncio.wait_for(file.sync(), seconds))
        except TimeoutError:
            return None
        finally:
            file.close()
            disk.unlink(PROBE)
        return self._cluster.loop.now - began_s

    def counts(self, name: str) -> DiskCount:
        faults = self._machine(name).disk.faults
        return DiskCount(faults.failed_syncs, faults.refused_writes)

    def _machine(self, name: str) -> SimulatedMachine:
        return self._cluster.machines[name]

    def _stopped(self, name: str) -> SimulatedMachine:
        machine = self._machine(name)
        if machine.running:
            raise HostError(f"{name}: its service still runs on this disk")
        return machine


def _count(content: list[tuple[str, bytes | None]]) -> int:
    return sum(data is not None for _, data in content)


def _whole_path(directory: str) -> list[tuple[str, bytes | None]]:
    """A directory with its parents, as on an empty disk that was prepared for a service."""
    parts = directory.split("/") if directory else []
    return [("/".join(parts[:end]), None) for end in range(1, len(parts) + 1)]


# ---- The run loop's handle of a client in the simulation.

_KILLED = -9


class SimulatedClientProcess(ClientHandle):
    """A client as a process on its own host, which no fault affects."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        scheduler: VirtualScheduler,
        kind: str,
        role: str,
        settings: ClientSettings,
        log: Path,
    ) -> None:
        super().__init__(settings.client, log)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
        self._cluster = cluster
        self._scheduler = scheduler
        self._exit_code: int | None = None
        self._host = cluster.new_host(f"client-{settings.client}")
        self._control = self._host.context.copy().run(VirtualControl, self._hear)
        living = serve(kind, role, settings, self._control, scheduler.monotonic_ns)
        task = cluster.loop.create_task(living, context=self._host.context.copy())
        task.add_done_callback(self._ended)

    @property
    def exit_code(self) -> int | None:
        return self._exit_code

    def close(self, timeout_s: float = 10.0) -> None:
        if self.alive:
            self._tell(Close())
            self._scheduler.until(lambda: not self.alive, timeout_s)
        self.kill()

    def kill(self) -> None:
        self._cluster.kill_process(self._host)
        if self.alive:
            self._exit_code = _KILLED

    def _tell(self, command: Command) -> None:
        self._check_alive()
        self._control.give(command)

    def _until(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        self._scheduler.until(lambda: holds() or not self.alive, timeout_s)
        if holds():
            return True
        self._check_alive()
        return False

    def _check_alive(self) -> None:
        if not self.alive:
            trouble = f": {self._trouble[-1]}" if self._trouble else ""
            raise ClientError(f"client {self.name} ended with {self._exit_code}{trouble}{self.where_printed}")

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        self._exit_code = 0 if error is None else 1
        if error is not None:
            self._hear(Trouble(f"{type(error).__name__}: {error}", fatal=True))
            self._log.write_text("".join(traceback.format_exception(error)), encoding="utf-8")


_DATA, _ETC, _VAR = "/data", "/etc/brownout", "/var/brownout"
_SHARED = "/shared"  # of no file: the object store is simulated
OBSERVER = "observer"


class SimulationWorld(World):
    """Brownout's brokers in this process. Everything that happens follows from the run's seed.

    Invariant: from the start to `down` the garbage collection is off, because its time differs between processes, and
    finalizers may have effects."""

    name = "simulation"
    capabilities: frozenset[str] = injectable(
        ("power", "network", "netem", "stall", "freeze", "clock", "drift", "wire", "disk", "objects", "store")
    )
    needs_sandbox = False
    power: SimulatedPower
    suspender: SimulatedSuspender

    def __init__(self, spec: WorldSpec) -> None:
        super().__init__(spec)
        self._nodes = [self._node(number) for number in range(1, spec.node_count + 1)]
        self._services = {node.name: super(SimulationWorld, self).service(node) for node in self._nodes}
        self._cluster = SimulatedCluster(
            spec.seed,
            spec.node_count,
            file_system=FileSystem(spec.filesystem),
            programs={node.name: self._program(node) for node in self._nodes},
            client=OBSERVER,
        )
        self._recorder = Recorder(self._cluster.loop.time) if spec.messages else None
        self._cluster.network.listener = self._recorder
        self._time = VirtualScheduler(self._cluster, spec.seed)
        self.scheduler = self._time
        self._hosts: dict[str, SimulatedHost] = {
            node.name: SimulatedHost(node, self._cluster, self._time) for node in self._nodes
        }
        self.power = SimulatedPower(self._cluster, self._hosts)
        self.network = SimulatedCables(self._cluster, self._hosts)
        self.suspender = SimulatedSuspender(self._cluster)
        self._marks = Random(f"{spec.seed}/marks")
        self._guard = DeterminismGuard()
        self._began_cpu_s = 0.0
        self._is_up = self._collects_garbage = False

    @property
    def site(self) -> Site:
        return replace(
            super().site,
            wire=SimulatedWire(self._cluster, self._time),
            disks=SimulatedDisks(self._cluster, self._time),
            oscillators=SimulatedOscillators(self._cluster),
            objects=SimulatedObjects(self._cluster, self._time),
            answers=lambda host: self._is_awake(host.name),
            first_word_s=self._first_word_s,
            new_mark=lambda: f"{self._marks.getrandbits(128):032x}",
        )

    def _is_awake(self, name: str) -> bool:
        return self.power.is_on(name) and self.suspender.state(name) == "running"

    def _first_word_s(self, host: Host, patience_s: float) -> float | None:
        if not self._is_awake(host.name):
            self._time.sleep(patience_s)
            return None
        self._time.sleep(COMMAND_S)
        return COMMAND_S

    @property
    def digest(self) -> str:
        """The digest over everything that happened: the brokers' events and every byte that arrived anywhere."""
        return self._cluster.digest()

    def start_client(self, kind: str, role: str, settings: ClientSettings, log: Path) -> ClientHandle:
        return SimulatedClientProcess(self._cluster, self._time, kind, role, settings, log)

    def observe(self, system: System, members: Sequence[Member], topic: str) -> KafkaObserver:
        del system  # only one system runs here
        return KafkaObserver(members, topic, scheduler=self.scheduler)

    def up(self, on_progress: Progress = no_progress) -> None:
        self._lock.take()
        self._is_up, self._collects_garbage = True, gc.isenabled()
        self._began_cpu_s = time.process_time()
        with on_failure(self.down):
            gc.disable()
            self._guard.enter()
            for node in self._nodes:
                self._cluster.machines[node.name].record_to(node.record_dir)
                keep_configuration(node.record_dir, node.etc_dir, self.service(node).files)
                on_progress(f"{node.name} is simulated")

    def down(self) -> None:
        if not self._is_up:
            return
        clean_up(
            lambda: self._cluster.unhandled().clear(),  # reported by `collect_all`
            self._cluster.close,
            self._guard.leave,
            lambda: shutil.rmtree(self._scratch, ignore_errors=True),
            gc.enable if self._collects_garbage else lambda: None,
            self._lock.release,
        )
        self._is_up = False

    def service(self, node: Node) -> Service:
        """As in other worlds; templates are filled in only once, because a simulated run takes only seconds."""
        return self._services[node.name]

    def accepts(self, node: Node) -> bool:
        return self._cluster.network.is_open(node.address, node.port)

    def stop_services(self, nodes: Sequence[Node] | None = None) -> dict[str, int]:
        """Sends SIGTERM to all services before it waits for the first."""
        chosen = self.nodes if nodes is None else nodes
        pids = {node.name: self.hosts[node.name].service_pid() for node in chosen}
        for node in chosen:
            self._cluster.terminate(node.name)
        super().stop_services(nodes)
        return {name: pid for name, pid in pids.items() if pid is not None}

    def stop_service(self, node: Node) -> int | None:
        """A service that got SIGTERM before is only waited for."""
        patience_s, pid = self.service(node).stop_deadline_s, self.hosts[node.name].service_pid()
        self._cluster.terminate(node.name)
        if not self._time.until(lambda: not self._cluster.machines[node.name].running, patience_s):
            raise WorldError(
                f"{node.name}: the service did not end within {patience_s:g} s of SIGTERM; "
                f"its last words: {self.last_words(node)}"
            )
        return pid

    def kernel_words(self, name: str, pid: int) -> str:
        """A simulated kernel kills no process for lack of memory."""
        del name, pid
        return ""

    def collect_all(self) -> None:
        """An unhandled exception is a bug, in the broker or in Brownout: the evidence is kept, and the run is
        unknown."""
        super().collect_all()
        self._copy_objects()
        self._write_summary()
        self._write_messages()
        unhandled = self._cluster.unhandled()
        if unhandled or self._guard.refused:
            errors = "; ".join([*self._guard.refused, *map(str, unhandled)])
            raise WorldError(f"seed {self._spec.seed}: exceptions in the simulated world: {errors}")

    def _copy_objects(self) -> None:
        """Write the objects of the simulated store where real nodes would have written them."""
        self._cluster.objects.remove_strays()  # they are of the fault, and not of the cluster
        for name, content in self._cluster.objects.objects.items():
            path = self._spec.run_dir / SHARED / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def _write_summary(self) -> None:
        cpu_s = time.process_time() - self._began_cpu_s
        summary = {
            "run": self._spec.run_id,
            "seed": self._spec.seed,
            "digest": self.digest,
            "simulated_s": round(self.scheduler.monotonic(), 6),
            "steps": self._cluster.loop.steps,
        }
        content = json.dumps({**summary, "cpu_s": round(cpu_s, 3)}, indent=1)
        replace_text(self._spec.run_dir / SUMMARY, content + "\n")
        figures = {**summary, **self._cluster.watch.to_json()}
        (self._spec.run_dir / "history" / ORACLES).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")

    def _write_messages(self) -> None:
        if self._recorder is not None:
            lines = b"\n".join(map(msgspec.json.encode, self._recorder.said))
            (self._spec.run_dir / MESSAGES).write_bytes(lines + b"\n")

    @property
    def _scratch(self) -> Path:
        return self._spec.run_dir / "world"

    def data_of(self, node: Node) -> Path:
        """A real directory, from which files are chosen as in every world."""
        root = self._scratch / node.name
        shutil.rmtree(root, ignore_errors=True)
        for path, content in self._cluster.machines[node.name].disk.files():
            if content is None:
                (root / path).mkdir(parents=True, exist_ok=True)
            else:
                (root / path).write_bytes(content)
        return root

    def _program(self, node: Node) -> Program:
        service = self.service(node)
        try:
            return Program.of(service.command, service.files, node.data_dir)
        except ValueError as error:
            raise WorldError(f"{node.name}: {error}") from error

    def _node(self, number: int) -> Node:
        name = f"n{number}"
        return Node(
            name=name,
            id=number,
            address=name,
            ports=self._spec.deployment.ports(number),
            data_dir=_DATA,
            etc_dir=_ETC,
            var_dir=_VAR,
            record_dir=self._spec.run_dir / "nodes" / name,
            files_dir=self._spec.deployment.files_dir,
            shared_dir=_SHARED,
        )


SYSTEM = "brownout"


class SimulationLab(PerRunLab):
    """Runs of Brownout's broker in virtual time."""

    kind = SimulationWorld
    systems: ClassVar[frozenset[str] | None] = frozenset({SYSTEM})
    workloads: ClassVar[frozenset[str] | None] = frozenset(KINDS)
    repeatable = True

    def shell(self, name: str, command: Sequence[str] = ()) -> list[str]:
        del command
        raise WorldError(f"{name} is simulated and has no shell; its trace is in nodes/{name}/events.jsonl")


LAB: Final = SimulationLab

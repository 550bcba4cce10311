"""The base of every world: nodes with an address, a shell, a disk and, if possible, a network and a power switch.

Its services start and stop in the same way everywhere, and it waits for the result.

The directory that nodes share is not on a node's disk: power cuts and full disks of nodes do not affect it, as with a
store in the network. The nodes write directly into the evidence, so a run that is killed keeps it.
"""

import contextlib
import shlex
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nemeses.mechanisms.shell import ask, end_left_script
from nemeses.ports import Host, HostError, Network, PowerSwitch, Result, Site, Suspender
from nemeses.scheduling import REAL_TIME, Scheduler
from orchestrator.errors import WorldError
from orchestrator.machine.locks import RunLock
from orchestrator.world_kinds import WORLDS
from orchestrator.worlds.node_collection import DATA, EARLIER, copy_data, copy_records
from orchestrator.worlds.observer_guard import observe
from systems import Member, Observer, System
from systems.service import Deployment, Place, Service
from workloads.process import ClientHandle, ClientProcess
from workloads.settings import ClientSettings

# ---- The directory that all nodes of a run share: `<run>/shared`, a part of the run's evidence.

SHARED: Final = "shared"
"""The directory's name below the run's."""


def make_shared(run_dir: Path, services: Iterable[Service], seen_as: str) -> Path | None:
    """Make the directory if a service names it; returns its path on this machine, None if no service does. `seen_as`:
    its path on the nodes. Raises OSError."""
    if not any(uses_shared(service, seen_as) for service in services):
        return None
    path = run_dir / SHARED
    path.mkdir(parents=True, exist_ok=True)
    return path


def uses_shared(service: Service, path: str) -> bool:
    """Whether a service's configuration, command or environment contains the path."""
    commands = (service.command, service.ready, *service.prepare, *service.after_start)
    texts = (*service.files.values(), *service.environment.values(), *sum(commands, ()))
    return any(path in text for text in texts)


LOOK_S = 0.2
KILLED_S = 10.0
LAST_WORDS_BYTES = 2_000
STATUS_S = 5.0
READY_S = 5.0
_NO_PROGRAM = (126, 127)  # a shell's exit codes: not executable, not found
_HOW_TO_STOP = "see stop_deadline_s and kills_at_stop in its system.toml"
DISK_BYTES = 512 << 20

Progress = Callable[[str], None]


def no_progress(_: str) -> None:
    """The default progress listener: ignores everything."""


@dataclass(frozen=True)
class Node(Place):
    """One node of a world. `record_dir` (`<run>/nodes/<name>`) is the directory on this machine that keeps the node's
    records. It gets `service.log` and `events.jsonl` as they are written, so that a run that is killed can still be
    read."""

    record_dir: Path = field(kw_only=True)

    @property
    def port(self) -> int:
        """The port of the node's service for clients."""
        return next(iter(self.ports.values()))

    @property
    def trace_path(self) -> str:
        """The file of the service's trace events, if it writes any."""
        return f"{self.var_dir}/events.jsonl"

    @property
    def service_log(self) -> str:
        """The file of the service's output."""
        return f"{self.var_dir}/service.log"


@dataclass(frozen=True)
class WorldSpec:
    """The inputs of a world.

    `deployment`: what runs on its nodes. `rootfs`: the directory tree that nodes run on (see `nodeimage`); None: this
    machine's own. Only the namespaces world uses it. `seed`: of all random choices in a simulated world. `messages`: a
    simulated world records the messages between its processes.
    """

    run_id: str
    run_dir: Path
    node_count: int
    deployment: Deployment
    filesystem: str = "ext4"
    disk_bytes: int = DISK_BYTES
    rootfs: Path | None = None
    seed: int = 0
    messages: bool = False


class World:
    """The environment of a cluster: nodes, and services that are started and stopped through their hosts. `nodes` are
    known before `up`; everything else exists between `up` and `down`.

    A world has its own `up` and `down`, and sets `_nodes`, `_hosts` and the switches that it has."""

    name: str
    capabilities: frozenset[str]
    """The names of the kinds of fault that can be injected in this world."""
    needs_sandbox: bool
    time_scale: float = 1.0
    """How many times longer everything takes than on this machine itself: a factor for deadlines and timeouts."""
    scheduler: Scheduler = REAL_TIME
    """The clock of the run, its journal and its clients."""
    power: PowerSwitch | None = None
    network: Network | None = None
    suspender: Suspender | None = None
    _nodes: list[Node]
    _hosts: Mapping[str, Host]

    def __init__(self, spec: WorldSpec) -> None:
        self._spec = spec
        self._lock = RunLock(spec.run_dir)
        self.limits = list(WORLDS[self.name].limits)

    def up(self, on_progress: Progress = no_progress) -> None:
        """Make all nodes, in parallel, and wait until each is reachable. Starts no service.

        Raises `WorldError`, after removing what was made."""
        raise NotImplementedError

    def down(self) -> None:
        """Remove everything that `up` made. Can be called twice, and after a failed `up`."""
        raise NotImplementedError

    def shell(self, name: str, command: Sequence[str] = ()) -> list[str]:
        """As `Lab.shell`, of a world that makes its own nodes."""
        raise NotImplementedError

    @property
    def nodes(self) -> list[Node]:
        return self._nodes

    @property
    def hosts(self) -> Mapping[str, Host]:
        return self._hosts

    @property
    def deployment(self) -> Deployment:
        return self._spec.deployment

    def data_of(self, node: Node) -> Path:
        """The directory with a node's data now, for this machine to read. Raises `OSError`."""
        return Path(node.data_dir)

    def dump(self, node: Node) -> bool:
        """Copy a running node's data files to its `record_dir`, beside the final collection; False if this world does
        not support it. Raises `WorldError`; a node that is off cannot be read."""
        self._copy(node, node.record_dir, EARLIER)
        return True

    def collect(self, node: Node, destination: Path) -> None:
        """Copy the replica logs and the node's records to `destination`; see `orchestrator.worlds.node_collection`."""
        self._copy(node, destination, DATA)

    def _copy(self, node: Node, destination: Path, name: str) -> None:
        directory, patterns = self.deployment.collected
        try:
            copy_data(self.data_of(node) / directory, patterns, destination, name)
            copy_records(node.record_dir, destination)
        except OSError as error:
            raise WorldError(f"{node.name}: its files cannot be collected: {error}") from error

    @property
    def left_behind(self) -> dict[str, str]:
        """By node: the pids that stopped services left behind; these processes were ended, too."""
        pids: dict[str, str] = self.__dict__.setdefault("_left_behind", {})  # atomic, for parallel stops
        return pids

    def service(self, node: Node) -> Service:
        """The service of the node."""
        return self.deployment.service(node, self.nodes, self.time_scale)

    @property
    def site(self) -> Site:
        """The nemesis's view of the world, with the deadlines that every service keeps."""
        services = [self.service(node) for node in self.nodes]
        return Site(
            self.hosts,
            self.power,
            self.network,
            self.suspender,
            self.time_scale,
            start_deadline_s=max(service.start_deadline_s for service in services),
            stop_deadline_s=max(service.stop_deadline_s for service in services),
            scheduler=self.scheduler,
            store_dir=self._store_dir(services),
        )

    def _store_dir(self, services: Sequence[Service]) -> str:
        """The directory that all nodes share, as they see it; empty if no service uses it."""
        path = self.nodes[0].shared_dir
        return path if path and any(uses_shared(service, path) for service in services) else ""

    def start_client(self, kind: str, role: str, settings: ClientSettings, log: Path) -> ClientHandle:
        """A client as a process of this machine; it reaches all nodes."""
        return ClientProcess(kind, role, settings, log)

    def observe(self, system: System, members: Sequence[Member], topic: str) -> Observer:
        """The observer of the cluster from outside."""
        return observe(system, members, topic, self.time_scale)

    def prepare_services(self) -> None:
        """Run each service's preparing commands, once before its first start, and sync their output. Raises
        `WorldError`."""
        self.scheduler.for_each(self.nodes, self._prepare_service)

    def _prepare_service(self, node: Node) -> None:
        """Syncs the prepared data, so that it survives an immediate power cut; programs do not always sync."""
        host, service = self.hosts[node.name], self.service(node)
        for parts in service.prepare:
            self._run_once(node, service, parts)
        if service.prepare:
            host.run(f"sync -f {shlex.quote(node.data_dir)}", timeout_s=service.prepare_deadline_s)

    def run_after_start(self) -> None:
        """Run each service's commands for the time after the first start of all, node by node. Raises `WorldError`."""
        for node in self.nodes:
            service = self.service(node)
            for parts in service.after_start:
                self._run_once(node, service, parts)

    def _run_once(self, node: Node, service: Service, parts: Sequence[str]) -> None:
        """Run a command of a service's description. Raises `WorldError` for another exit code than 0."""
        command = shlex.join(self._prepare_words(node, service, parts))
        done = self._run_to_prepare(self.hosts[node.name], command, service.prepare_deadline_s)
        if not done.ok:
            output = (done.stderr or done.stdout).strip()[-LAST_WORDS_BYTES:]
            raise WorldError(f"{node.name}: {shlex.join(parts)!r} ended with exit code {done.exit_code}: {output}")

    def _run_to_prepare(self, host: Host, command: str, timeout_s: float) -> Result:
        """Run a preparing command and wait for its end."""
        return host.run(command, timeout_s=timeout_s)

    def _prepare_words(self, node: Node, service: Service, command: Sequence[str]) -> list[str]:
        """A preparing command, with the environment of the service's host."""
        variables = [f"{key}={value}" for key, value in service.environment.items()]
        # `env` would read a program whose path has a `=` as another variable.
        return ["env", *variables, "sh", "-c", 'cd "$0" && exec "$@"', node.data_dir, *command]

    def start_service(self, node: Node) -> None:
        """Start the service and wait until it is ready. Raises `WorldError` with its last output, `HostError` if
        its program cannot be started."""
        host, service = self.hosts[node.name], self.service(node)
        patience_s = service.start_deadline_s * self.time_scale
        host.start_service()
        deadline = self.scheduler.monotonic() + patience_s
        next_look = self.scheduler.monotonic() + LOOK_S
        while not (self.accepts(node) and self._is_ready(node, service)):
            now = self.scheduler.monotonic()
            if now >= next_look:
                next_look = now + LOOK_S * self.time_scale
                if host.service_pid() is None:
                    raise self._ended_at_start(node)
                if now > deadline:
                    late, key = f"port {node.port} did not open", "ports"
                    if service.ready and self.accepts(node):
                        late, key = f"command {shlex.join(service.ready)!r} did not exit with 0", "ready"
                    raise WorldError(
                        f"{node.name}: the service's {late} within {patience_s:g} s; see {key} and start_deadline_s in "
                        f"its system.toml; its last words: {self.last_words(node)}"
                    )
            self.scheduler.sleep(0.01)

    def _is_ready(self, node: Node, service: Service) -> bool:
        """Whether the service's own command says so; true without one."""
        if not service.ready:
            return True
        command = shlex.join(self._prepare_words(node, service, service.ready))
        with contextlib.suppress(HostError):  # it did not end in time
            if self.hosts[node.name].run(command, timeout_s=READY_S * self.time_scale).ok:
                return True
        self.scheduler.sleep(LOOK_S)
        return False

    def _ended_at_start(self, node: Node) -> WorldError | HostError:
        """The error for a service that ended before it listened. A program that could not be started is not a finding
        about the system. The status is polled: it is known slightly later than the end is visible."""
        host, give_up_s = self.hosts[node.name], self.scheduler.monotonic() + STATUS_S * self.time_scale
        while (status := host.service_exit()) is None and self.scheduler.monotonic() < give_up_s:
            self.scheduler.sleep(0.05)
        last_output = f"its last words: {self.last_words(node)}"
        if status not in _NO_PROGRAM:
            return WorldError(f"{node.name}: the service ended at its start; {last_output}")
        program = self.service(node).command[0]
        return HostError(
            f"{node.name}: {program} cannot be started, or is a script that starts what cannot be (exit code {status});"
            f" see command in its system.toml; {last_output}"
        )

    def start_services(self, nodes: Sequence[Node] | None = None) -> None:
        """Start several services (None: all); those with the same start order in parallel."""
        for together in self._by_start_order(nodes):
            self.scheduler.for_each(together, self.start_service)

    def stop_services(self, nodes: Sequence[Node] | None = None) -> dict[str, int]:
        """Stop several services (None: all), in the reverse order of their start. Returns, by node, the pids that were
        asked to end."""
        signalled: dict[str, int] = {}

        def stop(node: Node) -> None:
            pid = self.stop_service(node)
            if pid is not None:
                signalled[node.name] = pid

        for together in reversed(self._by_start_order(nodes)):
            self.scheduler.for_each(together, stop)
        return signalled

    def _by_start_order(self, nodes: Sequence[Node] | None) -> list[list[Node]]:
        """The nodes (None: all) in the groups that start together, in start order."""
        groups: dict[int, list[Node]] = {}
        for node in self.nodes if nodes is None else nodes:
            groups.setdefault(self.service(node).start_order, []).append(node)
        return [groups[order] for order in sorted(groups)]

    def stop_service(self, node: Node) -> int | None:
        """Send the service SIGTERM, and wait until it and its remaining child processes have ended. Returns its pid,
        None if it did not run. Raises `WorldError` if it does not end."""
        host, service = self.hosts[node.name], self.service(node)
        patience_s = service.stop_deadline_s * self.time_scale
        pid = host.service_pid()
        if pid is None:
            return None
        is_signalled = host.run(f"kill -TERM {pid}").ok
        if self._has_ended(host, pid, patience_s):
            self._end_left(node, pid)
            return pid if is_signalled else None
        if service.kills_at_stop:
            host.run(f"kill -KILL {pid}")
            if self._has_ended(host, pid, KILLED_S * self.time_scale):
                self._end_left(node, pid)
                return pid
        raise WorldError(
            f"{node.name}: the service did not end within {patience_s:g} s of SIGTERM; {_HOW_TO_STOP}; "
            f"its last words: {self.last_words(node)}"
        )

    def _end_left(self, node: Node, pid: int) -> None:
        """End the processes that an ended service process has left behind, and wait until they have ended."""
        service = self.service(node)
        patience_s = service.stop_deadline_s * self.time_scale
        script = end_left_script(pid, round(patience_s) + 1)  # its clock has whole seconds
        answers = ask(self.hosts[node.name], script, timeout_s=service.stop_deadline_s + 15)
        if answers["left"]:
            self.left_behind[node.name] = answers["left"]
        if answers["state"] != "gone" and not (answers["state"] == "killed" and service.kills_at_stop):
            raise WorldError(
                f"{node.name}: processes that the service had left behind ({answers['left']}) did not end within "
                f"{patience_s:g} s "
                f"of SIGTERM; {_HOW_TO_STOP}; its last words: {self.last_words(node)}"
            )

    def accepts(self, node: Node) -> bool:
        """Whether the node's service listens."""
        return accepts(node.address, node.port)

    def _has_ended(self, host: Host, pid: int, patience_s: float) -> bool:
        deadline = self.scheduler.monotonic() + patience_s
        while host.service_pid() == pid:
            if self.scheduler.monotonic() > deadline:
                return False
            self.scheduler.sleep(0.02)
        return True

    def restart(self, node: Node) -> None:
        """`stop_service`, then `start_service`."""
        self.stop_service(node)
        self.start_service(node)

    def last_words(self, node: Node) -> str:
        """The end of a service's log, or the path where it would be."""
        return end_of_log(node.record_dir / "service.log")

    def kernel_words(self, name: str, pid: int) -> str:
        """The kernel's message about killing this process of a node for lack of memory; empty without one."""
        kernel_log = "{ dmesg || journalctl --dmesg --no-pager; } 2>/dev/null"
        with contextlib.suppress(HostError):
            kernel_line = self.hosts[name].run(f"{kernel_log} | grep -F 'Killed process {pid} (' | tail -n 1")
            return kernel_line.stdout.strip()
        return ""

    def collect_all(self) -> None:
        """Collect every node to its `record_dir`. Raises `WorldError`."""
        complaints = []
        for node in self.nodes:
            try:
                self.collect(node, node.record_dir)
            except WorldError as error:  # the files of the other nodes are then even more important
                complaints.append(str(error))
        if complaints:
            raise WorldError("; ".join(complaints))


def accepts(address: str, port: int, timeout_s: float = 1.0) -> bool:
    """Whether a process listens there."""
    with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=timeout_s):
        return True
    return False


def end_of_log(path: Path) -> str:
    """The last lines of a file; with the path, the reason if the file is empty or unreadable."""
    try:
        with path.open("rb") as log:
            log.seek(0, 2)
            log.seek(max(0, log.tell() - LAST_WORDS_BYTES))
            return log.read().decode(errors="replace").strip() or f"none ({path} is empty)"
    except OSError as error:
        return f"none ({path}: {error.strerror})"

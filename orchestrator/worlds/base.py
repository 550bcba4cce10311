"""The interface of every world: nodes with an address, a shell, a disk and, if possible, a network and a power
switch."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from nemeses.ports import Host, Network, PowerSwitch, Site
from nemeses.scheduling import Scheduler
from systems import Member, Observer, System
from systems.service import Deployment, Place, Service
from workloads.process import ClientHandle
from workloads.settings import ClientSettings

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


class World(Protocol):
    """The environment of a cluster. `nodes` are known before `up`; everything else exists between `up` and `down`."""

    name: str
    capabilities: frozenset[str]
    """The names of the kinds of fault that can be injected in this world."""
    limits: list[str]
    needs_sandbox: bool
    time_scale: float
    """How many times longer everything takes than on this machine itself: a factor for deadlines and timeouts."""
    scheduler: Scheduler
    """The clock of the run, its journal and its clients."""

    def __init__(self, spec: WorldSpec) -> None: ...

    @property
    def nodes(self) -> list[Node]: ...

    @property
    def hosts(self) -> Mapping[str, Host]: ...

    @property
    def power(self) -> PowerSwitch | None: ...

    @property
    def network(self) -> Network | None: ...

    @property
    def site(self) -> Site:
        """Hosts, power and network together, as `nemeses.Nemesis` takes them."""
        ...

    def start_client(self, kind: str, role: str, settings: ClientSettings, log: Path) -> ClientHandle:
        """Start a client of a workload kind. It reaches every node, whatever is cut."""
        ...

    def observe(self, system: System, members: Sequence[Member], topic: str) -> Observer:
        """The observer of the cluster from outside."""
        ...

    def up(self, on_progress: Progress = no_progress) -> None:
        """Make all nodes, in parallel, and wait until each is reachable. Starts no service.

        Raises `WorldError`, after removing what was made."""
        ...

    def down(self) -> None:
        """Remove everything that `up` made. Can be called twice, and after a failed `up`."""
        ...

    def service(self, node: Node) -> Service:
        """The service of the node."""
        ...

    def prepare_services(self) -> None:
        """Run each service's preparing commands, once before its first start, and sync their output. Raises
        `WorldError`."""
        ...

    def run_after_start(self) -> None:
        """Run each service's commands for the time after the first start of all, node by node. Raises `WorldError`."""
        ...

    def start_service(self, node: Node) -> None:
        """Start the service and wait until it is ready. Raises `WorldError` with its last output, `HostError` if
        its program cannot be started."""
        ...

    def start_services(self, nodes: Sequence[Node] | None = None) -> None:
        """Start several services (None: all); those with the same start order in parallel."""
        ...

    def stop_service(self, node: Node) -> int | None:
        """Send the service SIGTERM, and wait until it and its remaining child processes have ended. Returns its pid,
        None if it did not run. Raises `WorldError` if it does not end."""
        ...

    def stop_services(self, nodes: Sequence[Node] | None = None) -> Mapping[str, int]:
        """Stop several services (None: all), in the reverse order of their start. Returns, by node, the pids that were
        asked to end."""
        ...

    @property
    def left_behind(self) -> Mapping[str, str]:
        """By node: the pids of processes that stopped services left behind."""
        ...

    def restart(self, node: Node) -> None:
        """`stop_service`, then `start_service`."""
        ...

    def last_words(self, node: Node) -> str:
        """The end of a service's log, or the path where it would be."""
        ...

    def kernel_words(self, name: str, pid: int) -> str:
        """The kernel's message about killing this process of a node for lack of memory; empty without one."""
        ...

    def collect(self, node: Node, destination: Path) -> None:
        """Copy the replica logs and the node's records to `destination`; see `orchestrator.worlds.node_collection`."""
        ...

    def dump(self, node: Node) -> bool:
        """Copy a running node's data files to its `record_dir`, beside the final collection; False if this world does
        not support it. Raises `WorldError`; a node that is off cannot be read."""
        ...

    def collect_all(self) -> None:
        """Collect every node to its `record_dir`. Raises `WorldError`."""
        ...


def names(nodes: Collection[Node]) -> str:
    """Node names for a message."""
    return ", ".join(node.name for node in nodes)

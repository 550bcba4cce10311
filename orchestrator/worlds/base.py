"""What every world is: nodes with an address, a shell, a disk and (where it can) a network and a power switch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from installation.files import PROJECT_ROOT
from nemeses.ports import Host, Network, PowerSwitch, Site
from nemeses.scheduling import Scheduler
from systems import Member, Observer, System
from systems.service import Deployment, Service
from workloads.process import ClientHandle
from workloads.settings import ClientSettings

DISK_BYTES = 512 << 20

Progress = Callable[[str], None]


def no_progress(_: str) -> None:
    """The default listener: nobody."""


@dataclass(frozen=True)
class Node:
    """One node, a `systems.Place`. The paths are as the node sees them; `record_dir` is where the machine sees what
    survives of it.

    `record_dir` (`<run>/nodes/<name>`) receives `service.log` and `events.jsonl` as they are written, so that a run
    that is killed can still be read.
    """

    name: str
    id: int
    address: str
    ports: Mapping[str, int] = field(hash=False)
    data_dir: str
    etc_dir: str
    var_dir: str
    record_dir: Path
    files_dir: str = ""
    python: str = sys.executable
    python_path: str = str(PROJECT_ROOT)
    is_local: bool = True

    @property
    def port(self) -> int:
        """Where clients reach the node's service."""
        return next(iter(self.ports.values()))

    @property
    def trace_path(self) -> str:
        """Where the service writes its trace events, if it does."""
        return f"{self.var_dir}/events.jsonl"

    @property
    def service_log(self) -> str:
        """Where what the service prints goes."""
        return f"{self.var_dir}/service.log"


@dataclass(frozen=True)
class WorldSpec:
    """What a world is built from.

    `deployment` says what runs on its nodes. `rootfs` is the directory tree that nodes run on (see `nodeimage`); None:
    this machine's own. Only the namespace world has use for it.
    `seed`: of everything that chance decides in a world that is simulated. `messages`: such a world writes down what
    its processes say to each other.
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
    """A cluster's surroundings. `nodes` are known before `up`; everything else is there between `up` and `down`."""

    name: str
    capabilities: frozenset[str]
    """The names of the kinds of fault that can be inflicted there."""
    limits: list[str]
    needs_sandbox: bool
    time_scale: float
    """How much longer everything takes than on this machine itself: what deadlines and timeouts are multiplied by."""
    scheduler: Scheduler
    """The time in which the run lives: also its journal's and its clients'."""

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
        """Hosts, power and network together: what `nemeses.Nemesis` takes."""
        ...

    def start_client(self, kind: str, role: str, settings: ClientSettings, log: Path) -> ClientHandle:
        """Start a client of a workload kind, which reaches every node whatever is cut."""
        ...

    def observe(self, system: System, members: Sequence[Member], topic: str) -> Observer:
        """What looks at the cluster from outside."""
        ...

    def up(self, on_progress: Progress = no_progress) -> None:
        """Make all nodes, in parallel, and wait until each can be reached. No service is started.

        Raises `WorldError`; what was made is then gone again."""
        ...

    def down(self) -> None:
        """Remove everything that `up` made. May be called twice, and after a failed `up`."""
        ...

    def service(self, node: Node) -> Service:
        """What the node runs."""
        ...

    def prepare_services(self) -> None:
        """Run what each service needs to be run once before its first start, and sync what it wrote. Raises
        `WorldError`."""
        ...

    def start_service(self, node: Node) -> None:
        """Start the service and wait until its port is open. Raises `WorldError` with its last words, `HostError` where
        there is nothing that can be started."""
        ...

    def start_services(self, nodes: Sequence[Node] | None = None) -> None:
        """Start several services (None: all), those of one start order in parallel."""
        ...

    def stop_service(self, node: Node) -> int | None:
        """Ask the service to shut down cleanly (SIGTERM) and wait until it has, and then what it has left behind; its
        process, None when there was none to ask. Raises `WorldError` if it does not."""
        ...

    def stop_services(self, nodes: Sequence[Node] | None = None) -> Mapping[str, int]:
        """Stop several services (None: all), in the opposite order of their start; the processes that were asked to
        end, by node."""
        ...

    @property
    def left_behind(self) -> Mapping[str, str]:
        """Which processes services that were stopped had left behind: pids, by node."""
        ...

    def restart(self, node: Node) -> None:
        """`stop_service`, then `start_service`."""
        ...

    def last_words(self, node: Node) -> str:
        """The end of a service's log, or where it would be."""
        ...

    def kernel_words(self, name: str, pid: int) -> str:
        """What the kernel has said of killing this process of a node for lack of memory; nothing where it has not, or
        does not tell."""
        ...

    def collect(self, node: Node, destination: Path) -> None:
        """Copy the replica logs and the node's records to `destination`; see `orchestrator.worlds.node_collection`."""
        ...

    def dump(self, node: Node) -> bool:
        """Copy a running node's data files to its `record_dir`, beside what is collected at the end; False where this
        world does not reach them. Raises `WorldError`; a node that is off cannot be read."""
        ...

    def collect_all(self) -> None:
        """Collect every node to its `record_dir`. Raises `WorldError`."""
        ...


def names(nodes: Collection[Node]) -> str:
    """Node names for people."""
    return ", ".join(node.name for node in nodes)

"""What every world is: nodes with an address, a shell, a disk and (where it can) a network and a power switch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nemeses.fault import Kind
from nemeses.ports import Host, Network, PowerSwitch, Site
from orchestrator.errors import WorldError as WorldError

PROJECT_ROOT = Path(__file__).resolve().parents[2]
DISK_BYTES = 512 << 20

Progress = Callable[[str], None]


def no_progress(_: str) -> None:
    """The default listener: nobody."""


@dataclass(frozen=True)
class Node:
    """One node. The paths are as the node sees them; `record_dir` is where the machine sees what survives of it.

    `record_dir` (`<run>/nodes/<name>`) receives `service.log` and `events.jsonl` as they are written, so that a run
    that is killed can still be read.
    """

    name: str
    id: int
    address: str
    port: int
    data_dir: str
    properties_path: str
    trace_path: str
    service_log: str
    record_dir: Path

    @property
    def log_dir(self) -> str:
        """The broker's `log.dir`."""
        return f"{self.data_dir}/log"


@dataclass(frozen=True)
class WorldSpec:
    """What a world is built from.

    `properties` gives each node's server.properties, once all nodes and addresses are known. `broker` is the command
    that starts a broker, without `--config` and `--mutant`, which the world adds. `rootfs` is the directory tree that
    nodes run on (see `nodeimage`); None: this machine's own. Only the namespace world has use for it.
    """

    run_id: str
    run_dir: Path
    node_count: int
    properties: Callable[[Node], str]
    mutants: tuple[str, ...] = ()
    filesystem: str = "ext4"
    broker: tuple[str, ...] = (sys.executable, "-m", "broker")
    disk_bytes: int = DISK_BYTES
    rootfs: Path | None = None

    def broker_command(self, node: Node) -> list[str]:
        mutants = [argument for name in self.mutants for argument in ("--mutant", name)]
        return [*self.broker, "--config", node.properties_path, *mutants]


class World(Protocol):
    """A cluster's surroundings. `nodes` are known before `up`; everything else is there between `up` and `down`."""

    name: str
    capabilities: frozenset[Kind]
    limits: list[str]
    needs_sandbox: bool
    time_scale: float
    """How much longer everything takes than on this machine itself: what deadlines and timeouts are multiplied by."""

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

    def up(self, on_progress: Progress = no_progress) -> None:
        """Make all nodes, in parallel, and wait until each can be reached. No broker is started.

        Raises `WorldError`; what was made is then gone again."""
        ...

    def down(self) -> None:
        """Remove everything that `up` made. May be called twice, and after a failed `up`."""
        ...

    def start_service(self, node: Node) -> None:
        """Start the broker and wait until its port is open. Raises `WorldError` with its last words."""
        ...

    def start_services(self, nodes: Sequence[Node] | None = None) -> None:
        """Start several brokers (None: all) in parallel."""
        ...

    def stop_service(self, node: Node) -> None:
        """Ask the broker to shut down cleanly (SIGTERM) and wait until it has. Raises `WorldError` if it does not."""
        ...

    def restart(self, node: Node) -> None:
        """`stop_service`, then `start_service`."""
        ...

    def last_words(self, node: Node) -> str:
        """The end of a broker's log, or where it would be."""
        ...

    def collect(self, node: Node, destination: Path) -> None:
        """Copy the replica logs and the node's records to `destination`; see `orchestrator.worlds.collect`."""
        ...

    def collect_all(self) -> None:
        """Collect every node to its `record_dir`. Raises `WorldError`."""
        ...


def names(nodes: Collection[Node]) -> str:
    """Node names for people."""
    return ", ".join(node.name for node in nodes)

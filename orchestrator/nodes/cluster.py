"""The kept nodes themselves: one lab with one world, with the default configuration of Brownout's broker."""

import contextlib
import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, runtime_checkable

from nemeses.ports import HostError
from nemeses.scheduling import for_each
from orchestrator.cleanup import clean_up
from orchestrator.errors import UsageError
from orchestrator.nodes.messages import NodesStatus, NodeStatus, NodesUp
from orchestrator.nodes.state import KeptNodes, NodesPlan
from orchestrator.running.cluster import Cluster
from orchestrator.worlds.base import Node, Progress, World, WorldSpec
from orchestrator.worlds.lab import Lab, LabSpec
from orchestrator.worlds.observer_guard import observe
from orchestrator.worlds.selection import lab_named
from systems import Deployed, load_system

_REGISTERED_S = 30.0
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


@runtime_checkable
class Provisioned(Protocol):
    """A lab whose machines are set up by playbooks, which can also start and stop the installed services."""

    def play(self, playbook: str, on_progress: Progress) -> object:
        """Run a playbook on all machines. Raises `WorldError`."""
        ...


class HeldNodes:
    """The nodes of one plan, between `up` and `down`."""

    def __init__(self, kept: KeptNodes, plan: NodesPlan) -> None:
        self._deployed = _deployed(plan, cluster_id=f"brownout-nodes-{kept.id}")
        self._lab: Lab = lab_named(plan.world)(lab_spec(plan, kept.lab))
        self._spec = WorldSpec(
            run_id=f"nodes-{kept.id}",
            run_dir=kept.directory / "run",
            node_count=plan.node_count,
            deployment=self._deployed,
            filesystem=plan.filesystem,
        )
        self._world: World | None = None

    @property
    def _there(self) -> World:
        assert self._world is not None, "called between up and down only"
        return self._world

    def up(self, on_progress: Progress) -> None:
        """Raises `WorldError`; call `down` in that case, too."""
        self._lab.open(on_progress)
        self._world = self._lab.world(self._spec)
        self._world.up(on_progress)

    def down(self, on_progress: Progress) -> None:
        """Can be called after a failed or interrupted `up`."""
        clean_up(*(() if self._world is None else (self._world.down,)), self._lab.close)
        on_progress("the nodes are down")

    def summary(self) -> NodesUp:
        """The nodes' names, and the addresses of the brokers when they run."""
        nodes = self._there.nodes
        return NodesUp([node.name for node in nodes], ",".join(f"{node.address}:{node.port}" for node in nodes))

    def status(self) -> NodesStatus:
        """The current state of each node, queried concurrently."""
        return NodesStatus("up", for_each(self._there.nodes, self._look), self.summary().bootstrap)

    def shell(self, name: str, command: Sequence[str]) -> list[str]:
        """The command that enters a node from inside the sandbox. Raises `UsageError` for an unknown node."""
        known = [node.name for node in self._there.nodes]
        if name not in known:
            raise UsageError(f"unknown node {name!r}; the nodes are: {', '.join(known)}")
        # One word is a script. Several words are one command, whose words are passed unchanged.
        script = command[0] if len(command) == 1 else shlex.join(command)
        return self._lab.shell(name, [script] if command else [])

    def start_services(self, on_progress: Progress) -> None:
        """Start the services that do not run, concurrently, and wait until clients can use them. Raises `RunError`."""
        if isinstance(self._lab, Provisioned):
            self._lab.play("start", on_progress)
        else:
            self._there.start_services()
        nodes = self._there.nodes
        on_progress("waiting for a controller that all brokers are registered with")
        members = self._deployed.members(nodes)
        everyone = frozenset(member.name for member in members)
        observer = observe(self._deployed.system, members, "", self._lab.time_scale)
        with contextlib.closing(Cluster(observer, members, topic="")) as cluster:
            view = cluster.await_view(
                lambda view: view.controller is not None and view.unfenced >= everyone,
                "waiting for a controller and all brokers to be registered",
                _REGISTERED_S * self._lab.time_scale,
            )
        on_progress(f"the controller is {view.controller}")

    def stop_services(self, on_progress: Progress) -> None:
        """Stop the running services in an orderly way. Raises `WorldError`."""
        if isinstance(self._lab, Provisioned):
            self._lab.play("stop", on_progress)
        else:
            self._there.stop_services()

    def _look(self, node: Node) -> NodeStatus:
        world = self._there
        seen = partial(NodeStatus, node.name, node.address, node.port)
        if world.power is not None and not world.power.is_on(node.name):
            return seen("off")
        host = world.hosts[node.name]
        try:
            boot_id = host.run(f"cat {_BOOT_ID}").stdout.strip()
            pid = host.service_pid()
        except HostError as error:
            return seen("unreachable", reason=str(error))
        # If nodes are processes of this machine, its boot id is not theirs.
        return seen("up", boot_id=boot_id if boot_id != _own_boot_id() else None, service_pid=pid)


def lab_spec(plan: NodesPlan, directory: Path) -> LabSpec:
    """The inputs of a plan's lab."""
    inventory = None if plan.inventory is None else Path(plan.inventory)
    return LabSpec(
        plan.node_count, plan.filesystem, directory, software=(_deployed(plan).software,), inventory=inventory
    )


def _deployed(plan: NodesPlan, cluster_id: str = "") -> Deployed:
    system = load_system()
    return Deployed(system, system.assign_roles(plan.node_count, {}), cluster_id)


def _own_boot_id() -> str | None:
    with contextlib.suppress(OSError):
        return Path(_BOOT_ID).read_text(encoding="ascii").strip()
    return None

"""Keeps nodes: one lab with one world, with the default configuration of Brownout's broker.

A program that `nodes up` starts in a session of its own: `holder DIRECTORY LOCK`. LOCK is an inherited descriptor.

Theory of operation. The process that made the nodes holds what no other process can take over: descriptors of disks
without a name, the pipe to the supervisor of the process world, the libvirt that it started, the locks on hosts, the
threads that copy logs. So it lives as long as the nodes and follows orders, and everything ends with it, as with a kept
run. Its one thread makes the nodes, follows one order after the other, and takes the nodes down at a SIGTERM, which may
interrupt an order. Standard input is a pipe of `nodes up`: if that command ends before the nodes are up, so does this
process.
"""

import contextlib
import os
import shlex
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

import msgspec

from installation.python_modules import module_command
from nemeses.ports import HostError
from nemeses.scheduling import for_each
from orchestrator.cleanup import always, clean_up, described
from orchestrator.errors import EXIT_INTERNAL, Interrupted, UsageError
from orchestrator.machine import sandbox
from orchestrator.nodes.orders import NodeStatus, Order, OrderAnswer, listening, serve
from orchestrator.nodes.state import KeptNodes, NodesPlan
from orchestrator.running.cluster import Cluster
from orchestrator.running.interrupts import Interrupts
from orchestrator.running.progress import Progress
from orchestrator.worlds.base import Node, World, WorldSpec
from orchestrator.worlds.base import Progress as Listener
from orchestrator.worlds.lab import Lab, LabSpec
from orchestrator.worlds.observer_guard import observe
from orchestrator.worlds.selection import lab_named
from systems import Deployed, load_system
from systems.errors import ClusterError, InputError

_REGISTERED_S = 30.0
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class HeldNodes:
    """The nodes of one plan, from `up` to `down`. The orders are for the time between them."""

    def __init__(self, kept_nodes: KeptNodes, plan: NodesPlan, say: Listener) -> None:
        self._kept_nodes, self._say = kept_nodes, say
        self._deployed = _deployed(plan, cluster_id=f"brownout-nodes-{plan.id}")
        self._lab: Lab = lab_named(plan.world)(lab_spec(plan, kept_nodes.lab))
        self._spec = WorldSpec(
            run_id=f"nodes-{plan.id}",
            run_dir=kept_nodes.run,
            node_count=plan.node_count,
            deployment=self._deployed,
            filesystem=plan.filesystem,
        )
        self._world: World | None = None

    @property
    def _live_world(self) -> World:
        assert self._world is not None, "called between up and down only"
        return self._world

    def up(self) -> None:
        """Raises `WorldError`; call `down` in that case, too."""
        self._lab.open(self._say)
        self._world = self._lab.world(self._spec)
        self._world.up(self._say)

    def down(self) -> None:
        """Can be called after a failed or interrupted `up`."""
        _end(self._kept_nodes)
        self._say("taking the nodes down")
        clean_up(*(() if self._world is None else (self._world.down,)), self._lab.close)
        self._say("the nodes are down")

    def answer(self, order: Order) -> OrderAnswer:
        """Follow an order. Raises no `Exception`: it is the answer."""
        try:
            match order.action:
                case "ssh":
                    return OrderAnswer(argv=self._shell(order.node, order.words))
                case "start":
                    self._start_services()
                case "stop":
                    self._live_world.stop_services()
            return OrderAnswer(for_each(self._live_world.nodes, self._look))
        except Exception as error:
            return _failed(error)

    def _shell(self, name: str, words: Sequence[str]) -> list[str]:
        names = [node.name for node in self._live_world.nodes]
        if name not in names:
            raise UsageError(f"unknown node {name!r}; the nodes are: {', '.join(names)}")
        # One word is a script. Several words are one command, whose words are passed unchanged.
        script = words[0] if len(words) == 1 else shlex.join(words)
        return self._lab.shell(name, [script] if words else [])

    def _start_services(self) -> None:
        """Start the services that do not run, concurrently, and wait until clients can use them."""
        self._live_world.start_services()
        self._say("waiting for a controller that all brokers are registered with")
        members = self._deployed.members(self._live_world.nodes)
        everyone = frozenset(member.name for member in members)
        observer = observe(self._deployed.system, members, "", self._lab.time_scale)
        with contextlib.closing(Cluster(observer, members, topic="")) as cluster:
            view = cluster.await_view(
                lambda view: view.controller is not None and view.unfenced >= everyone,
                "waiting for a controller and all brokers to be registered",
                _REGISTERED_S * self._lab.time_scale,
            )
        self._say(f"the controller is {view.controller}")

    def _look(self, node: Node) -> NodeStatus:
        world = self._live_world
        status = partial(NodeStatus, node.name, node.address, node.port)
        if world.power is not None and not world.power.is_on(node.name):
            return status("off")
        host = world.hosts[node.name]
        try:
            boot_id = host.run(f"cat {_BOOT_ID}").stdout.strip()
            pid = host.service_pid()
        except HostError as error:
            return status("unreachable", reason=str(error))
        # If nodes are processes of this machine, its boot id is not theirs.
        return status("up", boot_id=boot_id if boot_id != _own_boot_id() else None, service_pid=pid)


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


def _hold(kept_nodes: KeptNodes, plan: NodesPlan) -> int:
    """Make the nodes, follow orders and take the nodes down; returns the exit code. An error is recorded."""
    progress = Progress()
    interrupts = Interrupts(on_first=lambda: _end(kept_nodes), on_second=lambda: progress.say("aborting"))
    is_up = threading.Event()
    try:
        with contextlib.suppress(Interrupted), interrupts.installed(), listening(kept_nodes) as listener:
            threading.Thread(target=_end_with_starter, args=(is_up,), daemon=True).start()
            nodes = HeldNodes(kept_nodes, plan, progress.say)
            with always(nodes.down, shield=interrupts.shielded), contextlib.suppress(Interrupted):
                nodes.up()
                is_up.set()
                kept_nodes.record(kept_nodes.phase_file, "up")
                serve(listener, nodes.answer)
    except Exception as error:
        kept_nodes.failure.write_bytes(msgspec.json.encode(_failed(error)))
        return EXIT_INTERNAL
    kept_nodes.remove()
    return 0


def _end(kept_nodes: KeptNodes) -> None:
    with contextlib.suppress(OSError):  # nothing prevents the end
        kept_nodes.record(kept_nodes.phase_file, "going down")


def _end_with_starter(is_up: threading.Event) -> None:
    while os.read(0, 1):
        pass
    if not is_up.is_set():
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


def _failed(error: Exception) -> OrderAnswer:
    if isinstance(error, InputError):
        return OrderAnswer(error=described(error), is_usage=True)
    if isinstance(error, ClusterError | HostError):
        return OrderAnswer(error=described(error))
    text = "".join(traceback.format_exception(error))
    return OrderAnswer(error=f"{text}this is a bug of Brownout; the traceback above shows where")


def main(arguments: Sequence[str]) -> NoReturn:
    kept_nodes, lock = KeptNodes(Path(arguments[0])), int(arguments[1])
    plan = kept_nodes.plan()
    assert plan is not None, "it was recorded before this process was started"
    if plan.sandboxed and sandbox.current_sandbox() is None:
        sandbox.enter_sandbox(module_command("orchestrator.nodes.holder", *arguments))
    os.set_inheritable(lock, False)
    os._exit(_hold(kept_nodes, plan))  # the thread may still read


if __name__ == "__main__":
    main(sys.argv[1:])

"""A cluster of real brokers in the simulated world, and everything that can happen to it."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import random
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from broker.config import BrokerConfig
from broker.errors import StartupError
from broker.mutants import Mutants
from broker.server.broker_node import BrokerNode, NodeFailure
from broker.server.client import Address
from broker.trace import Tracer
from simulator.conditions import Conditions
from simulator.disk import FileSystem, SimulatedDisk
from simulator.host import Host
from simulator.journal import Journal
from simulator.loop import new_loop
from simulator.network import SimulatedNetwork

T = TypeVar("T")
PORT = 9092
CLIENT = "client"
BEGINNING_NS = 1_700_000_000_000_000_000  # of the simulated wall clock
POLL = 0.01  # seconds


class Machine:
    """One machine: a disk that stays, and the process that runs on it for now."""

    def __init__(self, node_id: int, name: str, disk: SimulatedDisk) -> None:
        self.node_id = node_id
        self.name = name
        self.disk = disk
        self.powered = True
        self.lives = 0
        self.host: Host | None = None
        self.node: BrokerNode | None = None

    @property
    def running(self) -> bool:
        """Whether a broker process runs here."""
        return self.host is not None and self.host.alive


class SimulatedCluster:
    """Brokers 1..n on machines n1..nn, and a client's host. Everything that happens follows from the seed.

    `properties` are Kafka's keys for every broker. Use it as a context manager: leaving it lets go of what was killed.
    """

    def __init__(
        self,
        seed: int,
        nodes: int = 3,
        *,
        properties: Mapping[str, str] | None = None,
        mutants: Iterable[str] = (),
        conditions: Conditions | None = None,
        file_system: FileSystem | None = None,
    ) -> None:
        """`file_system` None: the seed chooses."""
        self.seed = seed
        self.loop = new_loop()
        self.journal = Journal()
        self.rng = random.Random(f"{seed}/faults")
        self.network = SimulatedNetwork(
            self.loop, random.Random(f"{seed}/network"), conditions, observe=self.journal.mix
        )
        self._properties = dict(properties or {})
        self._mutants = tuple(mutants)
        self._context = contextvars.Context()
        self._hosts: list[Host] = []
        self.client = self._new_host(CLIENT)
        choice = random.Random(f"{seed}/disks").choice((FileSystem.EXT4, FileSystem.XFS))
        self.machines: dict[str, Machine] = {}
        for node_id in range(1, nodes + 1):
            name = f"n{node_id}"
            disk = SimulatedDisk(self.loop, random.Random(f"{seed}/{name}/disk"), conditions, file_system or choice)
            self.machines[name] = Machine(node_id, name, disk)

    def __enter__(self) -> SimulatedCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- running

    @property
    def addresses(self) -> dict[int, Address]:
        """Where the brokers listen, by id."""
        return {machine.node_id: (machine.name, PORT) for machine in self.machines.values()}

    def run(self, body: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine that runs on the client's host, with nothing collected as garbage meanwhile.

        When garbage is collected differs from process to process, and objects may act when they are collected.
        """
        collecting = gc.isenabled()
        gc.disable()
        try:
            return self.loop.run_until_complete(self.loop.create_task(body, context=self.client.context.copy()))
        finally:
            if collecting:
                gc.enable()

    def close(self) -> None:
        """End the run. Raises `AssertionError` when a callback or task of a broker failed and nobody caught it."""
        self.loop.close()
        for host in self._hosts:
            self.loop.bury(host)
        if self.loop.unhandled:
            raise AssertionError("\n".join(map(str, self.loop.unhandled)))

    async def until(self, condition: Callable[[], bool], timeout: float = 30.0) -> None:
        """Return once a condition holds. Raises `TimeoutError` after so many virtual seconds."""
        async with asyncio.timeout(timeout):
            while not condition():  # noqa: ASYNC110 - conditions look at anything, and polling costs no time here
                await asyncio.sleep(POLL)

    async def ready(self, names: Iterable[str] | None = None, timeout: float = 30.0) -> None:
        """Return once brokers (all that run) are registered and unfenced. Raises `TimeoutError`."""
        chosen = [self.machines[name] for name in names or self.machines]

        def all_are_ready() -> bool:
            return all(_is_ready(machine.node) for machine in chosen if machine.running)

        await self.until(all_are_ready, timeout)

    # --- processes and power

    def start(self, *names: str) -> None:
        """Start the brokers (all) that do not run, on machines that have or get power."""
        for machine in self._chosen(names):
            if machine.running:
                continue
            if not machine.powered:
                machine.powered = True
                self.network.power_restored(machine.name)
            self._start(machine)

    def kill(self, *names: str) -> None:
        """kill -9: the process is gone, what it wrote is in the page cache."""
        for machine in self._chosen(names):
            self._note("killed", machine)
            self._process_ended(machine)

    def power_loss(self, *names: str) -> None:
        """Cut the power, of all machines at the same moment: silence, and only what was durable stays."""
        for machine in self._chosen(names):
            self._note("power_lost", machine)
            machine.powered = False
            self.network.power_lost(machine.host, machine.name)
            if machine.host is not None:
                machine.host.kill()
            machine.host = machine.node = None
            machine.disk.power_loss(self.rng)

    async def stop(self, *names: str) -> None:
        """Stop brokers cleanly, as SIGTERM does, one after the other."""
        for machine in self._chosen(names):
            if machine.host is None or machine.node is None:
                continue
            self._note("stopping", machine)
            await self.loop.create_task(machine.node.stop(), context=machine.host.context.copy())
            self._process_ended(machine)

    # --- the network

    def partition(self, *groups: Sequence[str]) -> None:
        """Cut the network into groups; who is in none keeps all connections."""
        self.journal.record({"event": "partition", "at": self.loop.time(), "groups": [list(group) for group in groups]})
        for number, group in enumerate(groups):
            for other in groups[number + 1 :]:
                self.network.partition(list(group), list(other))

    def cut(self, source: str, target: str) -> None:
        """Drop packets in one direction."""
        self.journal.record({"event": "cut", "at": self.loop.time(), "source": source, "target": target})
        self.network.cut(source, target)

    def heal(self) -> None:
        """Mend all cuts."""
        self.journal.record({"event": "heal", "at": self.loop.time()})
        self.network.heal()

    # --- looking

    def node(self, name: str) -> BrokerNode:
        """The broker that runs on a machine."""
        node = self.machines[name].node
        assert node is not None, f"{name} does not run"
        return node

    def controller(self) -> str | None:
        """The machine whose broker is the active controller, in its own view."""
        for machine in self.machines.values():
            node = machine.node
            if machine.running and node is not None and _is_composed(node) and node.quorum.is_leader:
                return machine.name
        return None

    def digest(self) -> str:
        """The digest of everything that has happened."""
        return self.journal.digest()

    # --- how it is done

    def _start(self, machine: Machine) -> None:
        machine.lives += 1
        machine.host = self._new_host(machine.name)
        self._note("started", machine)
        machine.node = machine.host.context.copy().run(self._make_node, machine)
        living = self.loop.create_task(self._live(machine.node), context=machine.host.context.copy())
        living.add_done_callback(partial(self._process_exited, machine, machine.host), context=self._context)

    def _make_node(self, machine: Machine) -> BrokerNode:
        properties = {
            "node.id": str(machine.node_id),
            "listeners": f"{machine.name}:{PORT}",
            "quorum.voters": ",".join(f"{i}@{host}:{port}" for i, (host, port) in self.addresses.items()),
            "log.dir": f"/{machine.name}",
            **self._properties,
        }
        return BrokerNode(
            BrokerConfig.from_properties(properties, machine.name),
            disk=machine.disk,
            rng=random.Random(f"{self.seed}/{machine.name}/{machine.lives}"),
            tracer=Tracer(machine.node_id, self._wall_clock, self.journal.record),
            mutants=Mutants(self._mutants),
            clock=self._wall_clock,
        )

    @staticmethod
    async def _live(node: BrokerNode) -> str:
        """The life of a process, as `python -m broker` lives it; why it ended."""
        try:
            await node.start()
            await asyncio.wait([node.failed])
            node.failed.result()
        except (StartupError, NodeFailure, OSError) as error:
            return str(error)
        except asyncio.CancelledError:
            pass
        return "stopped"

    def _process_exited(self, machine: Machine, host: Host, task: asyncio.Task[str]) -> None:
        if host.alive and machine.host is host:
            self._note("exited", machine, reason=task.result())
            self._process_ended(machine)

    def _process_ended(self, machine: Machine) -> None:
        host, machine.host, machine.node = machine.host, None, None
        if host is not None:
            host.kill()
            self.network.process_died(host)
            machine.disk.process_died()

    def _new_host(self, name: str) -> Host:
        host = Host(name, name)
        self._hosts.append(host)
        return host

    def _note(self, event: str, machine: Machine, **fields: object) -> None:
        self.journal.record({"event": event, "at": self.loop.time(), "machine": machine.name, **fields})

    def _chosen(self, names: Sequence[str]) -> list[Machine]:
        return [self.machines[name] for name in names or self.machines]

    def _wall_clock(self) -> int:
        return BEGINNING_NS + round(self.loop.time() * 1e9)


def _is_composed(node: BrokerNode) -> bool:
    """Whether a node has recovered what is on its disk, and so has all of its parts."""
    return hasattr(node, "quorum") and hasattr(node, "lifecycle")


def _is_ready(node: BrokerNode | None) -> bool:
    return node is not None and _is_composed(node) and node.lifecycle.unfenced.is_set()

"""A cluster of real brokers in the simulated world, with operations for all faults and lifecycle events."""

import asyncio
import contextvars
import gc
import hashlib
import json
import random
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from broker.config import BrokerConfig
from broker.errors import StartupError
from broker.mutants import Mutants
from broker.ports import File
from broker.properties import parse_properties
from broker.server.broker_node import BrokerNode, NodeFailure
from broker.server.client import Address
from broker.trace import JsonLines, Sink, Tracer, Value
from simulator.clock import MachineClock
from simulator.conditions import Conditions
from simulator.crash_points import CrashPoint, CrashPoints
from simulator.disk import FileSystem, SimulatedDisk
from simulator.host import HostContext
from simulator.loop import Unhandled, new_loop
from simulator.network import SimulatedNetwork
from simulator.network_interface import Disturbance
from simulator.object_store import SimulatedObjectStore
from simulator.oracles import Watch
from simulator.oracles.machine_view import MachineView

# ---- The ordered events of a simulated run, and their digest: two runs are the same exactly if their digests are.


class EventJournal:
    """Events of the brokers and of the world; network bytes are only part of the digest."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._hash = hashlib.sha256()

    def record(self, event: dict[str, Any]) -> None:
        """Add an event."""
        self.events.append(event)
        self._hash.update(json.dumps(event, sort_keys=True).encode() + b"\n")

    def mix(self, line: bytes) -> None:
        """Add a line to the digest without storing it."""
        self._hash.update(line)

    def of(self, name: str, **fields: object) -> list[dict[str, Any]]:
        """The events of one kind whose fields have the given values."""
        return [
            event
            for event in self.events
            if event["event"] == name and all(event.get(key) == value for key, value in fields.items())
        ]

    def digest(self) -> str:
        """The SHA-256 of everything so far, in hexadecimal."""
        return self._hash.hexdigest()


# ---- A directory of a machine's disk as a separate disk, for a process with its data there.


class Subtree:
    """The Disk port below a directory, which must exist."""

    def __init__(self, disk: SimulatedDisk, directory: str) -> None:
        self._disk = disk
        self._directory = directory

    def open(self, path: str, *, create: bool = False) -> File:
        return self._disk.open(self._at(path), create=create)

    def exists(self, path: str) -> bool:
        return self._disk.exists(self._at(path))

    def list(self, directory: str) -> list[str]:
        return self._disk.list(self._at(directory))

    def make_directory(self, path: str) -> None:
        self._disk.make_directory(self._at(path))

    def rename(self, source: str, target: str) -> None:
        self._disk.rename(self._at(source), self._at(target))

    async def replace_file(self, path: str, content: bytes) -> None:
        await self._disk.replace_file(self._at(path), content)

    def unlink(self, path: str) -> None:
        self._disk.unlink(self._at(path))

    def remove_directory(self, path: str) -> None:
        self._disk.remove_directory(self._at(path))

    async def sync_directory(self, path: str) -> None:
        await self._disk.sync_directory(self._at(path))

    def lock(self, path: str) -> None:
        self._disk.lock(self._at(path))

    def _at(self, path: str) -> str:
        return f"{self._directory}/{path}" if path else self._directory


T = TypeVar("T")
PORT, CONTROLLER_PORT = 9092, 9093
CLIENT = "client"
BEGINNING_NS = 1_700_000_000_000_000_000  # start of the simulated wall clock
POLL = 0.01  # seconds
FIRST_PID = 100


EXIT_OK, EXIT_DEFECT, EXIT_USAGE, EXIT_FAILED, KILLED = 0, 1, 64, 70, 137
"""Exit codes of processes as shells report them: the broker's own, and SIGKILL's."""


@dataclass(frozen=True)
class Program:
    """The arguments of a machine's process: its broker's properties, and its mutants. `directory`: the place of the
    properties' `log.dir` on the machine's disk; empty: the disk's root."""

    properties: Mapping[str, str]
    mutants: tuple[str, ...] = ()
    directory: str = ""

    @classmethod
    def of(cls, command: Sequence[str], files: Mapping[str, str], data_dir: str) -> "Program":
        """The arguments of `python -m broker ...`, with `files` (texts by path) and the disk mounted at `data_dir`.

        Raises `ValueError` for any other command, `StartupError` for an invalid configuration."""
        if tuple(command[1:3]) != ("-m", "broker"):
            raise ValueError(f"the simulator runs `python -m broker` only, not {' '.join(command)}")
        options = list(zip(command[3::2], command[4::2], strict=True))
        (path,) = (value for option, value in options if option == "--config")
        properties = parse_properties(files[path], path)
        properties.pop("trace.path", None)  # events go to the machine's listener
        mutants = tuple(value for option, value in options if option == "--mutant")
        directory = properties["log.dir"].removeprefix(data_dir).strip("/")
        BrokerConfig.from_properties(properties, path)
        return cls(properties, mutants, directory)


class SimulatedMachine:
    """One machine: a permanent disk, and the current process.

    `pid` counts the machine's processes; `exits`: how the ended ones ended. `say` receives what a process prints,
    `trace` its events."""

    def __init__(self, node_id: int, name: str, disk: SimulatedDisk) -> None:
        self.node_id = node_id
        self.name = name
        self.disk = disk
        self.clock = MachineClock()
        self.powered = True
        self.paused = False
        """Whether its process is suspended (SIGSTOP)."""
        self.suspended = False
        """Whether the whole machine is suspended."""
        self.boots = 1
        self.lives = 0
        self.began_s = 0.0
        self.exits: dict[int, int] = {}
        self.host: HostContext | None = None
        self.node: BrokerNode | None = None
        self.ending: asyncio.Task[None] | None = None
        self.say: Callable[[str], None] = lambda _: None
        self.trace: Sink = lambda _: None

    def record_to(self, directory: Path) -> None:
        """Write the processes' traces and output to files in `directory`, as a real node does."""
        directory.mkdir(parents=True, exist_ok=True)
        self.trace = JsonLines(str(directory / "events.jsonl"))

        def say(line: str) -> None:
            with (directory / "service.log").open("a", encoding="utf-8") as log:
                log.write(f"{line}\n")

        self.say = say

    @property
    def pid(self) -> int:
        """The number of the last started process; 0: none was started."""
        return FIRST_PID + self.lives if self.lives else 0

    @property
    def running(self) -> bool:
        """Whether a broker process runs here."""
        return self.host is not None and self.host.alive


class SimulatedCluster:
    """Brokers 1..n on machines n1..nn, and a client's host. The seed determines everything that happens.

    `properties` are Kafka's keys for every broker. Use it as a context manager: leaving it releases killed processes,
    and fails if the oracles found anything, unless there are mutants: then read `watch.findings`.
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
        programs: Mapping[str, Program] | None = None,
        client: str = CLIENT,
    ) -> None:
        """`file_system` None: the seed chooses. `programs`: what each machine runs; None: the same, with `properties`
        and `mutants`. `client`: the name of the first host that is not a machine."""
        self.seed = seed
        self.loop = new_loop()
        self.journal = EventJournal()
        self.rng = random.Random(f"{seed}/faults")
        self.network = SimulatedNetwork(
            self.loop, random.Random(f"{seed}/network"), conditions, observe=self.journal.mix
        )
        self._programs = dict(programs or {}) or {
            f"n{number}": Program(
                {
                    "node.id": str(number),
                    "listeners": f"n{number}:{PORT},CONTROLLER://n{number}:{CONTROLLER_PORT}",
                    "controller.listener.names": "CONTROLLER",
                    "quorum.voters": ",".join(f"{i}@n{i}:{CONTROLLER_PORT}" for i in range(1, nodes + 1)),
                    "log.dir": f"/n{number}",
                    **(properties or {}),
                },
                tuple(mutants),
            )
            for number in range(1, nodes + 1)
        }
        self._context = contextvars.Context()
        self._hosts: list[HostContext] = []
        self.client = self.new_host(client)
        choice = random.Random(f"{seed}/disks").choice((FileSystem.EXT4, FileSystem.XFS))
        self.machines: dict[str, SimulatedMachine] = {}
        self.crash_points = CrashPoints(self.loop, self._process_crashed)
        for node_id in range(1, nodes + 1):
            name = f"n{node_id}"
            disk = SimulatedDisk(self.loop, random.Random(f"{seed}/{name}/disk"), conditions, file_system or choice)
            disk.crash_points = self.crash_points
            self.machines[name] = SimulatedMachine(node_id, name, disk)
            if self._programs[name].directory:
                disk.make_directory(self._programs[name].directory)
                disk.commit()
        self.objects = SimulatedObjectStore(random.Random(f"{seed}/objects"))
        self.objects.crash_points = self.crash_points
        self.watch = Watch(self.loop, [self._view_of(machine) for machine in self.machines.values()], self)

    def __enter__(self) -> "SimulatedCluster":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.loop.look()
        self.close()
        findings = self.watch.findings.found
        if kind is None and findings and not any(program.mutants for program in self._programs.values()):
            raise AssertionError("\n".join(f"{finding.oracle}: {finding.sentence}" for finding in findings))

    # --- running

    @property
    def addresses(self) -> dict[int, Address]:
        """The brokers' client listeners, by id."""
        return {machine.node_id: (machine.name, PORT) for machine in self.machines.values()}

    @property
    def controllers(self) -> dict[int, Address]:
        """The brokers' controller listeners, by id."""
        return {machine.node_id: (machine.name, CONTROLLER_PORT) for machine in self.machines.values()}

    def run(self, body: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine that runs on the client's host, with garbage collection off.

        The time of a collection differs from process to process, and objects may act when they are collected.
        """
        collecting = gc.isenabled()
        gc.disable()
        try:
            return self.loop.run_until_complete(self.loop.create_task(body, context=self.client.context.copy()))
        finally:
            if collecting:
                gc.enable()

    def close(self) -> None:
        """End the run. Raises `AssertionError` if a callback or task of a broker failed with an unhandled exception."""
        unhandled = self.unhandled()
        self.loop.close()
        for host in self._hosts:
            self.loop.bury(host)
        if unhandled:
            raise AssertionError("\n".join(map(str, unhandled)))

    def unhandled(self) -> list[Unhandled]:
        """The unhandled exceptions so far, in callbacks and tasks of brokers and clients."""
        for host in self._hosts:
            if host.alive:
                self.loop.tell_lost(host)
        return self.loop.unhandled

    async def until(self, condition: Callable[[], bool], timeout: float = 30.0) -> None:
        """Return once a condition holds. Raises `TimeoutError` after `timeout` virtual seconds."""
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

    def reconfigure(self, name: str, properties: Mapping[str, str]) -> None:
        """Edit a machine's configuration file: the next process there has these properties over the others."""
        program = self._programs[name]
        self._programs[name] = replace(program, properties={**program.properties, **properties})

    def start(self, *names: str) -> None:
        """Start the brokers (all) that do not run, on machines that have or get power."""
        for machine in self._chosen(names):
            if machine.running:
                continue
            if not machine.powered:
                self.restore_power(machine.name)
            self._start(machine)

    def kill(self, *names: str) -> None:
        """kill -9: the process is gone; its writes are in the page cache."""
        for machine in self._chosen(names):
            self._note("killed", machine)
            self._process_ended(machine, KILLED)

    def power_loss(self, *names: str, rng: random.Random | None = None, commit: bool | None = None) -> None:
        """Cut the power of all these machines at the same time: they fall silent, and only durable data remains.

        `rng`, `commit`: as `SimulatedDisk.power_loss` takes them."""
        self.watch.ending()
        for machine in self._chosen(names):
            self.resume(machine.name)
            self._note("power_lost", machine)
            machine.powered = False
            self.network.power_lost(machine.host, machine.name)
            if machine.host is not None:
                self.loop.tell_lost(machine.host)
                machine.host.kill()
                machine.exits[machine.pid] = KILLED
            machine.host = machine.node = None
            machine.paused = False
            machine.disk.power_loss(rng or self.rng, commit=commit)
            self.watch.ended(machine.name, power_lost=True)

    def crash(self, name: str, point: CrashPoint) -> None:
        """End a machine's process now, as this crash point would."""
        if point.loses_power:
            lives = self.machines[name].lives
            self.power_loss(name, rng=random.Random(f"{self.seed}/{name}/crash of {lives}"))
        else:
            self.kill(name)

    def restore_power(self, name: str) -> None:
        """Boot a machine that is off, without starting a process."""
        machine = self.machines[name]
        if not machine.powered:
            self._note("power_restored", machine)
            machine.powered, machine.boots = True, machine.boots + 1
            machine.clock.real_offset_s = 0.0  # a boot discards what `date` has set
            self.network.power_restored(name)

    async def stop(self, *names: str) -> None:
        """Stop brokers cleanly, as SIGTERM does, in sequence."""
        for machine in self._chosen(names):
            if (ending := self.terminate(machine.name)) is not None:
                await ending

    def terminate(self, name: str) -> asyncio.Task[None] | None:
        """SIGTERM, without waiting for the end; None without a process."""
        machine = self.machines[name]
        if machine.host is None:
            return None
        if machine.ending is not None:  # it got a SIGTERM before
            return machine.ending
        self._note("stopping", machine)
        machine.ending = ending = self.loop.create_task(_stop(machine), context=machine.host.context.copy())
        ending.add_done_callback(partial(self._process_stopped, machine, machine.host), context=self._context)
        return ending

    def stand_still(self, name: str) -> None:
        """SIGSTOP to the process of a machine."""
        machine = self.machines[name]
        if machine.host is not None:
            self._note("paused", machine)
            machine.paused = True
            machine.host.stand_still()

    def go_on(self, name: str) -> None:
        """SIGCONT to it."""
        machine = self.machines[name]
        if machine.host is not None and machine.paused:
            self._note("resumed", machine)
            machine.paused = False
            self._run_on(machine)

    def suspend(self, name: str, *, frozen: bool) -> None:
        """Suspend a whole machine from outside: it executes nothing, and neither sends nor receives. `frozen`: its
        clocks stop too. Its disk finishes operations in progress."""
        machine = self.machines[name]
        if machine.suspended or not machine.powered:
            return
        self._note("suspended", machine, frozen=frozen)
        machine.suspended = True
        self.network.silence(name)
        if machine.host is not None:
            machine.host.stand_still()
        if frozen:
            self.watch.clocks_stop(name, machine.clock.steady(self.loop.now))
            machine.clock.run(self.loop.now, frozen=True)
            self.loop.clocks_changed()

    def resume(self, name: str) -> None:
        """Resume a suspended machine."""
        machine = self.machines[name]
        if not machine.suspended:
            return
        self._note("goes_on", machine)
        machine.suspended = False
        if machine.clock.frozen:
            machine.clock.run(self.loop.now, frozen=False)
            self.loop.clocks_changed()
        self.network.awaken(name)
        if machine.host is not None:
            self._run_on(machine)

    def _run_on(self, machine: SimulatedMachine) -> None:
        if machine.host is not None and machine.host.backlog is not None and not (machine.paused or machine.suspended):
            self.loop.resume(machine.host)

    # --- clocks

    def move_clock(self, name: str, by_s: float) -> None:
        """Set a machine's time of day forward or (negative) back."""
        self._note("clock_moved", self.machines[name], by_s=by_s)
        self.machines[name].clock.real_offset_s += by_s

    def let_drift(self, name: str, drift: float) -> None:
        """Let all clocks of a machine gain (negative: lose) `drift` seconds a second."""
        machine = self.machines[name]
        self._note("drifts", machine, drift=drift)
        machine.clock.run(self.loop.now, drift=drift)
        self.loop.clocks_changed()

    # --- the network

    def partition(self, *groups: Sequence[str], reject: bool = False) -> None:
        """Cut the network into groups; a machine in no group keeps all connections. With `reject`, packets between
        groups are answered with resets; otherwise they are dropped."""
        event = "rejecting" if reject else "partition"
        self.journal.record({"event": event, "at": self.loop.now, "groups": [list(group) for group in groups]})
        for number, group in enumerate(groups):
            for other_group in groups[number + 1 :]:
                self.network.partition(list(group), list(other_group), reject=reject)

    def cut(self, source: str, target: str) -> None:
        """Drop packets in one direction."""
        self.journal.record({"event": "cut", "at": self.loop.now, "source": source, "target": target})
        self.network.cut(source, target)

    def reject(self, source: str, target: str) -> None:
        """Answer packets in one direction with resets."""
        self.journal.record({"event": "rejecting", "at": self.loop.now, "source": source, "target": target})
        self.network.reject(source, target)

    def disturb(self, source: str, disturbance: Disturbance | None) -> None:
        """Disturb the packets that a machine sends to the others; None: stop."""
        self.journal.record({"event": "disturbed", "at": self.loop.now, "machine": source, "by": str(disturbance)})
        self.network.disturb(source, disturbance)

    def reset(self, name: str) -> int:
        """Reset all connections of a machine with others; returns how many."""
        self._note("connections_reset", self.machines[name])
        return self.network.reset(name)

    def slow_down(self, source: str, target: str, bytes_per_s: float) -> None:
        """Limit the bandwidth of a direction from now on."""
        self.journal.record({"event": "slow", "at": self.loop.now, "source": source, "target": target})
        self.network.limit(source, target, bytes_per_s)

    def heal(self, source: str | None = None, target: str | None = None) -> None:
        """Heal one cut, or all."""
        self.journal.record({"event": "heal", "at": self.loop.now, "source": source, "target": target})
        self.network.heal(source, target)

    # --- looking

    def node(self, name: str) -> BrokerNode:
        """The broker that runs on a machine."""
        node = self.machines[name].node
        assert node is not None, f"{name} does not run"
        return node

    def controller(self) -> str | None:
        """The machine whose broker considers itself the active controller."""
        for machine in self.machines.values():
            node = machine.node
            if machine.running and node is not None and node.quorum.is_leader:
                return machine.name
        return None

    def is_up(self, name: str) -> bool:
        """Whether a process runs on a machine and executes."""
        machine = self.machines[name]
        return machine.powered and machine.running and not (machine.paused or machine.suspended)

    def is_well(self, name: str) -> bool:
        """Whether a machine is up, and no fault is in force on its disk, its clocks or its packets."""
        machine = self.machines[name]
        undisturbed = machine.disk.is_whole and not machine.clock.drift and self.network.outlet(name) is None
        return self.is_up(name) and machine.ending is None and undisturbed

    def connects(self, machine: str, peer: str) -> bool:
        """Whether packets pass between two machines in both directions, without a bandwidth limit."""
        return all(
            self.network.passes(*pair) and not self.network.rejects(*pair) and not self.network.is_limited(*pair)
            for pair in ((machine, peer), (peer, machine))
        )

    def directory_of(self, name: str) -> str:
        """The service's data directory on a machine's disk; empty: the disk's root."""
        return self._programs[name].directory

    def digest(self) -> str:
        """The digest of everything that has happened."""
        return self.journal.digest()

    # --- implementation

    def _start(self, machine: SimulatedMachine) -> None:
        machine.lives, machine.ending = machine.lives + 1, None
        machine.began_s = self.loop.now
        machine.host = self.new_host(machine.name, machine.clock)
        machine.paused = False
        if machine.suspended:
            machine.host.stand_still()
        self._note("started", machine)
        living = self.loop.create_task(self._live(machine, machine.host), context=machine.host.context.copy())
        living.add_done_callback(partial(self._process_exited, machine, machine.host), context=self._context)

    def _view_of(self, machine: SimulatedMachine) -> MachineView:
        program = self._programs[machine.name]
        return MachineView(machine.name, machine.node_id, machine.disk, program.directory, program.properties)

    async def _live(self, machine: SimulatedMachine, host: HostContext) -> tuple[int, str]:
        """The life of a process, as in `python -m broker`: its exit code, and why it ended."""
        broker_name = f"broker {machine.node_id}"
        try:
            properties = self._programs[machine.name].properties
            machine.node = node = await self._open(machine)
            self.watch.began(machine.name, machine.lives, host, node, properties)
            await node.start()
            await node.ready()
            for notice in node.overruled:
                machine.say(str(notice))
            machine.say(f"{broker_name} of {node.config.cluster_id} at {node.config.addresses} is ready")
            await asyncio.wait([node.failed])
            node.failed.result()
        except (StartupError, OSError) as error:
            machine.say(f"broker: {error}")
            return EXIT_USAGE, str(error)
        except NodeFailure as failure:
            machine.say(f"{broker_name} gives up: {failure}")
            return EXIT_USAGE if isinstance(failure.__cause__, StartupError) else EXIT_FAILED, str(failure)
        except asyncio.CancelledError:
            pass
        return EXIT_OK, "stopped"

    async def _open(self, machine: SimulatedMachine) -> BrokerNode:
        program = self._programs[machine.name]

        def sink(event: dict[str, Value]) -> None:
            self.journal.record(event)
            # What the oracles read is no operation of the process.
            contextvars.Context().run(self.watch.heard, machine.name, event)
            machine.trace(event)

        return await BrokerNode.open(
            BrokerConfig.from_properties(program.properties, machine.name),
            disk=Subtree(machine.disk, program.directory) if program.directory else machine.disk,
            rng=random.Random(f"{self.seed}/{machine.name}/{machine.lives}"),
            tracer=Tracer(machine.node_id, partial(self.wall_ns, machine), sink),
            mutants=Mutants(program.mutants),
            clock=partial(self.wall_ns, machine),
            object_store=self.objects,
        )

    def _process_exited(
        self, machine: SimulatedMachine, host: HostContext, task: asyncio.Task[tuple[int, str]]
    ) -> None:
        if not host.alive or machine.host is not host:
            return
        if task.exception() is not None:  # the exit of an interpreter with an unhandled exception
            code, reason = EXIT_DEFECT, f"{type(task.exception()).__name__}: {task.exception()}"
            machine.say(reason)
        else:
            code, reason = task.result()
        if code != EXIT_OK:  # otherwise it was asked to stop, and is about to
            self._note("exited", machine, reason=reason)
            self._process_ended(machine, code)

    def _process_stopped(self, machine: SimulatedMachine, host: HostContext, task: asyncio.Task[None]) -> None:
        if machine.host is host and host.alive:
            self._process_ended(machine, EXIT_OK if task.exception() is None else EXIT_DEFECT)

    def _process_ended(self, machine: SimulatedMachine, code: int) -> None:
        self.watch.ending()
        host, machine.host, machine.node = machine.host, None, None
        if host is not None:
            machine.exits[machine.pid] = code
            self.kill_process(host)
            machine.paused = False
            machine.disk.process_died(host)
            self.watch.ended(machine.name, power_lost=False)

    def _process_crashed(self, host: HostContext, point: CrashPoint) -> None:
        if self.machines[host.name].host is host:
            self.crash(host.name, point)

    def kill_process(self, host: HostContext) -> None:
        """End one process, on a machine or a client's host, immediately."""
        self.loop.tell_lost(host)
        host.kill()
        self.network.process_died(host)

    def new_host(self, name: str, clock: MachineClock | None = None) -> HostContext:
        """Create another process, at an address of this name."""
        host = HostContext(name, name, clock)
        self._hosts.append(host)
        return host

    def _note(self, event: str, machine: SimulatedMachine, **fields: object) -> None:
        self.journal.record({"event": event, "at": self.loop.now, "machine": machine.name, **fields})
        self.watch.touched(machine.name)

    def _chosen(self, names: Sequence[str]) -> list[SimulatedMachine]:
        return [self.machines[name] for name in names or self.machines]

    def wall_ns(self, machine: SimulatedMachine | None = None) -> int:
        """The simulated time of day, in nanoseconds: a machine's, or (None) the true one."""
        now = self.loop.now
        return BEGINNING_NS + round((now if machine is None else now + machine.clock.ahead(now)) * 1e9)


async def _stop(machine: SimulatedMachine) -> None:
    """Stop a process, which handles signals only once it has read its disk, as `python -m broker` does."""
    while machine.node is None:  # noqa: ASYNC110 - only this loop needs it, so a process has no event for it
        await asyncio.sleep(POLL)
    await machine.node.stop()


def _is_ready(node: BrokerNode | None) -> bool:
    return node is not None and node.lifecycle.unfenced.is_set()

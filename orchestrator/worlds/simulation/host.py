"""A simulated machine as a host: it has no shell, but answers the commands that faults send."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shlex
from collections.abc import Coroutine, Mapping
from fnmatch import fnmatchcase
from random import Random
from typing import Any, TypeVar

from nemeses.mechanisms.netem import HANDLE
from nemeses.ports import HostError, HostUnreachableError, Result
from nemeses.probes import (
    AboutProcess,
    AwaitPort,
    DigestFiles,
    DigestHeads,
    EndLeft,
    FindWay,
    ForgetMove,
    KillProbe,
    LeaveMark,
    ListFiles,
    MoveClock,
    NoteMove,
    Question,
    Queues,
    Reach,
    ReadClocks,
    ReadMarks,
    Refuse,
    RemoveQueue,
    RenewMark,
    Script,
    SendBurst,
    SendDatagrams,
    SetQueue,
    Signal,
    Terminate,
    TimeConnects,
    WasClockMoved,
)
from orchestrator.worlds.base import Node
from orchestrator.worlds.simulation.packets import asked_of_netem, disturb
from orchestrator.worlds.simulation.scheduling import VirtualScheduler
from simulator.cluster import SimulatedCluster, SimulatedMachine

BOOT_ID = "/proc/sys/kernel/random/boot_id"
PROBE_PORT = 9  # no listener needed: the simulation knows whether packets pass
TICKS = 100  # a second
COMMAND_S = 0.002  # the duration of a command, so that polling advances the time
_MARKS = ".brownout"
_NOT_FOUND = 127
_DEVICE = "eth0"
_NO_KERNEL = -1  # no context switches: never mistaken for this machine's own count

T = TypeVar("T")


class SimulatedHost:
    """One machine of a simulated cluster."""

    def __init__(self, node: Node, cluster: SimulatedCluster, scheduler: VirtualScheduler) -> None:
        self.name = node.name
        self.address = node.address
        self.port = node.port
        self.probe_port = PROBE_PORT
        self.data_dir = node.data_dir
        self._cluster = cluster
        self._scheduler = scheduler
        self._moved_in = 0  # the boot in which the clock was set wrong; 0: it is right

    @property
    def boot_id(self) -> str:
        """The id of the machine's current boot."""
        chance = Random(f"{self._cluster.seed}/{self.name}/boot/{self._machine.boots}")
        return f"{chance.getrandbits(128):032x}"

    def run(self, command: str, *, timeout_s: float = 10.0) -> Result:
        """Answers a `Script`; of other commands, supports `cat`, `sync -f` and `kill`."""
        self._require_awake(timeout_s)
        self._scheduler.sleep(COMMAND_S)
        if isinstance(command, Script):
            try:
                answers = self._answer(command.question, timeout_s)
            except OSError as error:  # an error of its disk: a shell's command would have failed
                raise HostError(f"{self.name}: {error}") from error
            return Result(
                0,
                answers if isinstance(answers, str) else "".join(f"{key}={value}\n" for key, value in answers.items()),
                "",
            )
        match shlex.split(command):
            case ["cat", path]:
                content = self._content(path)
                return Result(1, "", f"{path}: no such file") if content is None else Result(0, content, "")
            case ["sync", "-f", _]:
                self._finish(self._machine.disk.sync_everything(), timeout_s)
                return Result(0, "", "")
            case ["kill", "-9", pid] if self._is(int(pid)):
                self._cluster.kill(self.name)
                return Result(0, "", "")
            case ["kill", "-TERM", pid] if self._is(int(pid)):
                self._cluster.terminate(self.name)
                return Result(0, "", "")
            case _:
                return Result(_NOT_FOUND, "", f"a simulated host has no shell for {command!r}")

    def service_pid(self) -> int | None:
        self._require_awake()
        return self._machine.pid if self._machine.running else None

    def service_exit(self, pid: int | None = None) -> int | None:
        return self._machine.exits.get(self._machine.pid if pid is None else pid)

    def start_service(self) -> None:
        self._require_awake()
        self._cluster.start(self.name)

    @property
    def _machine(self) -> SimulatedMachine:
        return self._cluster.machines[self.name]

    def _require_awake(self, timeout_s: float = 0.0) -> None:
        if not self._machine.powered:
            raise HostUnreachableError(f"{self.name} has no power")
        if self._machine.suspended:
            self._scheduler.sleep(timeout_s)
            raise HostUnreachableError(f"{self.name} does not answer")

    def _finish(self, operation: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """The result of an operation that a command waits for. Raises `HostError` when it takes too long."""
        try:
            return self._scheduler.run(asyncio.wait_for(operation, timeout_s))
        except TimeoutError:
            raise HostError(f"{self.name}: did not end within {timeout_s:g} s") from None
        except OSError as error:
            raise HostError(f"{self.name}: {error}") from error

    def _is(self, pid: int) -> bool:
        return self._machine.running and self._machine.pid == pid

    def _listens(self) -> bool:
        return self._cluster.network.is_open(self.address, self.port)

    def _answer(self, question: Question, timeout_s: float) -> dict[str, str] | str:
        match question:
            case AboutProcess():
                return {"start": self._start(question.pid), "threads": self._threads(question.pid)}
            case KillProbe() | Terminate() | Signal():
                return self._signal(question)
            case EndLeft():
                return {"left": "", "state": "gone"}
            case AwaitPort():
                self._scheduler.until(lambda: self._listens() or not self._is(question.pid), question.seconds)
                return {"port": self._port()}
            case SendDatagrams():
                for address in question.addresses:
                    self._cluster.network.count(self.address, address)
                return {"sent": str(len(question.addresses))}
            case Reach():
                return {name: self._reaches(address) for name, address, _ in question.targets}
            case Refuse():
                rejects = self._cluster.network.rejects
                return {
                    name: "refused" if rejects(self.address, address) else "silent"
                    for name, address, _ in question.targets
                }
            case RenewMark() | LeaveMark() | ReadMarks():
                return self._marks(question, timeout_s)
            case DigestFiles():
                files = self._files()
                held = {path: len(content) for path, content in files.items() if _is_like(path, question.pattern)}
                return {"noted": "yes", **_digests(files, {path: size for path, size in held.items() if size})}
            case ListFiles():
                sizes = {path: len(content) for path, content in self._files().items()}
                found = {path: str(size) for path, size in sizes.items() if _is_like(path, question.pattern)}
                return {"listed": "yes", **found}
            case DigestHeads():
                return _digests(self._files(), dict(question.heads))
            case FindWay():
                return f"{question.address} dev {_DEVICE} src {self.address} \\    cache"
            case SetQueue():
                disturb(self._cluster, self.name, **asked_of_netem(question.netem))
                return {"applied": "yes"}
            case RemoveQueue():
                disturb(self._cluster, self.name, **asked_of_netem(""))
                return ""
            case Queues():
                return {"queues": json.dumps(self._queues())}
            case TimeConnects():
                return self._connects(question)
            case SendBurst():
                self._cluster.network.burst(self.address, question.address, question.count)
                return {"sent": str(question.count)}
            case ReadClocks():
                now, clock = self._cluster.loop.now, self._machine.clock
                real_s = self._scheduler.wall() + clock.ahead(now)
                return {"switches": str(_NO_KERNEL), "up": f"{clock.steady(now):.6f}", "real": f"{real_s:.9f}"}
            case MoveClock():
                self._moved_in = self._machine.boots
                self._cluster.move_clock(self.name, question.by_s)
                return ""
            case NoteMove():
                self._moved_in = self._machine.boots
                return ""
            case ForgetMove():
                self._moved_in = 0
                return ""
            case WasClockMoved():
                return {"moved": "yes" if self._moved_in == self._machine.boots else "no"}

    def _signal(self, question: KillProbe | Terminate | Signal) -> dict[str, str]:
        start, before = self._start(question.pid), self._threads(question.pid)
        if not start:
            return {"start": "", "state": "gone", "before": "", "after": "", "port": self._port()}
        seen, started_s = {"start": start, "signalled": "yes"}, self._scheduler.monotonic()
        match question:
            case Signal():
                (self._cluster.stand_still if question.signal == "STOP" else self._cluster.go_on)(self.name)
                return {**seen, "before": before, "after": self._threads(question.pid)}
            case KillProbe():
                self._cluster.kill(self.name)
            case Terminate():
                self._cluster.terminate(self.name)
                self._scheduler.until(lambda: not self._is(question.pid), question.seconds)
                seen["waited"] = str(int(self._scheduler.monotonic() - started_s))
        return {**seen, "state": self._threads(question.pid) or "gone", "port": self._port()}

    def _start(self, pid: int) -> str:
        """The start time of a process, in ticks since the start of the simulation; empty if it does not run."""
        return str(1 + round(self._machine.began_s * TICKS)) if self._is(pid) else ""

    def _threads(self, pid: int) -> str:
        host = self._machine.host
        return "" if host is None or not self._is(pid) else "S" if host.backlog is None else "T"

    def _port(self) -> str:
        return "open" if self._listens() else "closed"

    def _reaches(self, address: str) -> str:
        network = self._cluster.network
        passes = network.passes(self.address, address) and network.passes(address, self.address)
        return "open" if passes else "closed"

    def _queues(self) -> list[dict[str, Any]]:
        """The queues, in the format of `tc -s -j qdisc show`."""
        outlet = self._cluster.network.outlet(self.name)
        if outlet is None or not (outlet.disturbance.delay_s or outlet.disturbance.loss):
            return []
        counted = {"packets": outlet.packets, "drops": outlet.drops}
        return [{"kind": "netem", "handle": HANDLE, "dev": _DEVICE, "options": str(outlet.disturbance), **counted}]

    def _connects(self, question: TimeConnects) -> dict[str, str]:
        network, give_up_s = self._cluster.network, self._scheduler.monotonic() + question.seconds
        times: dict[str, str] = {"done": "yes"}
        for number in range(question.times):
            left_s = give_up_s - self._scheduler.monotonic()
            took_s = self._scheduler.run(network.round_trip(self.address, question.address, max(0.0, left_s)))
            if took_s is not None:
                times[f"connect{number}"] = str(round(took_s * 1e6))
        return times

    def _marks(self, question: RenewMark | LeaveMark | ReadMarks, timeout_s: float) -> dict[str, str]:
        disk = self._machine.disk
        synced, unsynced = f"{_MARKS}/synced", f"{_MARKS}/unsynced"
        match question:
            case ReadMarks():
                content = dict(disk.files())
                return {
                    name: (content.get(path) or b"").decode(errors="replace")
                    for name, path in (("synced", synced), ("unsynced", unsynced))
                }
            case RenewMark():
                for path in (synced, unsynced):
                    if disk.exists(path):
                        disk.unlink(path)
                disk.make_directory(_MARKS)
                file = disk.open(synced, create=True)
                file.append([question.mark.encode()])
                self._finish(file.sync(), timeout_s)
                self._finish(disk.sync_directory(_MARKS), timeout_s)
                self._finish(disk.sync_directory(""), timeout_s)
                return {"synced": "yes"}
            case LeaveMark():
                if disk.exists(unsynced):
                    disk.unlink(unsynced)
                disk.open(unsynced, create=True).append([question.mark.encode()])
                return {"written": "yes"}

    def _files(self) -> dict[str, bytes]:
        return {path: content for path, content in self._machine.disk.files() if content is not None}

    def _content(self, path: str) -> str | None:
        if path == BOOT_ID:
            return f"{self.boot_id}\n"
        inside = path.removeprefix(f"{self.data_dir}/")
        if inside == path or not self._machine.disk.exists(inside):
            return None
        try:
            file = self._machine.disk.open(inside)
        except OSError as error:
            raise HostError(f"{self.name}: {path}: {error}") from error
        return file.read(0, file.size()).decode(errors="replace")


def _is_like(path: str, pattern: str) -> bool:
    """As a shell's patterns: an asterisk does not match a slash."""
    parts, patterns = path.split("/"), pattern.split("/")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


def _digests(files: Mapping[str, bytes], sizes: Mapping[str, int]) -> dict[str, str]:
    return {path: f"{size} {hashlib.sha256(files.get(path, b'')[:size]).hexdigest()}" for path, size in sizes.items()}

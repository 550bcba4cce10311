"""A simulated machine as a host: it has no shell, but answers the commands that faults send.

The answers of a simulated machine to the questions of faults, in place of their shell scripts.

One public method for each question, with its name and parameters (`nemeses/mechanisms/shell.py`). It returns the keys
and values that the script would print, or the printed text.
"""

import asyncio
import hashlib
import json
import re
import shlex
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from random import Random
from typing import Any, TypeVar

from nemeses.mechanisms.netem import HANDLE
from nemeses.mechanisms.shell import Script
from nemeses.ports import Burst, HostError, HostUnreachableError, Result
from orchestrator.worlds.base import Node
from orchestrator.worlds.simulation.scheduling import VirtualScheduler
from simulator.cluster import SimulatedCluster, SimulatedMachine
from simulator.network_interface import Disturbance

# ---- Disturbs packets between simulated machines, other than cuts: with netem's parameters, or the simulated wire's.

_WORDS = re.compile(r"(delay|loss) ([\d.]+)(?:ms|%)(?: ([\d.]+)ms)?")


def asked_of_netem(arguments: str) -> dict[str, float]:
    """netem's parameters as fields of `Disturbance`; all of them, so that earlier values are reset."""
    values = {word: (float(first), float(second or 0)) for word, first, second in _WORDS.findall(arguments)}
    (delay_ms, jitter_ms), (loss, _) = values.get("delay", (0.0, 0.0)), values.get("loss", (0.0, 0.0))
    return {"delay_s": delay_ms / 1e3, "jitter_s": jitter_ms / 1e3, "loss": loss / 100}


def disturb(cluster: SimulatedCluster, name: str, **changes: float) -> None:
    """Change some disturbances of a machine's packets and keep the others."""
    outlet = cluster.network.outlet(name)
    disturbance = replace(Disturbance() if outlet is None else outlet.disturbance, **changes)
    cluster.disturb(name, None if disturbance == Disturbance() else disturbance)


class SimulatedWire:
    """Disturbances that only simulated packets can have."""

    def __init__(self, cluster: SimulatedCluster, scheduler: VirtualScheduler) -> None:
        self._cluster = cluster
        self._scheduler = scheduler
        self._resetting: dict[str, _Resets] = {}
        self._times: dict[str, int] = {}

    def duplicate(self, name: str, share: float) -> None:
        disturb(self._cluster, name, duplicate=share)

    def reorder(self, name: str, share: float) -> None:
        disturb(self._cluster, name, reorder=share)

    def reset(self, name: str) -> int:
        self._times[name] = self.times_reset(name) + 1
        return self._cluster.reset(name)

    def keep_resetting(self, name: str, every_s: float | None) -> int:
        before = self._resetting.pop(name, None)
        if every_s is not None:
            order = self._resetting[name] = _Resets(every_s)
            self._reset_again(name, order)
        return 0 if before is None else before.broken

    def times_reset(self, name: str) -> int:
        return self._times.get(name, 0)

    def burst(self, name: str, to: str, count: int) -> Burst:
        held_before = self._held(name)
        arrived = [number for _, number in self._cluster.network.burst(name, to, count)]
        once = len(set(arrived))
        return Burst(count, once, twice=len(arrived) - once, overtaken=self._held(name) - held_before)

    def _held(self, name: str) -> int:
        outlet = self._cluster.network.outlet(name)
        return 0 if outlet is None else outlet.held

    def _reset_again(self, name: str, order: "_Resets") -> None:
        if self._resetting.get(name) is not order:  # the order was withdrawn or replaced
            return
        order.broken += self.reset(name)
        self._cluster.network.at(self._cluster.loop.now + order.every_s, self._reset_again, name, order)


@dataclass(eq=False)
class _Resets:
    """An order to reset connections repeatedly, with the number of connections that were reset."""

    every_s: float
    broken: int = 0


TICKS = 100  # a second
_SYNC_S = 10.0
_SYNCED, _UNSYNCED = ".brownout/synced", ".brownout/unsynced"
_DEVICE = "eth0"
_NO_KERNEL = -1  # no context switches: never mistaken for this machine's own count

Answers = dict[str, str]
T = TypeVar("T")


class SimulatedAnswers:
    """The answers of one machine."""

    def __init__(self, node: Node, cluster: SimulatedCluster, scheduler: VirtualScheduler) -> None:
        self._node = node
        self._cluster = cluster
        self._scheduler = scheduler
        self._moved_in = 0  # the boot in which the clock was set wrong; 0: it is right

    # ---- processes

    def process(self, pid: int) -> Answers:
        return {"start": self._start(pid), "threads": self._threads(pid)}

    def kill(self, pid: int, address: str, port: int) -> Answers:
        answers = {"start": self._start(pid)}
        if answers["start"]:
            self._cluster.kill(self._node.name)
            answers["signalled"] = "yes"
        return {**answers, **self._end(pid)}

    def signal(self, pid: int, signal: str) -> Answers:
        start, before = self._start(pid), self._threads(pid)
        if not start:
            return {"start": "", "before": "", "after": ""}
        (self._cluster.stand_still if signal == "STOP" else self._cluster.go_on)(self._node.name)
        return {"start": start, "signalled": "yes", "before": before, "after": self._threads(pid)}

    def terminate(self, pid: int, address: str, port: int, seconds: int, signal: str = "TERM") -> Answers:
        del signal  # the simulation refuses campaigns with another one
        start, started_s = self._start(pid), self._scheduler.monotonic()
        if not start:
            return {"start": "", **self._end(pid)}
        self._cluster.terminate(self._node.name)
        self._scheduler.until(lambda: not self._runs(pid), seconds)
        waited = str(int(self._scheduler.monotonic() - started_s))
        return {"start": start, "signalled": "yes", "waited": waited, **self._end(pid)}

    def end_left(self, pid: int, seconds: int) -> Answers:
        return {"left": "", "state": "gone"}

    def await_port(self, pid: int, address: str, port: int, seconds: int) -> Answers:
        self._scheduler.until(lambda: self._listens() or not self._runs(pid), seconds)
        return {"port": self._port()}

    # ---- connections and packets

    def datagrams(self, addresses: list[str]) -> Answers:
        for address in addresses:
            self._cluster.network.count(self._node.address, address)
        return {"sent": str(len(addresses))}

    def reach(self, targets: list[tuple[str, str, int]]) -> Answers:
        passes, own_address = self._cluster.network.passes, self._node.address
        return {
            name: "open" if passes(own_address, address) and passes(address, own_address) else "closed"
            for name, address, _ in targets
        }

    def refusal(self, targets: list[tuple[str, str, int]]) -> Answers:
        rejects = self._cluster.network.rejects
        return {name: "refused" if rejects(self._node.address, address) else "silent" for name, address, _ in targets}

    def connect_times(self, address: str, port: int, times: int, seconds: int) -> Answers:
        network, give_up_s = self._cluster.network, self._scheduler.monotonic() + seconds
        answers = {"done": "yes"}
        for number in range(times):
            left_s = give_up_s - self._scheduler.monotonic()
            took_s = self._scheduler.run(network.round_trip(self._node.address, address, max(0.0, left_s)))
            if took_s is not None:
                answers[f"connect{number}"] = str(round(took_s * 1e6))
        return answers

    def burst(self, address: str, count: int) -> Answers:
        self._cluster.network.burst(self._node.address, address, count)
        return {"sent": str(count)}

    def queues(self) -> Answers:
        """In the format of `tc -s -j qdisc show`."""
        outlet = self._cluster.network.outlet(self._node.name)
        if outlet is None or not (outlet.disturbance.delay_s or outlet.disturbance.loss):
            return {"queues": "[]"}
        counted = {"packets": outlet.packets, "drops": outlet.drops}
        queue = {"kind": "netem", "handle": HANDLE, "dev": _DEVICE, "options": str(outlet.disturbance), **counted}
        return {"queues": json.dumps([queue])}

    def way(self, address: str) -> str:
        return f"{address} dev {_DEVICE} src {self._node.address} \\    cache"

    def set_queue(self, device: str, netem: str) -> Answers:
        disturb(self._cluster, self._node.name, **asked_of_netem(netem))
        return {"applied": "yes"}

    def remove_queue(self, device: str) -> str:
        disturb(self._cluster, self._node.name, **asked_of_netem(""))
        return ""

    # ---- files

    def renew_mark(self, directory: str, mark: str) -> Answers:
        disk = self._machine.disk
        marks = _SYNCED.rpartition("/")[0]
        disk.make_directory(marks)
        for path, content in ((_SYNCED, mark), (_UNSYNCED, "0" * len(mark))):
            self._put(path, content)
            finish(self._scheduler, self._node.name, disk.open(path).sync(), _SYNC_S)
        for directory in (marks, ""):
            finish(self._scheduler, self._node.name, disk.sync_directory(directory), _SYNC_S)
        return {"synced": "yes"}

    def leave_mark(self, directory: str, mark: str) -> Answers:
        self._put(_UNSYNCED, mark)
        return {"written": "yes"}

    def read_marks(self, directory: str, looks: int) -> Answers:
        content = dict(self._machine.disk.files())
        return {
            name: (content.get(path) or b"").decode(errors="replace")
            for name, path in (("synced", _SYNCED), ("unsynced", _UNSYNCED))
        }

    def list_files(self, directory: str, pattern: str) -> Answers:
        return {"listed": "yes", **{path: str(size) for path, size in self._sizes(pattern).items()}}

    def digest_files(self, directory: str, pattern: str) -> Answers:
        sizes = {path: size for path, size in self._sizes(pattern).items() if size}
        return {"noted": "yes", **self.digest_heads(directory, sizes)}

    def digest_heads(self, directory: str, sizes: Mapping[str, int]) -> Answers:
        files = self._files()
        return {
            path: f"{size} {hashlib.sha256(files.get(path, b'')[:size]).hexdigest()}" for path, size in sizes.items()
        }

    # ---- clocks

    def read_clocks(self) -> Answers:
        now, clock = self._cluster.loop.now, self._machine.clock
        real_s = self._scheduler.wall() + clock.ahead(now)
        return {"switches": str(_NO_KERNEL), "up": f"{clock.steady(now):.6f}", "real": f"{real_s:.9f}"}

    def move_clock(self, by_s: float) -> str:
        self._moved_in = self._machine.boots
        self._cluster.move_clock(self._node.name, by_s)
        return ""

    def note_move(self) -> str:
        self._moved_in = self._machine.boots
        return ""

    def forget_move(self) -> str:
        self._moved_in = 0
        return ""

    def was_moved(self) -> Answers:
        return {"moved": "yes" if self._moved_in == self._machine.boots else "no"}

    # ---- the machine

    @property
    def _machine(self) -> SimulatedMachine:
        return self._cluster.machines[self._node.name]

    def _put(self, path: str, mark: str) -> None:
        """Raises `HostError`."""
        disk = self._machine.disk
        try:
            disk.open(path, create=True)
            disk.overwrite(path, mark.encode())
        except OSError as error:
            raise HostError(f"{self._node.name}: {error}") from error

    def _runs(self, pid: int) -> bool:
        return self._machine.running and self._machine.pid == pid

    def _start(self, pid: int) -> str:
        """The start time of a process, in ticks since the start of the simulation; empty if it does not run."""
        return str(1 + round(self._machine.began_s * TICKS)) if self._runs(pid) else ""

    def _threads(self, pid: int) -> str:
        """The states of a process's threads: S asleep, T suspended; empty if the process does not run."""
        host = self._machine.host
        if not host or not self._runs(pid):
            return ""
        return "T" if host.backlog is not None else "S"

    def _end(self, pid: int) -> Answers:
        return {"state": self._threads(pid) or "gone", "port": self._port()}

    def _listens(self) -> bool:
        return self._cluster.network.is_open(self._node.address, self._node.port)

    def _port(self) -> str:
        return "open" if self._listens() else "closed"

    def _files(self) -> dict[str, bytes]:
        return {path: content for path, content in self._machine.disk.files() if content is not None}

    def _sizes(self, pattern: str) -> dict[str, int]:
        return {path: len(content) for path, content in self._files().items() if _is_like(path, pattern)}


def finish(scheduler: VirtualScheduler, name: str, operation: Coroutine[Any, Any, T], timeout_s: float) -> T:
    """The result of an operation that a command waits for. Raises `HostError` when it takes too long."""
    try:
        return scheduler.run(asyncio.wait_for(operation, timeout_s))
    except TimeoutError:
        raise HostError(f"{name}: did not end within {timeout_s:g} s") from None
    except OSError as error:
        raise HostError(f"{name}: {error}") from error


def _is_like(path: str, pattern: str) -> bool:
    """As a shell's patterns: an asterisk does not match a slash."""
    parts, patterns = path.split("/"), pattern.split("/")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


BOOT_ID = "/proc/sys/kernel/random/boot_id"
PROBE_PORT = 9  # no listener needed: the simulation knows whether packets pass
COMMAND_S = 0.002  # the duration of a command, so that polling advances the time
_NOT_FOUND = 127


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
        self._answers = SimulatedAnswers(node, cluster, scheduler)

    @property
    def boot_id(self) -> str:
        """The id of the machine's current boot."""
        chance = Random(f"{self._cluster.seed}/{self.name}/boot/{self._machine.boots}")
        return f"{chance.getrandbits(128):032x}"

    def run(self, command: str, *, timeout_s: float = 10.0) -> Result:
        """Answers a question's `Script`; of other commands, supports `cat`, `sync -f` and `kill`."""
        self._require_awake(timeout_s)
        self._scheduler.sleep(COMMAND_S)
        if isinstance(command, Script):
            return Result(0, self._answer(command), "")
        match shlex.split(command):
            case ["cat", path]:
                content = self._content(path)
                return Result(1, "", f"{path}: no such file") if content is None else Result(0, content, "")
            case ["sync", "-f", _]:
                finish(self._scheduler, self.name, self._machine.disk.sync_everything(), timeout_s)
                return Result(0, "", "")
            case ["kill", "-9", pid] if self.service_pid() == int(pid):
                self._cluster.kill(self.name)
                return Result(0, "", "")
            case ["kill", "-TERM", pid] if self.service_pid() == int(pid):
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

    def _answer(self, script: Script) -> str:
        try:
            answer = script.answered_by(self._answers)
        except OSError as error:  # an error of its disk: a shell's command would have failed
            raise HostError(f"{self.name}: {error}") from error
        return answer if isinstance(answer, str) else "".join(f"{key}={value}\n" for key, value in answer.items())

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

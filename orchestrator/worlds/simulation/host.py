"""A simulated machine as a host: it has no shell, but answers the commands that faults send."""

from __future__ import annotations

import shlex
from random import Random

from nemeses.mechanisms.shell import Script
from nemeses.ports import HostError, HostUnreachableError, Result
from orchestrator.worlds.base import Node
from orchestrator.worlds.simulation.answers import SimulatedAnswers, finish
from orchestrator.worlds.simulation.scheduling import VirtualScheduler
from simulator.cluster import SimulatedCluster, SimulatedMachine

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

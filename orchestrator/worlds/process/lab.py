"""The lab of the process world: nothing outlives a run."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from installation.plain_paths import PlainPath
from nemeses import Host, Result, injectable
from nemeses.kind import Need
from nemeses.mechanisms.shell import ask, brief_command, end_left_script
from nemeses.ports import HostError, HostUnreachableError
from orchestrator.cleanup import clean_up, on_failure
from orchestrator.errors import WorldError
from orchestrator.machine.programs import program
from orchestrator.worlds.base import SHARED, Node, Progress, World, WorldSpec, make_shared, no_progress
from orchestrator.worlds.lab import PerRunLab
from orchestrator.worlds.node_collection import keep_configuration
from systems.local_ports import ADDRESS, LocalPorts, NoPortError
from systems.service import Service

# ---- This machine as one of several hosts: a service is a process here, a command is a child process.

_LOOK_S = 0.01


class Supervisor:
    """The process that is the parent of all services. It ends with this process, and ends the services."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # A separate session: Ctrl-C goes to the orchestrator only, which then ends the services in order.
        self._process = subprocess.Popen(
            program("orchestrator.worlds.process.supervisor"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    @property
    def is_running(self) -> bool:
        """Whether it runs. When it ends, the kernel ends all services: then their end is not their own failure."""
        return self._process.poll() is None

    def start(self, argv: list[str], environment: dict[str, str], directory: Path, log: Path) -> int:
        """Start a process; returns its pid. Raises `HostError` when it cannot be started."""
        order = {"argv": argv, "environment": environment, "directory": str(directory), "log": str(log)}
        answer = self._ask(json.dumps(order).encode() + b"\n")
        if "error" in answer:
            raise HostError(f"{argv[0]} cannot be started: {answer['error']}; see command in its system.toml")
        return int(answer["pid"])

    def ended(self, pid: int) -> int | None:
        """How a started process ended, in a shell's numbering; None while it runs. Raises `HostError`."""
        status = self._ask(json.dumps({"ended": pid}).encode() + b"\n")["status"]
        return None if status is None else int(status)

    def close(self) -> None:
        """Kill everything that was started, and wait until it is gone."""
        assert self._process.stdin is not None, "opened as a pipe"
        assert self._process.stdout is not None, "opened as a pipe"
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _ask(self, line: bytes) -> dict[str, Any]:
        assert self._process.stdin is not None, "opened as a pipe"
        assert self._process.stdout is not None, "opened as a pipe"
        with self._lock:
            try:
                self._process.stdin.write(line)
                self._process.stdin.flush()
                answer: dict[str, Any] = json.loads(self._process.stdout.readline())
            except (OSError, ValueError) as error:
                raise HostUnreachableError("the process that starts the services has ended") from error
            return answer


class LocalHost:
    """One service's view of this machine."""

    def __init__(self, node: Node, service: Service, supervisor: Supervisor) -> None:
        self.name = node.name
        self.address = node.address
        self.port = node.port
        self.probe_port = node.port
        self.data_dir = node.data_dir
        self._node = node
        self._service = service
        self._supervisor = supervisor
        self._started: tuple[int, str] | None = None
        self._ended: int | None = None  # the previous process, while its children may still exist

    def run(self, command: str, *, timeout_s: float = 10.0) -> Result:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",  # a service's own commands may print anything
            start_new_session=True,
        )
        try:
            stdout, stderr = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise HostError(f"{self.name}: {brief_command(command)!r} did not end within {timeout_s:g} s") from None
        return Result(process.returncode, stdout, stderr)

    def prepare(self, command: str, timeout_s: float) -> Result:
        """As `run`, through the supervisor: everything that it starts ends with the services; background processes are
        not waited for. Returns output and errors as one text."""
        output = Path(f"{self._node.data_dir}.prepare")
        output.unlink(missing_ok=True)
        pid = self._supervisor.start(["/bin/sh", "-c", command], {}, Path.cwd(), output)
        give_up_s = time.monotonic() + timeout_s
        while (status := self._supervisor.ended(pid)) is None:
            if time.monotonic() > give_up_s:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
                raise HostError(f"{self.name}: {command!r} did not end within {timeout_s:g} s")
            time.sleep(_LOOK_S)
        return Result(status, output.read_text(encoding="utf-8", errors="replace"), "")

    def service_pid(self) -> int | None:
        if not self._supervisor.is_running:
            raise HostUnreachableError(f"{self.name}: the process that starts the services has ended")
        if self._started is None or _start_time(self._started[0]) != self._started[1]:
            return None
        return self._started[0]

    def service_exit(self, pid: int | None = None) -> int | None:
        if pid is None:
            if self._started is None:
                return None
            pid = self._started[0]
        return self._supervisor.ended(pid)

    def start_service(self) -> None:
        if self.service_pid() is not None:
            return
        if self._started is not None:  # from now on its end is not the end of the last started service
            self._ended, self._started = self._started[0], None
        if self._ended is not None:
            self._end_left(self._ended)
            self._ended = None
        command, environment = list(self._service.command), dict(self._service.environment)
        try:
            pid = self._supervisor.start(command, environment, Path(self._node.data_dir), Path(self._node.service_log))
        except HostUnreachableError:
            raise
        except HostError as error:
            raise HostError(f"{self.name}: {error}") from error
        self._started = (pid, _start_time(pid) or "")

    def _end_left(self, pid: int) -> None:
        """Kill the children of the service's last process: they use the same data. Raises `HostError`."""
        answers = ask(self, end_left_script(pid, 0))
        if answers["state"] not in ("gone", "killed"):
            raise HostError(f"{self.name}: processes that the service left behind do not end: {answers['left']}")
        if answers["left"]:
            with open(self._node.service_log, "a", encoding="utf-8") as log:
                log.write(f"brownout: killed what the service had left behind: {answers['left']}\n")


def _start_time(pid: int) -> str | None:
    """The start time of a process, in clock ticks since boot; None when it has ended."""
    try:
        # The kernel truncates a program's name after 15 bytes, possibly within a character.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(") ")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


# ---- The process world: what is possible without privileges.

_SCRATCH = "world"
_OFFERS: tuple[Need, ...] = ("store",)


class ProcessWorld(World):
    """Brokers as plain processes of this user, on loopback, each on its own port."""

    name = "process"
    capabilities: frozenset[str] = injectable(_OFFERS)
    needs_sandbox = False

    def __init__(self, spec: WorldSpec) -> None:
        super().__init__(spec)
        self._ports = LocalPorts(spec.run_id)
        try:
            self._plain_run_dir = PlainPath(spec.run_dir)
            self._nodes = [self._node(number) for number in range(1, spec.node_count + 1)]
        except NoPortError as error:
            raise WorldError(f"{error}; end the process that listens there") from error
        except OSError as error:
            raise WorldError(f"the process world cannot be made: {error}") from error
        self._hosts: dict[str, LocalHost] = {}
        self._supervisor: Supervisor | None = None

    def up(self, on_progress: Progress = no_progress) -> None:
        self._lock.take()
        with on_failure(self.down):
            try:
                self._supervisor = Supervisor()
                services = [self.service(node) for node in self._nodes]
                make_shared(self._spec.run_dir, services, self._nodes[0].shared_dir)
                for node in self._nodes:
                    self._make(node, self._supervisor)
                    on_progress(f"{node.name} is ready at {node.address}:{node.port}")
            except OSError as error:
                raise WorldError(f"the process world cannot be made: {error}") from error

    def _make(self, node: Node, supervisor: Supervisor) -> None:
        Path(node.data_dir).mkdir(parents=True, exist_ok=True)
        node.record_dir.mkdir(parents=True, exist_ok=True)
        service = self.service(node)
        keep_configuration(node.record_dir, node.etc_dir, service.files)
        self._hosts[node.name] = LocalHost(node, service, supervisor)

    def down(self) -> None:
        clean_up(
            self._end_supervisor,
            lambda: shutil.rmtree(self._scratch, ignore_errors=True),
            self._plain_run_dir.close,
            self._ports.release,
            self._lock.release,
        )

    def _end_supervisor(self) -> None:
        if self._supervisor is not None:
            self._supervisor.close()
            self._supervisor = None

    def _run_to_prepare(self, host: Host, command: str, timeout_s: float) -> Result:
        """Started by the supervisor, so that nothing of it outlives the run."""
        return self._hosts[host.name].prepare(command, timeout_s)

    def shell(self, name: str, command: Sequence[str] = ()) -> list[str]:
        """A shell, or a command, in the node's directory, since the node has no separate environment."""
        directory = next(node.data_dir for node in self._nodes if node.name == name)
        script = [" ".join(command)] if command else []  # as ssh does
        return ["/bin/sh", "-c", 'cd "$0" && exec "${SHELL:-/bin/sh}" ${1+-c "$1"}', directory, *script]

    @property
    def _scratch(self) -> Path:
        return self._spec.run_dir / _SCRATCH

    def _node(self, number: int) -> Node:
        name = f"n{number}"
        # A system's configuration contains these paths: they must be free of characters that a program would parse.
        run_path = Path(self._plain_run_dir.path)
        return Node(
            name=name,
            id=number,
            address=ADDRESS,
            ports={port: self._ports.take() for port in self._spec.deployment.ports(number)},
            data_dir=str(run_path / _SCRATCH / name),
            etc_dir=str(run_path / "nodes" / name),
            var_dir=str(run_path / "nodes" / name),
            record_dir=self._spec.run_dir / "nodes" / name,
            files_dir=self._spec.deployment.files_dir,
            shared_dir=str(run_path / SHARED),
        )


class ProcessLab(PerRunLab):
    """Runs in the process world."""

    kind = ProcessWorld


LAB: Final = ProcessLab

"""Shared parts of the tests of worlds: a specification with the stand-in broker, and a scenario in a sandbox."""

import json
import os
import socket
import subprocess
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from installation.files import PROJECT_ROOT
from orchestrator.machine.programs import program
from orchestrator.worlds.base import Node, WorldSpec
from systems.service import Place, Service

STAND_IN = Path(__file__).with_name("stand_in_broker.py")
DEADLINE_S = 300.0


COLLECTED = ("*/*.log", "*/leader-epoch-checkpoint", "replication-offset-checkpoint")

Configure = Callable[[Place], str]
"""The text of a node's server.properties."""


def stand_in_properties(node: Place) -> str:
    listener = f"listeners=PLAINTEXT://{node.address}:{node.ports['client']}\n"
    return f"{listener}log.dir={node.data_dir}/log\ntrace.path={node.var_dir}/events.jsonl\n"


@dataclass(frozen=True)
class StandIns:
    """The stand-in broker on every node: the service of worlds in tests."""

    configure: Configure = stand_in_properties
    arguments: tuple[str, ...] = ()
    collected: tuple[str, tuple[str, ...]] = ("log", COLLECTED)
    files_dir: str = ""
    files_name: str = "stand-in/1"

    def ports(self, number: int) -> Mapping[str, int]:
        del number  # all nodes are alike
        return {"client": 9092}

    def service(self, node: Place, nodes: Sequence[Place], time_scale: float = 1.0) -> Service:
        del nodes, time_scale
        properties = f"{node.etc_dir}/server.properties"
        return Service(
            role="broker",
            command=(sys.executable, str(STAND_IN), "--config", properties, *self.arguments),
            files={properties: self.configure(node)},
        )


def own_run_id(directory: Path | str) -> str:
    """A run's id that no other run on this machine has: its disks are found by it, among those of all."""
    return f"run-{zlib.crc32(str(directory).encode()):08x}"


def specification(
    run_dir: Path,
    nodes: int = 3,
    *,
    run_id: str = "run",
    filesystem: str = "ext4",
    arguments: tuple[str, ...] = (),
    configure: Configure = stand_in_properties,
) -> WorldSpec:
    return WorldSpec(
        run_id=run_id,
        run_dir=run_dir,
        node_count=nodes,
        deployment=StandIns(configure, arguments),
        filesystem=filesystem,
        disk_bytes=128 << 20 if filesystem == "ext4" else 320 << 20,
    )


def send(node: Node, line: str) -> None:
    """Have a stand-in broker log a line; returns when it says so."""
    with socket.create_connection((node.address, node.port), timeout=DEADLINE_S) as connection:
        connection.sendall(line.encode() + b"\n")
        assert connection.recv(16) == b"ok\n"


class Sandbox:
    """A sandbox started as a child of the calling process. It ends with the command, on `kill`, and with the caller."""

    def __init__(self, process: subprocess.Popen[Any], leash: int) -> None:
        self.process = process
        self._leash = leash

    def kill(self) -> None:
        """Kill everything in the sandbox and wait until it is gone."""
        if self._leash >= 0:
            os.close(self._leash)
            self._leash = -1
        self.process.wait()

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait for the command's end; returns its exit code. Raises `subprocess.TimeoutExpired`."""
        code = self.process.wait(timeout_s)
        self.kill()
        return code


def spawn_in_sandbox(argv: Sequence[str], **options: Any) -> Sandbox:
    """Run `argv` in a new sandbox as a child process; `options` are those of `subprocess.Popen`."""
    tied, leash = os.pipe()
    try:
        options["pass_fds"] = (*options.get("pass_fds", ()), tied)
        process = subprocess.Popen(program("orchestrator.machine.sandbox", str(tied), *argv), **options)
    except BaseException:
        os.close(leash)
        raise
    finally:
        os.close(tied)
    return Sandbox(process, leash)


def launch(scenario: str, *arguments: str, module: str = "tests.worlds.scenarios") -> Sandbox:
    """Start `<module>.<scenario>(*arguments)` in a sandbox of its own; it prints JSON, one per line."""
    command = [sys.executable, "-m", module, scenario, *arguments]
    return spawn_in_sandbox(
        command,
        cwd=PROJECT_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def result(sandbox: Sandbox, deadline_s: float = DEADLINE_S) -> Any:
    """Wait for a scenario's end and read the last line that it printed."""
    try:
        stdout, stderr = sandbox.process.communicate(timeout=deadline_s)
    finally:
        sandbox.kill()
    assert sandbox.process.returncode == 0, stderr
    return json.loads(stdout.splitlines()[-1])


def play(scenario: str, *arguments: str, module: str = "tests.worlds.scenarios", deadline_s: float = DEADLINE_S) -> Any:
    """Run a scenario to its end; what it returned."""
    return result(launch(scenario, *arguments, module=module), deadline_s)

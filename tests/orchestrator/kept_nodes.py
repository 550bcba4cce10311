"""Asking `brownout nodes` as a user does, with a directory of the test's own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from installation.files import PROJECT_ROOT
from orchestrator.command.nodes import SILENCE_S
from orchestrator.nodes.orders import Order, ask
from orchestrator.nodes.state import KeptNodes

_PROGRAM = """\
import sys
from pathlib import Path
from orchestrator.nodes import state
state.DEFAULT_ROOT = Path(sys.argv[1])
from orchestrator.command import nodes
from orchestrator.command.line import main
nodes.SILENCE_S = float(sys.argv[2])
sys.exit(main(["nodes", *sys.argv[3:]]))
"""
DEADLINE_S = 300.0


class Nodes:
    """The `nodes` command, and what it leaves in its directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.kept = KeptNodes(root)
        self.silence_s = SILENCE_S

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(self.root), str(self.silence_s), *arguments],
            cwd=PROJECT_ROOT,
            env={**os.environ, "PYTHONPATH": str(PROJECT_ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ask(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        process = self.start(*arguments)
        stdout, stderr = process.communicate(timeout=DEADLINE_S)
        return subprocess.CompletedProcess(arguments, process.returncode, stdout, stderr)

    def must(self, *arguments: str) -> str:
        """Run it, and expect that it can; what it printed."""
        done = self.ask(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def look(self) -> list[dict[str, Any]]:
        """Each node as the process that keeps them sees it."""
        return [msgspec.to_builtins(node) for node in ask(self.kept, Order("status")).nodes]

    def broker_pids(self) -> list[int | None]:
        return [node["service_pid"] for node in self.look()]

    def records(self) -> list[str]:
        """The names of everything that is recorded of nodes."""
        return sorted(path.name for path in self.root.iterdir()) if self.root.exists() else []

    def holder(self) -> int:
        """The process whose end is the end of everything."""
        return int(self.kept.pid_file.read_text())

    def processes(self) -> list[str]:
        """Command lines of processes that name this directory."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(self.root) in line:
                found.append(line)
        return found

    def wait_until_gone(self) -> list[str]:
        """The remains after at most ten seconds: after a longer time, a process that ends on its own would count as
        ended."""
        deadline = time.monotonic() + 10
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return left

    def end(self) -> None:
        """End the nodes of a test, whatever its result."""
        self.ask("down")
        if self.kept.pid_file.exists():
            os.kill(self.holder(), signal.SIGKILL)

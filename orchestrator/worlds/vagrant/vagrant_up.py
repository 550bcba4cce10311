"""`vagrant up` in the sandbox: reports progress, and is ended when it takes too long or is interrupted."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from installation.files import PROJECT_ROOT
from orchestrator.errors import WorldError
from orchestrator.worlds.base import Progress
from orchestrator.worlds.vagrant.machine import BootError

NODES_DEADLINE_S = 30.0
"""For the first node, multiplied by the time scale; each further one adds a part."""
_FURTHER_NODE = 0.3
_LOOK_S = 0.5
_SAID = re.compile(r"^(?:==>|   ) (?P<node>[\w.-]+): (?P<text>.*)$")
# Lines of Vagrant's output that are reported as progress.
_MESSAGES = {
    "Starting domain.": "{node} is booting",
    "Machine booted and ready!": "{node} answers",
}
_READY = "Machine booted and ready!"
_STARTED = "Starting domain."
# A Ruby exception starts with the place where it was raised, followed by its stack.
_RAISED = re.compile(r"^/\S+:\d+:in `[^']*': ")
_TRACE = re.compile(r"^(from )?/\S+:\d+:in ")
_FIRST_LINES = 8


class VagrantUp:
    """One `vagrant up` of nodes that do not exist yet.

    `alive(name)`: whether a node's machine runs. `last_words(name)`: the end of its console output."""

    def __init__(
        self,
        names: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        alive: Callable[[str], bool],
        last_words: Callable[[str], str],
    ) -> None:
        self._names = names
        self._environment = environment
        self._log = log
        self._alive = alive
        self._last_words = last_words
        self._booting: set[str] = set()
        self._seen_alive: set[str] = set()
        self._ready: set[str] = set()
        self._lines: list[str] = []

    def run(self, time_scale: float, on_progress: Progress) -> None:
        """Boot all nodes and wait until each answers. Raises `BootError` with the node and the cause, and `WorldError`
        if Vagrant itself cannot be run."""
        deadline_s = NODES_DEADLINE_S * time_scale * (1 + _FURTHER_NODE * (len(self._names) - 1))
        give_up = time.monotonic() + deadline_s
        command = ["vagrant", "up", "--no-color", "--no-provision", "--provider", "libvirt", "--parallel"]
        try:
            process = subprocess.Popen(
                [*command, *self._names],
                cwd=PROJECT_ROOT,
                env={**os.environ, **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C goes to the orchestrator only: Vagrant would take long to clean up
            )
        except OSError as error:
            raise WorldError(
                f"vagrant cannot be run: {error.strerror}; `brownout doctor` lists what is missing"
            ) from error
        try:
            self._watch(process, give_up, deadline_s, on_progress)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _watch(
        self, process: subprocess.Popen[bytes], give_up: float, deadline_s: float, on_progress: Progress
    ) -> None:
        assert process.stdout is not None
        said: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=_read, args=(process.stdout, said, self._log), name="vagrant-up", daemon=True).start()
        while True:
            try:
                line = said.get(timeout=_LOOK_S)
            except queue.Empty:
                pass
            else:
                if line is None:
                    break
                self._hear(line, on_progress)
            self._look()
            if time.monotonic() > give_up:
                late = next(name for name in self._names if name not in self._ready)
                raise BootError(
                    f"{late}: the virtual machine has not booted within {deadline_s:g} s; {self._last_words(late)}; "
                    f"Vagrant's output is in {self._log}"
                )
        code = process.wait()
        if code != 0 or self._ready != set(self._names):
            raise BootError(f"vagrant up ended with code {code}: {self._complaint()}; its output is in {self._log}")

    def _hear(self, line: str, on_progress: Progress) -> None:
        self._lines.append(line)
        match = _SAID.match(line)
        if match is None:
            return
        node, text = match["node"], match["text"]
        if text == _STARTED:
            self._booting.add(node)
        if text == _READY:
            self._ready.add(node)
        if text in _MESSAGES:
            on_progress(_MESSAGES[text].format(node=node))

    def _look(self) -> None:
        """Detect machines that have ended: Vagrant would wait for them for minutes."""
        for name in self._booting - self._ready:
            if self._alive(name):
                self._seen_alive.add(name)
            elif name in self._seen_alive:
                raise BootError(f"{name}: the virtual machine ended while it booted; {self._last_words(name)}")

    def _complaint(self) -> str:
        """Vagrant's output without the progress of nodes and without stack traces."""
        plain = [line.strip() for line in self._lines if line.strip() and not _SAID.match(line)]
        raised = [_RAISED.sub("", line) for line in plain if _RAISED.match(line)]
        words = raised or [line for line in plain if not _TRACE.match(line)]
        return " ".join(words[:_FIRST_LINES]) or (self._lines[-1].strip() if self._lines else "it printed nothing")


def _read(output: IO[bytes], said: queue.SimpleQueue[str | None], log: Path) -> None:
    with output, log.open("ab", buffering=0) as kept:
        for line in output:
            kept.write(line)
            said.put(line.decode(errors="replace").rstrip())
    said.put(None)

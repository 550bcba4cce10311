"""Starts client processes and commands them: the run loop's end of the pipe."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from installation.files import PROJECT_ROOT
from workloads.settings import ClientSettings

Role = Literal["producer", "consumer", "reader"]


class ClientError(Exception):
    """A client process that ended or does not answer; the message names it and where its log is."""


class ClientProcess:
    """One client. Create it from the main thread: the kernel kills it when the thread that started it ends."""

    def __init__(self, role: Role, settings: ClientSettings, log: Path) -> None:
        self.name = settings.client
        self.role = role
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "workloads", role, settings.to_json(), str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=PROJECT_ROOT,
                text=True,
            )
        self.counts: dict[str, int] = {"ok": 0, "fail": 0, "info": 0}
        self.first_ack_ns: int | None = None
        self.first_ack = threading.Event()
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self._seen = {name: threading.Event() for name in ("ready", "stopped", "closed")}
        self._trouble: list[str] = []
        self._request = 0
        self._unresolved = 0
        threading.Thread(target=self._listen, name=f"listen-{self.name}", daemon=True).start()

    @property
    def trouble(self) -> list[str]:
        """What the client complained of, so far."""
        return list(self._trouble)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def wait_ready(self, timeout_s: float) -> None:
        """Raises `ClientError` when the client is not ready within the time."""
        self._wait("ready", timeout_s)

    def start(self) -> None:
        """Begin the load."""
        self._tell(do="start")

    def stop(self) -> None:
        """End the load; returns at once, `wait_stopped` waits."""
        self._tell(do="stop")

    def wait_stopped(self, timeout_s: float) -> int:
        """Wait until everything in flight has its outcome; how many appends have none all the same."""
        self._wait("stopped", timeout_s)
        return self._unresolved

    def phase(self, name: str) -> None:
        """Operations recorded from now on belong to this phase of the run."""
        self._tell(do="phase", name=name)

    def append(self, partition: int, *, acks: int, count: int, timeout_s: float) -> list[Mapping[str, Any]]:
        """Append values one after the other until one is not ok; each one's `outcome`, `offset` and `error`."""
        answer = self._ask(
            count * (timeout_s + 2.0) + 5.0,
            do="append",
            partition=partition,
            acks=acks,
            count=count,
            timeout_s=timeout_s,
        )
        results: list[Mapping[str, Any]] = answer["results"]
        return results

    def read_all(self, partition: int, timeout_s: float) -> Mapping[str, Any]:
        """Read one partition from its first record to its end; `complete`, `end` and `read`."""
        return self._ask(timeout_s + 10.0, do="read", partition=partition, timeout_s=timeout_s)

    def close(self, timeout_s: float = 10.0) -> None:
        """End the client and its recording cleanly, or by force after the time. Safe to call twice."""
        if self.alive:
            try:
                self._tell(do="close")
                self._process.wait(timeout_s)
            except (ClientError, subprocess.TimeoutExpired):
                self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def kill(self) -> None:
        """End the client at once; what it recorded stays."""
        self._process.kill()
        self._process.wait()

    def _ask(self, patience_s: float, **command: Any) -> dict[str, Any]:
        self._request += 1
        self._tell(id=self._request, **command)
        give_up = time.monotonic() + patience_s
        while True:
            try:
                answer = self._answers.get(timeout=0.1)
            except queue.Empty:
                self._check_alive()
                if time.monotonic() > give_up:
                    raise ClientError(
                        f"client {self.name} gave no answer within {patience_s:.0f} s; see {self._log}"
                    ) from None
                continue
            if answer["id"] == self._request:
                return answer

    def _tell(self, **command: Any) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            self._process.wait()
            self._check_alive()

    def _check_alive(self) -> None:
        if not self.alive:
            last = f": {self._trouble[-1]}" if self._trouble else ""
            raise ClientError(f"client {self.name} ended with {self._process.returncode}{last}; see {self._log}")

    def _wait(self, event: str, timeout_s: float) -> None:
        give_up = time.monotonic() + timeout_s
        while not self._seen[event].wait(0.1):
            self._check_alive()
            if time.monotonic() > give_up:
                raise ClientError(f"client {self.name} is not {event} after {timeout_s:.0f} s; see {self._log}")
        self._seen[event].clear()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                self._trouble.append(line.strip())
                continue
            self._hear(event)

    def _hear(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "counts":
                self.counts = {name: event[name] for name in ("ok", "fail", "info")}
            case "first_ack":
                self.first_ack_ns = event["t"]
                self.first_ack.set()
            case "answer":
                self._answers.put(event)
            case "trouble":
                self._trouble.append(event["text"])
            case "stopped":
                self._unresolved = event["unresolved"]
                self._seen["stopped"].set()
            case name:
                self._seen[name].set()

"""How the run loop and a client process talk: one JSON object per line, commands in, events out.

Commands: `{"do": "start"}` begin the load; `{"do": "stop"}` end it and wait for what is in flight;
`{"do": "append", ...}` and `{"do": "read", ...}` one request each, answered by an event with the same `id`;
`{"do": "close"}`, or the end of the input, ends the process.
Events: `ready`, `first_ack`, `counts`, `stopped`, `answer`, `closed`, `trouble`.
"""

from __future__ import annotations

import ctypes
import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Mapping
from typing import Any, TextIO

Command = dict[str, Any]

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, however that happens."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the call
        os._exit(1)


class Control:
    """The client's end of the pipe."""

    def __init__(self, commands: TextIO = sys.stdin, events: TextIO = sys.stdout) -> None:
        self._commands: queue.Queue[Command] = queue.Queue()
        self._events = events
        self._lock = threading.Lock()
        threading.Thread(target=self._listen, args=(commands,), name="control", daemon=True).start()

    def _listen(self, commands: TextIO) -> None:
        for line in commands:
            self._commands.put(json.loads(line))
        self._commands.put({"do": "close"})

    def next(self, timeout_s: float = 0.0) -> Command | None:
        """The next command, or None when there is none within the time."""
        try:
            return self._commands.get(timeout=timeout_s) if timeout_s > 0 else self._commands.get_nowait()
        except queue.Empty:
            return None

    def tell(self, event: str, **fields: Any) -> None:
        """Send one event; when nobody listens any more the process ends."""
        line = json.dumps({"event": event, **fields})
        with self._lock:
            try:
                self._events.write(line + "\n")
                self._events.flush()
            except BrokenPipeError:
                os._exit(1)


class Counts:
    """Outcomes so far, and a report at most twice a second."""

    def __init__(self, control: Control, every_s: float = 0.5) -> None:
        self._control = control
        self._every_s = every_s
        self._reported_s = 0.0
        self._counts = {"ok": 0, "fail": 0, "info": 0}

    def add(self, outcome: str, count: int = 1) -> None:
        self._counts[outcome] += count

    @property
    def now(self) -> Mapping[str, int]:
        return dict(self._counts)

    def report(self, now_s: float, *, force: bool = False) -> None:
        if force or now_s - self._reported_s >= self._every_s:
            self._reported_s = now_s
            self._control.tell("counts", **self._counts)

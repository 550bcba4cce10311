"""The parent of all services of a process world: none outlives it, and it does not outlive the orchestrator.

A program. Reads one JSON object per line from standard input: `{"argv", "environment", "directory", "log"}` starts that
process and is answered with `{"pid"}` or `{"error"}`; `{"ended": pid}` with `{"status"}`: how it ended, as shells have
it, or null. The end of its input is the end of the orchestrator, however that
ended: then it kills every process that it started, and all that those have started, and ends. Who loses its parent
becomes its child: a service may be a script whose program goes on when the script is killed. The parent-death signal
covers its own sudden end, as far as its children go.
Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import traceback
from typing import Any, NoReturn

from orchestrator.machine import syscalls


def main(_: list[str]) -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    syscalls.adopt_orphans()
    try:
        _serve()
    except BrokenPipeError:
        pass  # the orchestrator ended between its order and the answer: an end like any other
    except BaseException:  # whatever breaks here: what was started ends first
        traceback.print_exc()
    _end()


def _serve() -> None:
    """Do what the orchestrator asks for, until it has ended."""
    waker, wake = os.pipe()
    for end in (waker, wake):
        os.set_blocking(end, False)
    # A handler that does nothing: the byte that Python writes for it is what interrupts the wait below.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    started: set[int] = set()
    ended: dict[int, int] = {}
    pending = b""
    while True:
        ready, _writable, _exceptional = select.select([0, waker], [], [])
        if waker in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(waker, 4096)
            _reap(started, ended)
        if 0 in ready:
            received = os.read(0, 1 << 16)
            if not received:
                return
            *lines, pending = (pending + received).split(b"\n")
            for line in lines:
                order = json.loads(line)
                _reap(started, ended)
                answer = {"status": ended.get(order["ended"])} if "ended" in order else _start(order, started)
                print(json.dumps(answer), flush=True)


def _reap(started: set[int], ended: dict[int, int]) -> None:
    """Take note of who of those that were `started` has `ended`; of adopted ones nobody asks."""
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = found
            if pid in started:
                started.discard(pid)
                code = os.waitstatus_to_exitcode(status)
                ended[pid] = code if code >= 0 else 128 - code


def _end() -> NoReturn:
    """Kill all children, and those that become children thereby, until there are none."""
    with contextlib.suppress(ChildProcessError):
        while True:
            for child in _children():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            os.waitpid(-1, 0)
    os._exit(0)


def _children() -> list[int]:
    parent, children = str(os.getpid()), []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:
                if stat.read().rpartition(b") ")[2].split()[1].decode() == parent:
                    children.append(int(name))
    return children


def _start(order: dict[str, Any], started: set[int]) -> dict[str, Any]:
    failure, report = os.pipe()
    supervisor = os.getpid()
    child = os.fork()
    if child == 0:
        _become(order, report, supervisor)
    os.close(report)
    started.add(child)
    words = os.read(failure, 4096).decode()
    os.close(failure)
    return {"error": words} if words else {"pid": child}


def _become(order: dict[str, Any], report: int, supervisor: int) -> NoReturn:
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        syscalls.die_with_parent(signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(1)
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(order["directory"])
        for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(order["argv"][0], order["argv"], {**os.environ, **order["environment"]})
    except OSError as error:
        os.write(report, str(error).encode())
    os._exit(127)

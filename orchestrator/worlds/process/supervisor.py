"""The parent of all services of a process world: services end with it, and it ends with the orchestrator.

A program. Reads one JSON object per line from standard input. `{"argv", "environment", "directory", "log"}` starts a
process; the answer is `{"pid"}` or `{"error"}`. `{"ended": pid}` asks how it ended; the answer is `{"status"}`, in a
shell's numbering, or null. The end of the input means the end of the orchestrator, for any reason: then it kills every
process that it started, with all their descendants, and ends. It adopts orphans: a service may be a script whose
program continues when the script is killed. The parent-death signal kills its children if it is killed itself. Standard
library only.
"""

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
        pass  # the orchestrator ended between its request and the answer: a normal end
    except BaseException:  # on any error: end what was started first
        traceback.print_exc()
    _end()


def _serve() -> None:
    """Follow the orchestrator's requests until it has ended."""
    waker, wake = os.pipe()
    for end in (waker, wake):
        os.set_blocking(end, False)
    # A handler that does nothing: the byte that Python writes for it interrupts the wait below.
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
    """Record which of the `started` processes have `ended`; adopted ones are not recorded."""
    with contextlib.suppress(ChildProcessError):
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = child
            if pid in started:
                started.discard(pid)
                code = os.waitstatus_to_exitcode(status)
                ended[pid] = code if code >= 0 else 128 - code


def _end() -> NoReturn:
    """Kill all children, and processes that become children thereby, until none is left."""
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
    error = os.read(failure, 4096).decode()
    os.close(failure)
    return {"error": error} if error else {"pid": child}


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

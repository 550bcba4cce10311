"""The commands' side of kept nodes: starts their daemon, sends orders, enters its sandbox, ends it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from installation.commands import command
from installation.files import PROJECT_ROOT
from orchestrator.cleanup import clean_up, on_failure
from orchestrator.errors import RunError, UsageError
from orchestrator.machine.programs import find_program
from orchestrator.nodes import rpc
from orchestrator.nodes.messages import (
    Answer,
    Down,
    Failed,
    NodesStatus,
    NodesUp,
    Order,
    ProgressMessage,
    RefusedMessage,
    Result,
    Shell,
    ShellCommand,
    Status,
)
from orchestrator.nodes.rpc import Channel, UnknownMessageError
from orchestrator.nodes.state import KeptNodes, NodesPlan, Registry

# The longest silence of a daemon that is working; each progress message restarts the timeout.
_PATIENCE_S = 300.0
_LOOK_S = 30.0
_POLL_S = 0.02
_OTHER_VERSION = "the nodes were made by another version of Brownout; take them down: ./brownout nodes down"
_ENTERED = ("--mount", "--net", "--uts", "--ipc", "--pid")

Say = Callable[[str], None]
ResultT = TypeVar("ResultT", NodesUp, NodesStatus, ShellCommand)


def bring_up(registry: Registry, plan: NodesPlan, say: Say) -> NodesUp:
    """Start a daemon and wait until its nodes are up; returns their names and addresses.

    Raises `UsageError` when nodes are up already, and `RunError` when these cannot be started. Then, and when the
    caller is interrupted, nothing of them remains.
    """
    with registry.claimed() as lock:
        try:
            kept = registry.create(plan)
        except OSError as error:
            raise RunError(f"the nodes cannot be recorded: {error}") from error
        with on_failure(kept.remove):
            process, starter = _start_holder(kept, lock)
        try:
            result = _result(starter, say)
            if result is None:
                raise RunError(f"the process that holds the nodes ended; its last output:\n{kept.last_words()}")
            return _expect(result, NodesUp)
        except (KeyboardInterrupt, RunError, UsageError) as error:
            if isinstance(error, KeyboardInterrupt):
                say("taking down what was started; press Ctrl-C again to abort")
            clean_up(lambda: _abandon(kept, process, starter, say), cause=error)
            raise
        finally:
            starter.close()


def _start_holder(kept: KeptNodes, lock: int) -> tuple[subprocess.Popen[bytes], Channel[Answer]]:
    ours, theirs = socket.socketpair()
    given = os.environ.get("PYTHONPATH", "")
    arguments = [str(kept.directory), str(lock), str(theirs.fileno())]
    try:
        with kept.log.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "orchestrator.nodes.daemon", *arguments],
                pass_fds=(lock, theirs.fileno()),
                start_new_session=True,  # Ctrl-C goes to the command only; the terminal may be closed
                cwd=PROJECT_ROOT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(PROJECT_ROOT), given]))},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        (kept.directory / "pid").write_text(str(process.pid), encoding="ascii")
    finally:
        theirs.close()
    return process, rpc.of_command(ours)


def _abandon(kept: KeptNodes, process: subprocess.Popen[bytes], starter: Channel[Answer], say: Say) -> None:
    """Wait until the daemon has taken everything down. An interrupt kills the daemon, which also ends everything."""
    try:
        starter.hang_up()
        with contextlib.suppress(RunError, UsageError):
            if _result(starter, say) is not None:  # they came up just before the order to end arrived
                process.terminate()
        killed = process.wait() < 0
    except KeyboardInterrupt:
        process.kill()
        process.wait()
        killed = True
    kept.remove(with_lab=killed)


def ask(kept: KeptNodes, order: Order, expected: type[ResultT], say: Say, patience_s: float = _PATIENCE_S) -> ResultT:
    """Send the daemon an order and return its result. Raises `UsageError` and `RunError`."""
    with contextlib.closing(_reach(kept, patience_s)) as asked:
        return _ask(kept, asked, order, expected, say)


def look(kept: KeptNodes) -> NodesStatus:
    """The state of all nodes. Raises `RunError` when the daemon does not answer."""
    if not rpc.is_open(kept.directory):
        return NodesStatus("coming up")
    return ask(kept, Status(), NodesStatus, lambda _: None, _LOOK_S)


def shell(kept: KeptNodes, node: str, command: Sequence[str]) -> list[str]:
    """The command line, for the caller's environment, that opens a shell on a node or runs a command there."""
    with contextlib.closing(_reach(kept, _LOOK_S)) as asked:
        holder = asked.peer()
        entering = _ask(kept, asked, Shell(node, list(command)), ShellCommand, lambda _: None).command
    if not kept.plan.sandboxed:
        return entering
    program = find_program("nsenter")
    if program is None:
        raise UsageError("nsenter is needed to enter the nodes' sandbox: apt-get install util-linux")
    return [program, f"--target={holder}", *_ENTERED, "--", *entering]


def take_down(registry: Registry, kept: KeptNodes, say: Say) -> None:
    """Take everything down and wait until it is gone; a daemon that does not answer is killed.

    Raises `RunError` when something may remain on machines of an inventory."""
    failure: RunError | None = None
    try:
        with contextlib.closing(_connect(kept, _PATIENCE_S)) as asked:
            asked.send(Down())
            _result(asked, say)
    except RunError as error:
        failure = error
    except OSError:  # it is still starting and takes no orders yet, or is hung
        say("the process that holds the nodes does not answer; it is killed")
        _kill(kept)
    _wait_until_free(registry, kept, say)
    if failure is not None:
        raise failure


def _wait_until_free(registry: Registry, kept: KeptNodes, say: Say) -> None:
    """Wait for the end of the daemon's sandbox, which follows a moment after its last message. Raises `RunError`."""
    give_up = [time.monotonic() + _LOOK_S, time.monotonic() + 2 * _LOOK_S]
    while registry.holds(kept):
        if time.monotonic() > give_up[-1]:
            raise RunError(f"process {kept.pid}, which held the nodes, cannot be killed; see what it waits for")
        if time.monotonic() > give_up[0]:
            say("the process that held the nodes does not end; it is killed")
            _kill(kept)
            give_up.pop(0)
        time.sleep(_POLL_S)


def _kill(kept: KeptNodes) -> None:
    """Kill the daemon and its sandbox. It holds its lock, so its process id was not reused."""
    with contextlib.suppress(OSError, ValueError):
        os.kill(kept.pid, signal.SIGKILL)


def _connect(kept: KeptNodes, patience_s: float) -> Channel[Answer]:
    """Raises `UsageError` when the nodes are another user's, and `OSError` when no daemon listens."""
    try:
        return rpc.connect(kept.directory, patience_s)
    except PermissionError as error:
        raise UsageError("the nodes belong to another user; run this as that user (perhaps with sudo)") from error


def _reach(kept: KeptNodes, patience_s: float) -> Channel[Answer]:
    try:
        return _connect(kept, patience_s)
    except OSError as error:
        raise RunError(
            f"the process that holds the nodes takes no orders ({error.strerror or error}): it is starting or ending; "
            f"{command('nodes', 'status')} shows which, {command('nodes', 'down')} ends it"
        ) from error


def _ask(kept: KeptNodes, asked: Channel[Answer], order: Order, expected: type[ResultT], say: Say) -> ResultT:
    try:
        asked.send(order)
        result = _result(asked, say)
    except TimeoutError:
        raise RunError(
            f"the process that holds the nodes does not answer (its log: {_shown(kept.log)}); "
            f"end it with {command('nodes', 'down')}"
        ) from None
    if result is None:
        raise RunError(f"the process that holds the nodes has ended; see {command('nodes', 'status')}")
    return _expect(result, expected)


def _result(asked: Channel[Answer], say: Say) -> Result | None:
    """Report progress until the result arrives; None when the daemon closes the connection without one.

    Raises `UsageError` and `RunError` for such results, and `TimeoutError`."""
    try:
        while (message := asked.receive()) is not None:
            match message:
                case ProgressMessage(text):
                    say(text)
                case RefusedMessage(text):
                    raise UsageError(text)
                case Failed(text):
                    raise RunError(text)
                case _:
                    return message
    except UnknownMessageError as error:
        raise RunError(f"{_OTHER_VERSION} ({error})") from error
    return None


def _expect(result: Result, expected: type[ResultT]) -> ResultT:
    if not isinstance(result, expected):
        raise RunError(f"{_OTHER_VERSION} (it answered with {type(result).__name__})")
    return result


def _shown(path: Path) -> Path:
    return path.relative_to(PROJECT_ROOT) if path.is_relative_to(PROJECT_ROOT) else path

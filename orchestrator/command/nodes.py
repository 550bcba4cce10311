"""`brownout nodes`: starts nodes without a campaign, shows them, logs in, takes them down."""

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from installation.commands import command
from installation.files import PROJECT_ROOT
from installation.python_modules import module_command, module_environment
from orchestrator.campaign.model import FILESYSTEMS, MAX_NODES
from orchestrator.cleanup import clean_up, on_failure
from orchestrator.command.shared.declaration import Command, actions_of, add
from orchestrator.command.shared.options import json_option, world_option
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
    StartMessage,
    Status,
    StopMessage,
)
from orchestrator.nodes.rpc import Channel, UnknownMessageError
from orchestrator.nodes.state import KeptNodes, NodesPlan, Registry
from orchestrator.printing import say, show
from orchestrator.running.progress import Progress
from orchestrator.world_kind import AUTO

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
    arguments = [str(kept.directory), str(lock), str(theirs.fileno())]
    try:
        with kept.log.open("wb") as log:
            process = subprocess.Popen(
                module_command("orchestrator.nodes.daemon", *arguments),
                pass_fds=(lock, theirs.fileno()),
                start_new_session=True,  # Ctrl-C goes to the command only; the terminal may be closed
                cwd=PROJECT_ROOT,
                env=module_environment(),
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


# ---- The command.

_KILLED = "the process that held the nodes was killed, and the nodes ended with it; the leftovers are removed"


def main(options: argparse.Namespace) -> int:
    """Run the action; returns the exit code. Raises `UsageError` and `RunError`."""
    registry = Registry()
    if options.action == "up":
        return _up(registry, options)
    kept = registry.find()
    if registry.removed:
        print(f"brownout: {_KILLED}", file=sys.stderr)
    if options.action == "status":
        return _status(kept, as_json=options.json)
    if options.action == "down":
        return _down(registry, kept)
    if kept is None:
        raise UsageError(_none_up())
    if options.action == "ssh":
        return _ssh(kept, options.node, options.argv)
    return _brokers(kept, options.action)


def _up(registry: Registry, options: argparse.Namespace) -> int:
    if not 1 <= options.nodes <= MAX_NODES:
        raise UsageError(f"--nodes {options.nodes}: give a number from 1 to {MAX_NODES}")
    registry.refuse_second()
    plan = _plan(registry, options)
    with Progress() as progress:
        progress.say(f"{_counted(plan.node_count)}, {plan.world} world")
        progress.say(f"world: {plan.reason}", dim=True)
        result = bring_up(registry, plan, lambda text: progress.say(text, dim=True))
    names = result.nodes
    print(
        f"{_counted(len(names))} up in the {plan.world} world: {', '.join(names)}; the brokers are not started\n"
        f"  start the brokers:   {command('nodes', 'start')}\n"
        f"  look around:         {command('nodes', 'ssh', names[0])}\n"
        f"  take them down:      {command('nodes', 'down')}"
    )
    return 0


def _plan(registry: Registry, options: argparse.Namespace) -> NodesPlan:
    """The world for this machine and its requirements. Raises `UsageError`."""
    from orchestrator.nodes.cluster import lab_spec
    from orchestrator.worlds.selection import select_lab
    from systems import load_system

    name = options.world or ("inventory" if options.inventory is not None else AUTO)
    if name != "inventory" and options.inventory is not None:
        raise UsageError(
            f"--inventory {options.inventory}: the {name} world has no inventory; leave out one of the two"
        )
    if name == "inventory" and options.inventory is None:
        raise UsageError("the inventory world needs the hosts' names: give --inventory FILE")
    if options.inventory is not None and not options.inventory.exists():
        raise UsageError(f"{options.inventory}: there is no such inventory; give the file that names the hosts")
    selection = select_lab(name, options.filesystem)
    plan = NodesPlan(
        world=selection.lab.name,
        reason=selection.reason,
        node_count=options.nodes,
        filesystem=options.filesystem,
        inventory=None if options.inventory is None else str(options.inventory.resolve()),
        sandboxed=selection.lab.needs_sandbox,
        since=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
    )
    load_system().prepare(lambda text: say(text, file=sys.stderr))
    selection.lab.prepare(lab_spec(plan, registry.root))
    return plan


def _status(kept: KeptNodes | None, *, as_json: bool) -> int:
    if kept is None:
        print(json.dumps({"state": "none", "nodes": []}, indent=1) if as_json else _none_up())
        return 0
    plan, status = kept.plan, look(kept)
    if as_json:
        about = {"world": plan.world, "reason": plan.reason, "since": plan.since}
        content = msgspec.to_builtins(status)
        del content["answer"]
        print(json.dumps({**about, **content}, indent=1))
    elif status.state != "up":
        print(f"{_counted(plan.node_count)} of the {plan.world} world: {status.state}")
    else:
        _print_nodes(plan, status)
    return 0


def _print_nodes(plan: NodesPlan, status: NodesStatus) -> None:
    rows = []
    for node in status.nodes:
        broker = "not running" if node.service_pid is None else f"pid {node.service_pid}"
        rows.append(
            {
                "node": node.name,
                "address": f"{node.address}:{node.port}",
                "state": node.state,
                "boot id": node.boot_id or "-",
                "broker": broker if node.state == "up" else "-",
            }
        )
    show(f"{plan.world} world, since {plan.since}", rows, ("node", "address", "state", "boot id", "broker"))
    for node in status.nodes:
        if node.reason:
            say(node.reason)


def _ssh(kept: KeptNodes, node: str, argv: list[str]) -> int:
    """Replace this process by the shell or command, which gets its terminal, signals and exit code."""
    command = shell(kept, node, argv[1:] if argv[:1] == ["--"] else argv)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        raise UsageError(f"{command[0]} cannot be run: {error.strerror}; install it") from error


def _brokers(kept: KeptNodes, action: str) -> int:
    with Progress() as progress:
        order = StartMessage() if action == "start" else StopMessage()
        result = ask(kept, order, NodesUp, lambda text: progress.say(text, dim=True))
    names = result.nodes
    if action == "stop":
        print(f"the brokers on {', '.join(names)} are stopped; their data is kept until {command('nodes', 'down')}")
        return 0
    print(f"bootstrap servers: {result.bootstrap}")
    if kept.plan.sandboxed:
        print(
            f"these addresses exist only in the nodes' network; run clients there:\n"
            f"  {command('nodes', 'ssh', names[0])} -- COMMAND"
        )
    return 0


def _down(registry: Registry, kept: KeptNodes | None) -> int:
    if kept is None:
        print("no nodes are up")
        return 0
    with Progress() as progress:
        try:
            take_down(registry, kept, lambda text: progress.say(text, dim=True))
        except KeyboardInterrupt:
            progress.say("stopped waiting; the nodes are still being taken down")
            raise
    print("the nodes are down; nothing was left behind")
    return 0


def _none_up() -> str:
    return f"no nodes are up; bring some up: {command('nodes', 'up')}"


def _counted(number: int) -> str:
    return f"{number} node{'' if number == 1 else 's'}"


def _options(command: argparse.ArgumentParser) -> None:
    actions = actions_of(command)
    up = add(actions, "up", "start nodes", "Starts the nodes of a world and returns; they stay until `nodes down`.")
    up.add_argument("--nodes", type=int, default=3, metavar="N", help="the number of nodes (default: 3)")
    up.add_argument("--filesystem", choices=FILESYSTEMS, default="ext4", help="on the data disks (default: ext4)")
    world_option(up)
    ssh = add(
        actions,
        "ssh",
        "log in to a node, or run a command on it",
        "Opens a shell on a node, or runs one command there.",
    )
    ssh.add_argument("node", metavar="NODE", help="such as n1")
    ssh.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the command (default: a shell)")
    status = add(
        actions, "status", "list the nodes that are up", "Lists the nodes that are up and their brokers' state."
    )
    json_option(status)
    for name, summary in (
        ("start", "start the brokers"),
        ("stop", "stop the brokers"),
        ("down", "take the nodes down"),
    ):
        add(actions, name, summary, summary.capitalize() + ".")


COMMAND: Final = Command(
    name="nodes",
    place=100,
    summary="start nodes without a campaign, log in, take them down",
    description="""\
Starts the nodes of a world and keeps them until `nodes down`, for interactive work.

  brownout nodes up --world vagrant      three virtual machines, provisioned
  brownout nodes status                  which nodes are up, and the state of their brokers
  brownout nodes ssh n1                  a shell on a node (or a command: nodes ssh n1 -- uptime)
  brownout nodes start | stop            start or stop the brokers
  brownout nodes down                    take the nodes down
""",
    options=_options,
    main=main,
)

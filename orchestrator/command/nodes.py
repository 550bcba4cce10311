"""`brownout nodes`: starts nodes without a campaign, shows them, logs in, takes them down."""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, Literal, TextIO

import msgspec

from installation.commands import command
from installation.counted import counted
from installation.files import PROJECT_ROOT
from installation.python_modules import module_command, module_environment
from orchestrator.campaign.model import FILESYSTEMS, MAX_NODES
from orchestrator.cleanup import clean_up
from orchestrator.command.shared.declaration import Command, actions_of, add
from orchestrator.command.shared.options import inventory_for, json_option, world_option
from orchestrator.errors import RunError, UsageError
from orchestrator.machine.programs import find_program
from orchestrator.nodes.orders import LOOK_S, NodeStatus, Order, Say, ask, follow, take_failure
from orchestrator.nodes.state import KeptNodes, NodesPlan
from orchestrator.printing import say, show
from orchestrator.running.progress import Progress
from orchestrator.world_kind import AUTO
from systems.service import in_url

SILENCE_S = 300.0
"""The longest time without a word of a process that starts brokers or takes nodes down."""
_ENTERED = ("--mount", "--net", "--uts", "--ipc", "--pid")
_KILLED = "the process that kept the nodes was killed, and the nodes ended with it; the leftovers are removed"
_LAST_LINES = 5


def bring_up(kept_nodes: KeptNodes, plan: NodesPlan, say: Say) -> None:
    """Start the process that keeps the nodes, and wait until they are up.

    Raises `UsageError` when nodes are up already, and `RunError` when these cannot be started. Then, and when the
    caller is interrupted, nothing of them remains.
    """
    with kept_nodes.claimed(plan) as lock, kept_nodes.tail() as log:
        with kept_nodes.log.open("ab") as output:
            process = subprocess.Popen(
                module_command("orchestrator.nodes.holder", str(kept_nodes.directory), str(lock)),
                pass_fds=(lock,),
                start_new_session=True,  # Ctrl-C goes to the command only; the terminal may be closed
                cwd=PROJECT_ROOT,
                env=module_environment(),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
            )
        try:
            kept_nodes.record(kept_nodes.pid_file, str(process.pid))
            follow(log, lambda: process.poll() is not None or kept_nodes.phase == "up", say)
        except BaseException as error:
            say("taking down what was started; press Ctrl-C again to abort")
            clean_up(lambda: _abandon(kept_nodes, process, log, say), cause=error)
            raise
        if process.poll() is None:
            return
        failure, lines = (
            take_failure(kept_nodes),
            kept_nodes.log.read_text(encoding="utf-8", errors="replace").splitlines(),
        )
        kept_nodes.remove(with_lab=process.returncode < 0)
    failure.require()
    last = "\n".join(lines[-_LAST_LINES:]) or "it printed nothing"
    raise RunError(f"the process that keeps the nodes ended; its last output:\n{last}")


def _abandon(kept_nodes: KeptNodes, process: subprocess.Popen[bytes], log: TextIO, say: Say) -> None:
    """Wait until everything is taken down. An interrupt kills the process, which also ends everything."""
    try:
        process.terminate()
        follow(log, lambda: process.poll() is not None, say)
    except KeyboardInterrupt:
        process.kill()
    kept_nodes.remove(with_lab=process.wait() < 0)
    if error := take_failure(kept_nodes).error:
        say(error)


def take_down(kept_nodes: KeptNodes, plan: NodesPlan, say: Say) -> None:
    """Take everything down and wait until it is gone; a process that does not answer is killed.

    Raises `UsageError` when the nodes are another user's, and `RunError` when something may remain on machines of an
    inventory."""

    def is_gone() -> bool:
        return not kept_nodes.is_held() or kept_nodes.plan() not in (None, plan)

    with contextlib.suppress(FileNotFoundError), kept_nodes.tail() as log:
        pid = int(kept_nodes.pid_file.read_text(encoding="utf-8"))
        if kept_nodes.phase != "going down":  # a second signal would abort it
            _end(pid, signal.SIGTERM)
        try:
            follow(log, is_gone, say, SILENCE_S)
        except TimeoutError:
            say("the process that keeps the nodes does not answer; it is killed")
            _end(pid, signal.SIGKILL)
            try:
                follow(log, is_gone, say, LOOK_S)
            except TimeoutError:
                raise RunError(
                    f"process {pid}, which keeps the nodes, cannot be killed; see what it waits for"
                ) from None
    take_failure(kept_nodes).require()


def _end(pid: int, number: signal.Signals) -> None:
    """Signal the process. It has the lock, so its process id was not reused."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:  # it has just ended
        pass
    except PermissionError as error:
        raise UsageError("the nodes belong to another user; run this as that user (perhaps with sudo)") from error


def shell(kept_nodes: KeptNodes, plan: NodesPlan, node: str, words: Sequence[str]) -> list[str]:
    """The command line, for the caller's environment, that opens a shell on a node or runs a command there."""
    answer = ask(kept_nodes, Order("ssh", node, list(words)))
    if not plan.sandboxed:
        return answer.argv
    program = find_program("nsenter")
    if program is None:
        raise UsageError("nsenter is needed to enter the nodes' sandbox: apt-get install util-linux")
    return [program, f"--target={answer.holder}", *_ENTERED, "--", *answer.argv]


# ---- The command.


def main(options: argparse.Namespace) -> int:
    """Run the action; returns the exit code. Raises `UsageError` and `RunError`."""
    kept_nodes = KeptNodes()
    if options.action == "up":
        return _up(kept_nodes, options)
    plan = kept_nodes.find()
    if kept_nodes.removed:
        print(f"brownout: {take_failure(kept_nodes).error or _KILLED}", file=sys.stderr)
    if options.action == "status":
        return _status(kept_nodes, plan, as_json=options.json)
    if options.action == "down":
        return _down(kept_nodes, plan)
    if plan is None:
        raise UsageError(_none_up())
    if options.action == "ssh":
        return _ssh(kept_nodes, plan, options.node, options.argv)
    return _brokers(kept_nodes, plan, options.action)


def _up(kept_nodes: KeptNodes, options: argparse.Namespace) -> int:
    if not 1 <= options.nodes <= MAX_NODES:
        raise UsageError(f"--nodes {options.nodes}: give a number from 1 to {MAX_NODES}")
    kept_nodes.refuse_second()
    plan = _plan(kept_nodes, options)
    with Progress() as progress:
        progress.say(f"{counted(plan.node_count, 'node')}, {plan.world} world")
        progress.say(f"world: {plan.reason}", dim=True)
        bring_up(kept_nodes, plan, lambda text: progress.say(text, dim=True))
    names = [node.name for node in ask(kept_nodes, Order("status")).nodes]
    print(
        f"{counted(len(names), 'node')} up in the {plan.world} world: {', '.join(names)}; the brokers are not started\n"
        f"  start the brokers:   {command('nodes', 'start')}\n"
        f"  look around:         {command('nodes', 'ssh', names[0])}\n"
        f"  take them down:      {command('nodes', 'down')}"
    )
    return 0


def _plan(kept_nodes: KeptNodes, options: argparse.Namespace) -> NodesPlan:
    """The world for this machine and its requirements. Raises `UsageError`."""
    from orchestrator.nodes.holder import lab_spec
    from orchestrator.worlds.selection import select_lab
    from systems import load_system

    name = options.world or ("inventory" if options.inventory is not None else AUTO)
    inventory = inventory_for(name, options.inventory)
    selection = select_lab(name, options.filesystem)
    plan = NodesPlan(
        id=os.urandom(3).hex(),
        world=selection.lab.name,
        reason=selection.reason,
        node_count=options.nodes,
        filesystem=options.filesystem,
        inventory=None if inventory is None else str(inventory),
        sandboxed=selection.lab.needs_sandbox,
        since=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
    )
    load_system().prepare(lambda text: say(text, file=sys.stderr))
    selection.lab.prepare(lab_spec(plan, kept_nodes.lab))
    return plan


def _status(kept_nodes: KeptNodes, plan: NodesPlan | None, *, as_json: bool) -> int:
    if plan is None:
        print(json.dumps({"state": "none", "nodes": []}, indent=1) if as_json else _none_up())
        return 0
    phase = kept_nodes.phase
    nodes = ask(kept_nodes, Order("status")).nodes if phase == "up" else []
    if as_json:
        about = {"world": plan.world, "reason": plan.reason, "since": plan.since, "state": phase}
        addresses = {"bootstrap": _bootstrap(nodes)} if nodes else {}
        print(json.dumps({**about, "nodes": msgspec.to_builtins(nodes), **addresses}, indent=1))
    elif nodes:
        _print_nodes(plan, nodes)
    else:
        print(f"{counted(plan.node_count, 'node')} of the {plan.world} world: {phase}")
    return 0


def _print_nodes(plan: NodesPlan, nodes: Sequence[NodeStatus]) -> None:
    rows = []
    for node in nodes:
        broker = "not running" if node.service_pid is None else f"pid {node.service_pid}"
        rows.append(
            {
                "node": node.name,
                "address": f"{in_url(node.address)}:{node.port}",
                "state": node.state,
                "boot id": node.boot_id or "-",
                "broker": broker if node.state == "up" else "-",
            }
        )
    show(f"{plan.world} world, since {plan.since}", rows, ("node", "address", "state", "boot id", "broker"))
    for node in nodes:
        if node.reason:
            say(node.reason)


def _ssh(kept_nodes: KeptNodes, plan: NodesPlan, node: str, argv: list[str]) -> int:
    """Replace this process by the shell or command, which gets its terminal, signals and exit code."""
    command = shell(kept_nodes, plan, node, argv[1:] if argv[:1] == ["--"] else argv)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        raise UsageError(f"{command[0]} cannot be run: {error.strerror}; install it") from error


def _brokers(kept_nodes: KeptNodes, plan: NodesPlan, action: Literal["start", "stop"]) -> int:
    with Progress() as progress:
        nodes = ask(kept_nodes, Order(action), lambda text: progress.say(text, dim=True), SILENCE_S).nodes
    names = [node.name for node in nodes]
    if action == "stop":
        print(f"the brokers on {', '.join(names)} are stopped; their data is kept until {command('nodes', 'down')}")
        return 0
    print(f"bootstrap servers: {_bootstrap(nodes)}")
    if plan.sandboxed:
        print(
            f"these addresses exist only in the nodes' network; run clients there:\n"
            f"  {command('nodes', 'ssh', names[0])} -- COMMAND"
        )
    return 0


def _bootstrap(nodes: Sequence[NodeStatus]) -> str:
    return ",".join(f"{in_url(node.address)}:{node.port}" for node in nodes)


def _down(kept_nodes: KeptNodes, plan: NodesPlan | None) -> int:
    if plan is None:
        print("no nodes are up")
        return 0
    with Progress() as progress:
        try:
            take_down(kept_nodes, plan, lambda text: progress.say(text, dim=True))
        except KeyboardInterrupt:
            progress.say("stopped waiting; the nodes are still being taken down")
            raise
    print("the nodes are down; nothing was left behind")
    return 0


def _none_up() -> str:
    return f"no nodes are up; bring some up: {command('nodes', 'up')}"


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

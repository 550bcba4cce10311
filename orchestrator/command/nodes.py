"""`brownout nodes`: starts nodes without a campaign, shows them, logs in, takes them down."""

from __future__ import annotations

import argparse
import json
import os
import sys
from datetime import UTC, datetime
from typing import Final

import msgspec

from installation.commands import command
from orchestrator.campaign.model import FILESYSTEMS, MAX_NODES
from orchestrator.command.shared.declaration import Command, actions_of, add
from orchestrator.command.shared.options import json_option, world_option
from orchestrator.errors import UsageError
from orchestrator.nodes import client
from orchestrator.nodes.messages import NodesStatus, NodesUp, StartMessage, StopMessage
from orchestrator.nodes.state import KeptNodes, NodesPlan, Registry
from orchestrator.printing import say, show
from orchestrator.running.progress import Progress
from orchestrator.world_kind import AUTO

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
        result = client.bring_up(registry, plan, lambda text: progress.say(text, dim=True))
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
    plan, status = kept.plan, client.look(kept)
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
    command = client.shell(kept, node, argv[1:] if argv[:1] == ["--"] else argv)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        raise UsageError(f"{command[0]} cannot be run: {error.strerror}; install it") from error


def _brokers(kept: KeptNodes, action: str) -> int:
    with Progress() as progress:
        order = StartMessage() if action == "start" else StopMessage()
        result = client.ask(kept, order, NodesUp, lambda text: progress.say(text, dim=True))
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
            client.take_down(registry, kept, lambda text: progress.say(text, dim=True))
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

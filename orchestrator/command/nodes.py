"""`brownout nodes`: bring nodes up without a campaign, look at them, enter them, take them down."""

from __future__ import annotations

import argparse
import json
import os
import sys
from datetime import UTC, datetime
from typing import Any

from installation.commands import command
from orchestrator.campaign.model import MAX_NODES
from orchestrator.errors import UsageError
from orchestrator.nodes import client
from orchestrator.nodes.registry import Kept, Plan, Registry
from orchestrator.running.progress import Progress

_KILLED = "the process that held nodes was killed, and they ended with it; what it left is removed"


def main(options: argparse.Namespace, _: list[str]) -> int:
    """Dispatch to the action. Raises `UsageError` and `RunError`."""
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
    names = result["nodes"]
    print(
        f"{_counted(len(names))} up in the {plan.world} world: {', '.join(names)}; the brokers are not started\n"
        f"  start the brokers:   {command('nodes', 'start')}\n"
        f"  look around:         {command('nodes', 'ssh', names[0])}\n"
        f"  take them down:      {command('nodes', 'down')}"
    )
    return 0


def _plan(registry: Registry, options: argparse.Namespace) -> Plan:
    """The world for this machine, and what it needs there. Raises `UsageError`."""
    from orchestrator.nodes.held import lab_spec
    from orchestrator.worlds.selection import select_lab
    from systems import load_system

    name = options.world or ("inventory" if options.inventory is not None else "auto")
    if name != "inventory" and options.inventory is not None:
        raise UsageError(f"--inventory {options.inventory}: the {name} world has none; leave out one of the two")
    if name == "inventory" and options.inventory is None:
        raise UsageError("the inventory world needs the hosts' names: give --inventory FILE")
    if options.inventory is not None and not options.inventory.exists():
        raise UsageError(f"{options.inventory}: there is no such inventory; give the file that names the hosts")
    selection = select_lab(name, options.filesystem)
    plan = Plan(
        world=selection.lab.name,
        reason=selection.reason,
        node_count=options.nodes,
        filesystem=options.filesystem,
        inventory=None if options.inventory is None else str(options.inventory.resolve()),
        sandboxed=selection.lab.needs_sandbox,
        since=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
    )
    load_system().prepare(lambda text: print(text, file=sys.stderr))
    selection.lab.prepare(lab_spec(plan, registry.root))
    return plan


def _status(kept: Kept | None, *, as_json: bool) -> int:
    content: dict[str, Any] = {"state": "none", "nodes": []}
    if kept is not None:
        plan = kept.plan
        content = {"world": plan.world, "reason": plan.reason, "since": plan.since, "nodes": [], **client.look(kept)}
    if as_json:
        print(json.dumps(content, indent=1))
        return 0
    if kept is None:
        print(_none_up())
    elif content["state"] != "up":
        print(f"{_counted(kept.plan.node_count)} of the {kept.plan.world} world: {content['state']}")
    else:
        _print_nodes(content)
    return 0


def _print_nodes(content: dict[str, Any]) -> None:
    from orchestrator.command.printing import show

    rows = []
    for node in content["nodes"]:
        broker = "not running" if node["service_pid"] is None else f"pid {node['service_pid']}"
        rows.append(
            {
                "node": node["name"],
                "address": f"{node['address']}:{node['port']}",
                "state": node["state"],
                "boot id": node["boot_id"] or "-",
                "broker": broker if node["state"] == "up" else "-",
            }
        )
    show(f"{content['world']} world, since {content['since']}", rows, ("node", "address", "state", "boot id", "broker"))
    for node in content["nodes"]:
        if "reason" in node:
            print(node["reason"])


def _ssh(kept: Kept, node: str, argv: list[str]) -> int:
    """Become the shell, or the command: its terminal, signals and exit code are ours."""
    command = client.shell(kept, node, argv[1:] if argv[:1] == ["--"] else argv)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        raise UsageError(f"{command[0]} cannot be run: {error.strerror}; install it") from error


def _brokers(kept: Kept, action: str) -> int:
    with Progress() as progress:
        result = client.ask(kept, {"order": action}, lambda text: progress.say(text, dim=True))
    names = result["nodes"]
    if action == "stop":
        print(f"the brokers on {', '.join(names)} are stopped; what they stored stays until {command('nodes', 'down')}")
        return 0
    print(f"bootstrap servers: {result['bootstrap']}")
    if kept.plan.sandboxed:
        print(
            f"these addresses exist only in the nodes' own network; clients run there:\n"
            f"  {command('nodes', 'ssh', names[0])} -- COMMAND"
        )
    return 0


def _down(registry: Registry, kept: Kept | None) -> int:
    if kept is None:
        print("no nodes are up")
        return 0
    with Progress() as progress:
        try:
            client.take_down(registry, kept, lambda text: progress.say(text, dim=True))
        except KeyboardInterrupt:
            progress.say("not waiting any longer; the nodes are being taken down nevertheless")
            raise
    print("the nodes are down; nothing is left of them")
    return 0


def _none_up() -> str:
    return f"no nodes are up; bring some up: {command('nodes', 'up')}"


def _counted(number: int) -> str:
    return f"{number} node{'' if number == 1 else 's'}"

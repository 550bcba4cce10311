"""Options that several commands share."""

import argparse
from pathlib import Path

from orchestrator.errors import UsageError
from orchestrator.world_kinds import NAMES


def positive(text: str) -> int:
    """The `type` of an option whose value is a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


def store_option(command: argparse.ArgumentParser) -> None:
    """`--store`: the directory of all runs."""
    command.add_argument(
        "--store", type=Path, metavar="DIR", help="the directory of runs (default: store/ of the current directory)"
    )


def engine_option(command: argparse.ArgumentParser) -> None:
    """`--engine`: what runs the analysis; without it the command chooses (`running.engine.choose_engine`)."""
    command.add_argument(
        "--engine",
        choices=("spark", "in-process"),
        help="what runs the analysis; both give the same verdict, Spark also reads histories larger than the memory "
        "(default: spark if the extra [spark] is installed, else in-process; in-process for simulated runs)",
    )


def json_option(command: argparse.ArgumentParser | argparse._MutuallyExclusiveGroup) -> None:
    """`--json`: JSON in place of a table."""
    command.add_argument("--json", action="store_true", help="print JSON instead of a table")


def world_option(command: argparse.ArgumentParser) -> None:
    """`--world` and `--inventory`: another world than the campaign names."""
    command.add_argument("--world", choices=NAMES, help="the world in place of the campaign's")
    command.add_argument(
        "--inventory",
        type=Path,
        metavar="FILE",
        help="the Ansible inventory with the nodes' hosts (inventory world)",
    )


def inventory_for(world: str, inventory: Path | None, remedy: str = "give --inventory FILE") -> Path | None:
    """The inventory that was given, absolute; None in the other worlds, which have none. `remedy`: for an inventory
    world without one. Raises `UsageError`."""
    if world != "inventory":
        if inventory is not None:
            raise UsageError(f"--inventory {inventory}: the {world} world has no inventory; leave out one of the two")
        return None
    if inventory is None:
        raise UsageError(f"the inventory world needs the hosts' names: {remedy}")
    if not inventory.exists():
        raise UsageError(f"{inventory} does not exist; correct the path of the inventory")
    return inventory.resolve()

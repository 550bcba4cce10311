"""Options that several commands share."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final, TypeAlias

from orchestrator.campaign.model import WORLDS

Commands: TypeAlias = "argparse._SubParsersAction[Any]"

EXIT_CODES: Final = "exit codes: 0 pass, 1 fail, 2 unknown, 64 wrong usage, 70 internal error, 130 interrupted"


def add(commands: Commands, name: str, summary: str, description: str) -> argparse.ArgumentParser:
    """Add a command. `summary` is its line in the list of commands; `description` is the text above its options."""
    added: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=description,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return added


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
    """`--engine`: what runs the analysis; None lets the command choose (`campaign.engine.choose_engine`)."""
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
    command.add_argument("--world", choices=WORLDS, help="the world in place of the campaign's")
    command.add_argument(
        "--inventory",
        type=Path,
        metavar="FILE",
        help="the Ansible inventory with the nodes' hosts (inventory world)",
    )

"""What several commands' lines have in common."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final, TypeAlias

from orchestrator.campaign.model import WORLDS

Commands: TypeAlias = "argparse._SubParsersAction[Any]"

EXIT_CODES: Final = "exit codes: 0 pass, 1 fail, 2 unknown, 64 wrong usage, 70 internal error, 130 interrupted"


def add(commands: Commands, name: str, summary: str, description: str) -> argparse.ArgumentParser:
    """A command with this name; `description` is the text above its options."""
    added: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=description,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return added


def positive(text: str) -> int:
    """A whole number from 1, as the type of an option."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


def store_option(command: argparse.ArgumentParser) -> None:
    """Where runs are kept."""
    command.add_argument(
        "--store", type=Path, metavar="DIR", help="where runs are kept (default: store/ of the current directory)"
    )


def engine_option(command: argparse.ArgumentParser) -> None:
    """What the analysis runs on; None where the command is to choose (`campaign.judging.choose_engine`)."""
    command.add_argument(
        "--engine",
        choices=("spark", "in-process"),
        help="what the analysis runs on; the verdict is the same, Spark takes histories that outgrow a machine "
        "(default: spark where the extra [spark] is installed, else in-process; in-process for simulated runs)",
    )


def json_option(command: argparse.ArgumentParser | argparse._MutuallyExclusiveGroup) -> None:
    """JSON instead of a table."""
    command.add_argument("--json", action="store_true", help="print JSON on standard output instead of a table")


def world_option(command: argparse.ArgumentParser) -> None:
    """Another world than the campaign's."""
    command.add_argument("--world", choices=WORLDS, help="instead of the campaign's world")
    command.add_argument(
        "--inventory",
        type=Path,
        metavar="FILE",
        help="the Ansible inventory whose hosts are the nodes (inventory world)",
    )

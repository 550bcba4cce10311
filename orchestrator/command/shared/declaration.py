"""The declaration of a command. Each command is one file in `orchestrator/command/`, found by `command.line`."""

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

Actions: TypeAlias = "argparse._SubParsersAction[Any]"

EXIT_CODES: Final = "exit codes: 0 pass, 1 fail, 2 unknown, 64 wrong usage, 70 internal error, 130 interrupted"
"""The epilog of every help text."""
_NAME: Final = re.compile(r"[a-z][a-z0-9-]*")


class IncompleteCommandError(Exception):
    """A file that does not define a complete command; the message has the file and what is missing or wrong."""


@dataclass(frozen=True)
class Command:
    """A command. A file defines it as `COMMAND`, under the name of the file.

    `place`: its position in `brownout --help`; positions leave gaps for later commands. `summary`: its line there.
    `description`: the text above its options. `options`: adds its options to its parser. `main`: runs it and returns
    the exit code; its argument also has `command_line`, all arguments of this call of `brownout`.
    """

    name: str
    place: int
    summary: str
    description: str
    options: Callable[[argparse.ArgumentParser], None]
    main: Callable[[argparse.Namespace], int]

    def __post_init__(self) -> None:
        """Raises `IncompleteCommandError` for an incomplete command."""
        for is_wrong, fault in (
            (_NAME.fullmatch(self.name) is None, "its name must consist of small letters, digits and '-'"),
            (self.place < 1, "its place is not a positive number"),
            (not self.summary or "\n" in self.summary, "its summary is not one line"),
            (not self.description.strip(), "it has no description"),
            (not callable(self.options), "its options are not a function"),
            (not callable(self.main), "its main is not a function"),
        ):
            if is_wrong:
                raise IncompleteCommandError(f"command {self.name!r}: {fault}")


def add(commands: Actions, name: str, summary: str, description: str) -> argparse.ArgumentParser:
    """Add a command, or an action of a command. `summary`: its line in the list; `description`: the text above its
    options."""
    added: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=description.strip(),
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return added


def actions_of(command: argparse.ArgumentParser) -> Actions:
    """The actions of a command, such as `up` of `brownout nodes up`: required, in `options.action`."""
    return command.add_subparsers(dest="action", metavar="ACTION", required=True)

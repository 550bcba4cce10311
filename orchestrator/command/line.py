"""The command line: finds the commands, builds the parser and runs the command that was given.

Theory of operation. Every module beside this one defines a command. Their names are known from the names of the files,
so a call that starts with a command imports the file of that command only. Other calls, such as `brownout --help`,
import all files: importing one must not load the libraries of the analysis or the simulator.
"""

import argparse
import difflib
import errno
import importlib
import os
import pkgutil
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any

import orchestrator.command
from installation.sanitize import visible, visible_line
from orchestrator.cleanup import described
from orchestrator.command.shared.declaration import EXIT_CODES, Command, IncompleteCommandError, add
from orchestrator.errors import EXIT_INTERNAL, EXIT_INTERRUPTED, EXIT_USAGE, UsageError
from orchestrator.running.interrupts import Interrupts
from systems.errors import ClusterError, InputError
from systems.toml_tables import suggestion

_DESCRIPTION = """\
Runs test campaigns against a replicated system and proves from the recorded evidence that committed data survived.

  brownout run                                  the demo campaign
  brownout run campaigns/kip101-scenario1.toml  another campaign
  brownout init                                 start to test your own system
  brownout analyze latest                       analyze a stored run again
  brownout gate store/demo                      decide over all planned runs of a campaign
"""


class _Parser(argparse.ArgumentParser):
    """argparse with exit code 64 (EX_USAGE of `sysexits.h`) for wrong usage. The subcommand that got an unknown option
    reports it, with its own usage and the nearest option that it has."""

    _given: Sequence[str] = ()

    def error(self, message: str) -> None:  # type: ignore[override]
        unknown = [word for word in self._given if not self._is_known(word)]
        if unknown and message.startswith("the following arguments are required"):
            message = f"unrecognized arguments: {unknown[0]}{self._nearest(unknown)}"
        raise UsageError(f"{message}\n{self.format_usage().rstrip()}\nfor more: {self.prog} --help")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._given = sys.argv[1:] if args is None else list(args)
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._nearest(unknown)}")
        return found, unknown

    def _is_known(self, word: str) -> bool:
        """Whether `word` is not an option, or is an option of this parser or an abbreviation of one."""
        names = [name for action in self._actions for name in action.option_strings]
        return not word.startswith("--") or any(name.startswith(word.partition("=")[0]) for name in names)

    def _nearest(self, unknown: Sequence[str]) -> str:
        options = [name for action in self._actions for name in action.option_strings]
        misspelt = next((word.partition("=")[0] for word in unknown if word.startswith("-")), "")
        close = difflib.get_close_matches(misspelt, options, 1)
        return f"; did you mean {close[0]}?" if close else ""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(action, f"{value!r} is not known; {suggestion(value, list(action.choices))}")


class _Version(argparse.Action):
    """Prints version and commit. Runs git only when `--version` is given, since that takes tens of milliseconds."""

    def __init__(self, option_strings: list[str], dest: str, help: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from orchestrator.running.versions import commit, release

        print(f"{parser.prog} {release()} (commit {commit()})")
        parser.exit()


def parser(argv: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The parser of a command line: with the command that it starts with, or else with all commands. Raises
    `IncompleteCommandError`."""
    root = _Parser(
        prog="brownout",
        description=_DESCRIPTION,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_argument("--version", action=_Version, help="print version and commit")
    commands = root.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in [] if argv[:1] == ["--version"] else discover(orchestrator.command, *argv[:1]):
        added = add(commands, command.name, command.summary, command.description)
        command.options(added)
        added.set_defaults(main=command.main)
    return root


def discover(package: ModuleType, name: str = "") -> list[Command]:
    """The commands of a package, in the order of their places. Only the named command if there is one of that name: a
    run's first operation must not wait until the modules of other commands are imported.

    Raises `IncompleteCommandError`."""
    files = {file.replace("_", "-"): file for file in _command_files(package)}
    chosen = {name: files[name]} if name in files else files
    commands = {each: _command_in(importlib.import_module(f"{package.__name__}.{chosen[each]}")) for each in chosen}
    for each, command in commands.items():
        if command.name != each:
            raise IncompleteCommandError(f"{chosen[each]}.py defines {command.name!r}; give both the same name")
    places = Counter(command.place for command in commands.values())
    twice = sorted(command.name for command in commands.values() if places[command.place] > 1)
    if twice:
        raise IncompleteCommandError(f"the commands {', '.join(twice)} have the same place; give each its own")
    return sorted(commands.values(), key=lambda command: command.place)


def _command_files(package: ModuleType) -> list[str]:
    return [info.name for info in pkgutil.iter_modules(package.__path__) if not info.ispkg and info.name != "line"]


def _command_in(module: ModuleType) -> Command:
    command = getattr(module, "COMMAND", None)
    if not isinstance(command, Command):
        raise IncompleteCommandError(f"{module.__file__}: defines no COMMAND = Command(...)")
    return command


def main(argv: list[str]) -> int:
    """Run one command and return its exit code. Does not raise for mistakes of the user or faults of the machine."""
    os.environ.setdefault("BROWNOUT_STARTED_NS", str(time.monotonic_ns()))
    try:
        with _interruptible():
            options = _parsed(argv)
            code: int = options.main(options)
            sys.stdout.flush()  # a full disk is detected here and not when Python ends
            return code
    except InputError as error:
        print(visible(f"brownout: {described(error)}"), file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        print("brownout: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except ClusterError as error:
        print(visible(f"brownout: {described(error)}"), file=sys.stderr)
        return EXIT_INTERNAL
    except Exception as error:
        if message := _unusable_path(error):
            print(visible(f"brownout: {message}"), file=sys.stderr)
            return EXIT_USAGE
        _report_unexpected(error)
        return EXIT_INTERNAL


def _interruptible() -> AbstractContextManager[None]:
    """Makes SIGTERM and SIGHUP interrupts, as Ctrl-C is one, so that each command cleans up. A command that stops in an
    order of its own installs other handlers meanwhile. Only the main thread can."""
    is_main = threading.current_thread() is threading.main_thread()
    return Interrupts(lambda: None, lambda: None).installed() if is_main else nullcontext()


def _parsed(argv: list[str]) -> argparse.Namespace:
    """The command line. Raises SystemExit after a text that the parser printed, such as the help, and OSError if that
    text cannot be written."""
    try:
        return parser(argv).parse_args(argv, argparse.Namespace(command_line=argv))
    except SystemExit:
        sys.stdout.flush()
        raise


def _unusable_path(error: Exception) -> str:
    """The message for a path that is unusable on any machine: its name is too long, its symbolic links form a loop
    (Python 3.11 raises RuntimeError for that), or it is relative to a directory that was removed. Empty for every other
    error."""
    if isinstance(error, OSError) and error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
        return f"{error.filename}: {error.strerror}; name another path"
    if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop"):
        return f"{error}; name another path"
    if isinstance(error, FileNotFoundError) and not _is_somewhere():
        return "the current directory was removed; change to another one and repeat the command"
    return ""


def _is_somewhere() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def _report_unexpected(error: Exception) -> None:
    """Print an error that no code handled, with its traceback. A full disk is one sentence without traceback."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        place = visible_line(f" ({error.filename})") if error.filename else ""
        print(
            f"brownout: the disk is full{place}; recorded files are kept; free some space and continue", file=sys.stderr
        )
        return
    print(visible("".join(traceback.format_exception(error))), file=sys.stderr, end="")
    print("brownout: this is a bug of Brownout; the traceback above shows where", file=sys.stderr)

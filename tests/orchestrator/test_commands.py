"""Each command is one file in `orchestrator/command/`, found by the command line."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import orchestrator.command
from orchestrator.command.line import discover, main
from orchestrator.command.shared.declaration import IncompleteCommandError
from orchestrator.errors import EXIT_INTERNAL

COMPLETE = """
from orchestrator.command.shared.declaration import Command

def _options(command):
    command.add_argument("--loud", action="store_true")

def main(options):
    print("loud" if options.loud else "quiet", *options.command_line)
    return 0

COMMAND = Command(
    name="hello-there", place=1, summary="say hello", description="Says hello.", options=_options, main=main
)
"""


def package(directory: Path, **files: str) -> ModuleType:
    """A package of commands; each file by its name."""
    for name, text in files.items():
        (directory / f"{name}.py").write_text(text)
    found = ModuleType(f"commands_in_{directory.name}")
    found.__path__ = [str(directory)]
    sys.modules[found.__name__] = found
    return found


def add_command(directory: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Add a file to the commands of the program."""
    (directory / "hello_there.py").write_text(text)
    monkeypatch.setattr(orchestrator.command, "__path__", [*orchestrator.command.__path__, str(directory)])
    monkeypatch.setitem(sys.modules, "orchestrator.command.hello_there", None)  # restored at the end of the test
    del sys.modules["orchestrator.command.hello_there"]


def test_the_help_lists_the_commands_by_their_places(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = re.findall(r"^ {4}([a-z-]+)", capsys.readouterr().out, re.MULTILINE)
    assert listed == [command.name for command in discover(orchestrator.command)]
    assert listed[:3] == ["run", "init", "analyze"]
    assert listed[-2:] == ["quorum", "log"]


def test_a_new_file_is_a_new_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add_command(tmp_path, COMPLETE, monkeypatch)
    assert main(["hello-there", "--loud"]) == 0
    assert capsys.readouterr().out == "loud hello-there --loud\n"
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "say hello" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("COMMAND = Command(", "command = Command(", "hello_there.py: defines no COMMAND = Command(...)"),
        ('name="hello-there"', 'name="hello"', "hello_there.py defines 'hello'; give both the same name"),
        ('name="hello-there"', 'name="Hello"', "'Hello': its name must consist of small letters"),
        ("place=1", "place=0", "'hello-there': its place is not a positive number"),
        ('"say hello"', '""', "'hello-there': its summary is not one line"),
        ('"Says hello."', '"\\n"', "'hello-there': it has no description"),
        ("options=_options, ", "", "missing 1 required positional argument: 'options'"),
        ("options=_options", "options=None", "'hello-there': its options are not a function"),
        ("main=main", "main=0", "'hello-there': its main is not a function"),
    ],
)
def test_a_file_without_a_complete_command_stops_the_program(
    old: str,
    new: str,
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert old in COMPLETE
    add_command(tmp_path, COMPLETE.replace(old, new), monkeypatch)
    for arguments in (["--help"], ["hello-there"], ["runn"], []):
        assert main(arguments) == EXIT_INTERNAL
        assert complaint in capsys.readouterr().err


def test_two_commands_have_different_places(tmp_path: Path) -> None:
    other = COMPLETE.replace("hello-there", "other")
    with pytest.raises(IncompleteCommandError, match="hello-there, other have the same place"):
        discover(package(tmp_path, hello_there=COMPLETE, other=other))

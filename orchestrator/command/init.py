"""`brownout init`: writes the files from which a user starts to test a system."""

import argparse
import ast
import builtins
import re
import shlex
import sys
from pathlib import Path
from typing import Final

from installation.commands import command, joined
from installation.files import PROJECT_ROOT, is_installed
from nemeses.registry import KINDS
from orchestrator.campaign.lookup import shortest
from orchestrator.cleanup import clean_up
from orchestrator.command.shared.declaration import Command
from orchestrator.errors import EXIT_PASS, UsageError
from orchestrator.printing import say

SKELETON = Path(__file__).resolve().parent / "skeleton"
PARTS = SKELETON / "parts"
WORKLOADS = ("register", "append-log")
DEFAULT_DIRECTORY = Path("brownout-tests")
_CLIENT = "MyClient"
_CLASS: Final = re.compile(r"[A-Z][A-Za-z0-9]*", re.ASCII)
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])[0-9]*|[A-Z][a-z0-9]*")


def main(options: argparse.Namespace) -> int:
    """Write the files into the directory, created if missing, and print the next steps. Raises `UsageError`."""
    directory: Path = options.directory
    for part, name in (("workload", options.workload), ("checker", options.checker), ("fault", options.fault)):
        if name is not None and name not in WORKLOADS:
            return _write_part(directory, part, name)
    texts = files(directory, options.workload or WORKLOADS[0])
    write(directory, texts)
    campaign = shortest(directory.resolve() / "chaos.toml")
    say(f"written to {directory}: {', '.join(texts)}")
    say(f"next: {directory / 'README.md'} lists what to change; then")
    say(f"  {command('run', str(campaign), '--dry-run')}")
    say(f"  {command('run', str(campaign))}")
    return EXIT_PASS


def _write_part(directory: Path, part: str, name: str) -> int:
    """Write a class of the user's own, and its test, into the directory."""
    texts = part_files(part, name)
    write(directory, texts)
    module, *campaign, test = texts
    say(f"written to {directory}: {', '.join(texts)}")
    if campaign:
        say(f"next: name the directory of your system in {directory / campaign[0]}; then")
        say(f"  {command('run', str(shortest(directory.resolve() / campaign[0])), '--dry-run')}")
    else:
        say(f"next: the head of {directory / module} has its lines of a campaign")
    say(f"`{command('init', 'DIR')}` writes a system; `{command('docs', f'own-{part}s')}` has a complete example")
    say(f"test it with: {_pytest(directory / test)}")
    return EXIT_PASS


def _pytest(test: Path) -> str:
    """The command for a test of a user's class. In a checkout `brownout_api` is not an installed package."""
    place = "" if is_installed() else f"PYTHONPATH={joined([str(PROJECT_ROOT)])} "
    return place + joined([sys.executable, "-m", "pytest", str(test)])


def part_files(part: str, name: str) -> dict[str, str]:
    """The texts by file name, the module first. `part`: a directory of `PARTS`; `name`: of the class. Raises
    `UsageError`."""
    if _CLASS.fullmatch(name) is None:
        kinds = f"one of {', '.join(WORKLOADS)}, or " if part == "workload" else ""
        raise UsageError(f"--{part} {name}: {kinds}the name of your class is needed, such as My{part.title()}")
    module = "_".join(_WORDS.findall(name)).lower()
    if module in sys.stdlib_module_names or (PROJECT_ROOT / module).is_dir():
        raise UsageError(f"--{part} {name}: {module}.py is a module of Python's or Brownout's; choose another name")
    if name in _names_of(part):
        raise UsageError(f"--{part} {name}: the written file needs another {name}; choose another name")
    if part == "fault" and (kind := module.replace("_", "-")) in KINDS:
        raise UsageError(f"--fault {name}: Brownout has a kind of fault {kind!r}; choose another name")
    texts = {}
    for path in sorted((PARTS / part).glob("*my_*"), key=lambda path: path.name):
        text = path.read_text(encoding="utf-8").replace(f"my_{part}", module).replace(f"My{part.title()}", name)
        text = text.replace(f"my-{part}", module.replace("_", "-"))
        texts[path.name.removesuffix(".txt").replace(f"my_{part}", module)] = text
    return texts


def _names_of(part: str) -> set[str]:
    """The names that the class of a part cannot have: those that its files import, and those of Python."""
    names = set(dir(builtins))
    for path in (PARTS / part).glob("*my_*.py*"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom | ast.Import):
                names |= {alias.asname or alias.name for alias in node.names}
    return {name for name in names if "My" not in name}


def files(directory: Path, workload: str) -> dict[str, str]:
    """The texts by file name."""
    name = directory.name or DEFAULT_DIRECTORY.name
    campaign = shlex.quote(f"{name}/chaos.toml")  # one word of a shell command, whatever characters it contains
    places = {
        "@NAME@": _campaign_name(directory),
        "@WORKLOAD@": workload,
        "@CLIENT@": _CLIENT,
        "@DIR@": name,
        "@CAMPAIGN@": campaign,
    }
    texts = {}
    for path in sorted([*SKELETON.glob("[!.]*.*"), *(SKELETON / workload).glob("[!.]*.*")], key=lambda path: path.name):
        text = path.read_text(encoding="utf-8")
        for mark, value in places.items():
            text = text.replace(mark, value)
        texts[path.name] = text
    return texts


def _campaign_name(directory: Path) -> str:
    """A distinct name per directory: campaigns of the same name in one store would share runs and known failures."""
    name = re.sub(r"[^a-z0-9._-]+", "-", directory.resolve().name.lower()).strip("-._")[:64]
    return DEFAULT_DIRECTORY.name if name in ("", "latest") else name


def write(directory: Path, texts: dict[str, str]) -> None:
    """Write all files or none; present files are not overwritten. Raises `UsageError`."""
    present = [name for name in texts if (directory / name).is_symlink() or (directory / name).exists()]
    if present:
        raise UsageError(
            f"{directory}: {', '.join(present)} {'exists' if len(present) == 1 else 'exist'} already, and nothing was "
            "written; "
            "name another directory: brownout init DIR"
        )
    written: list[Path] = []
    try:
        for parent in reversed([directory, *directory.parents]):
            if not parent.exists():
                parent.mkdir()
                written.append(parent)
        for name, text in texts.items():
            with open(directory / name, "x", encoding="utf-8") as file:
                written.append(directory / name)
                file.write(text)
    except BaseException as error:
        clean_up(*(path.rmdir if path.is_dir() else path.unlink for path in reversed(written)), cause=error)
        if isinstance(error, OSError):
            raise UsageError(f"{error.filename or directory}: cannot be written: {error.strerror}") from error
        if isinstance(error, UnicodeEncodeError):
            raise UsageError(f"{directory}: its name is not valid UTF-8; name another directory") from error
        raise


def _options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "directory",
        nargs="?",
        type=Path,
        default=DEFAULT_DIRECTORY,
        metavar="DIR",
        help="the directory to write to; created if missing (default: brownout-tests)",
    )
    content = command.add_mutually_exclusive_group()
    content.add_argument(
        "--workload",
        metavar="NAME",
        help="register (default): the client operates on keys with read, write and compare-and-set; append-log: on a "
        "log with append and read; another name, such as Bank: only a workload of your own with this class, its "
        "client, its checker, a campaign and a test",
    )
    content.add_argument(
        "--checker", metavar="NAME", help="only a checker of your own with this class, such as Prompt, and a test"
    )
    content.add_argument(
        "--fault", metavar="NAME", help="only a kind of fault of your own with this class, such as FullDisk, and a test"
    )


COMMAND: Final = Command(
    name="init",
    place=20,
    summary="start to test your own system",
    description="""\
Writes a system description, a client, a campaign and a CI recipe, with comments, for you to edit.
Existing files are never overwritten. The tutorial is docs/your-system.md.

  brownout init                          into ./brownout-tests
  brownout init tests/chaos --workload append-log
  brownout init tests/chaos --workload Bank     bank.py, bank.toml and test_bank.py (docs/own-workloads.md)
  brownout init tests/chaos --checker Prompt    prompt.py and test_prompt.py (docs/own-checkers.md)
  brownout init tests/chaos --fault FullDisk    full_disk.py and test_full_disk.py (docs/own-faults.md)
""",
    options=_options,
    main=main,
)

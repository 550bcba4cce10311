"""`brownout docs`: lists, prints and searches the documentation of this installation."""

import argparse
import pydoc
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from installation.commands import command
from installation.files import PROJECT_ROOT
from orchestrator.command.shared.declaration import Command
from orchestrator.errors import EXIT_PASS, UsageError
from orchestrator.printing import say, show
from systems.toml_tables import suggestion

_PLACE = PROJECT_ROOT / "docs"
_MOST = 40


def main(options: argparse.Namespace) -> int:
    """List the pages, print the named page, or list the lines that contain all words. Raises `UsageError` if no line
    contains them."""
    words: list[str] = options.words
    pages = {path.relative_to(_PLACE).with_suffix("").as_posix(): path for path in sorted(_PLACE.rglob("[!.]*.md"))}
    if not words:
        show("docs", [{"page": name, "about": _title(path)} for name, path in pages.items()], ("page", "about"))
        say(f"print a page: {command('docs', 'your-system')}; search: {command('docs', 'power', 'cut')}")
        return EXIT_PASS
    name = words[0].removesuffix(".md").removeprefix("docs/")
    if len(words) == 1 and name in pages:
        _print(pages[name].read_text(encoding="utf-8"))
        return EXIT_PASS
    results = [line for name, path in pages.items() for line in _found(name, path, words)]
    if not results:
        raise UsageError(f"no page contains {' '.join(words)!r}; {suggestion(name, list(pages))}")
    say("\n".join(results[:_MOST]))
    if len(results) > _MOST:
        say(f"and {len(results) - _MOST} more; give more words")
    return EXIT_PASS


def _title(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")


def _found(name: str, path: Path, words: Sequence[str]) -> list[str]:
    """The lines of a page that contain all words, ignoring case, as `page:number: line`."""
    folded = [word.casefold() for word in words]
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    return [f"{name}:{number}: {line}" for number, line in lines if all(word in line.casefold() for word in folded)]


def _print(text: str) -> None:
    """Print; on a terminal, in the user's pager."""
    if sys.stdout.isatty():
        pydoc.pager(text)
    else:
        say(text.rstrip("\n"))


def _options(command: argparse.ArgumentParser) -> None:
    command.add_argument("words", nargs="*", metavar="PAGE|WORD", help="the name of a page, or words to search for")


COMMAND: Final = Command(
    name="docs",
    place=130,
    summary="read the documentation",
    description="""\
Prints the documentation of this installation; on a terminal, in the pager.

  brownout docs                  the list of pages
  brownout docs your-system      one page
  brownout docs power cut        the lines with these words, and their pages
""",
    options=_options,
    main=main,
)

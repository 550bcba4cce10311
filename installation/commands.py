"""The Brownout command line for messages: every command that a user should copy is made by this module."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from installation.files import PROJECT_ROOT, is_installed

_NAME = "brownout"
_UNSAFE = re.compile(r"[^A-Za-z0-9 _@%+=:,./-]")


def command(*arguments: str) -> str:
    """A command that works when pasted into a shell in the current directory: on one line, arguments quoted."""
    return joined([*_shortest_start(), *arguments])


def command_anywhere(*arguments: str) -> str:
    """The same with an absolute path: works in any directory and with any PATH, such as behind `sudo`."""
    return joined([*_absolute_start(), *arguments])


def joined(arguments: Iterable[str]) -> str:
    """Arguments quoted for a shell, on one line whatever they contain."""
    return " ".join(map(_quoted, arguments))


def _quoted(argument: str) -> str:
    if argument.isprintable():
        return shlex.quote(argument)
    # Bytes in a form that bash, zsh and recent POSIX shells support, so that unprintable characters can be typed.
    text = "".join(_UNSAFE.sub(_octal, chr(byte)) for byte in os.fsencode(argument))
    return f"$'{text}'"


def _octal(match: re.Match[str]) -> str:
    return f"\\{ord(match[0]):03o}"


def _shortest_start() -> list[str]:
    if not is_installed():
        return [f"./{_NAME}"] if Path.cwd() == PROJECT_ROOT else _absolute_start()
    found = shutil.which(_NAME)
    # pipx and uv link to the environment's own script; the script of another installation must not be named.
    ours = found is not None and Path(found).resolve() == _script().resolve()
    return [_NAME] if ours else _absolute_start()


def _absolute_start() -> list[str]:
    if not is_installed():
        return [str(PROJECT_ROOT / _NAME)]
    return [str(_script())] if _script().exists() else [sys.executable, "-m", _NAME]


def _script() -> Path:
    """The entry point that an installer put beside this interpreter."""
    return Path(sys.executable).with_name(_NAME)

"""Errors of Spark in one sentence each, from messages of many lines."""

from __future__ import annotations

import re
import sys
from typing import Final

from installation.files import PROJECT_ROOT
from installation.sanitize import brief


class SparkUnavailableError(RuntimeError):
    """Spark cannot start here; the message says what is missing and how to get it."""


def is_local(master: str) -> bool:
    """Whether all processes of this master run on this machine, as children of the driver."""
    return master.startswith("local")


REMOTE: Final = "sc://"


def is_remote(master: str) -> bool:
    """Whether the master is a Spark Connect server."""
    return master.startswith(REMOTE)


def cause_of(error: Exception, master: str = "local") -> str:
    """The cause of a failed task, from Spark's message of many lines, and the remedy where a worker of a cluster lacks
    the project."""
    text = str(error) or type(error).__name__
    match = next((match for cause in _CAUSES if (match := cause.search(text))), None)
    cause = brief(match[0] if match else text.split("\n")[0], 200)
    if is_local(master) or not _LACKS_PROJECT.search(cause):
        return cause
    return f"{cause}; {SERVER_NEEDS if is_remote(master) else NEEDS}"


NEEDS: Final = f"each worker needs the project at {PROJECT_ROOT} and its Python at {sys.executable}"
SERVER_NEEDS: Final = "the Python of the server's workers needs the packages of this project (pyproject.toml)"
_LACKS_PROJECT: Final = re.compile("^(ModuleNotFoundError|ImportError)|Cannot run program")
_CAUSES: Final = (
    re.compile("Python worker exited unexpectedly"),
    re.compile(r"Cannot run program [^\n]+"),
    re.compile(r"(?<=\n)[\w.]+: [^\n]+(?=(?:\n SQLSTATE[^\n]*)?\n+\tat )"),  # the last line of Python's traceback
    re.compile(
        r"(?<=\n)[\w.]+: [^\n]+(?=(?:\n SQLSTATE[^\n]*)?\s*\Z)"
    ),  # the same, where Spark has removed Java's frames
    re.compile(r"(?<=Exception: )[^\n]+"),
)

"""Errors of Spark in one sentence each, from messages of many lines."""

import re
import sys
from typing import Final

from installation.files import PROJECT_ROOT
from installation.sanitize import brief

REMOTE: Final = "sc://"
"""The scheme of a Spark Connect server."""


class SparkUnavailableError(RuntimeError):
    """Spark cannot start here; the message says what is missing and how to get it."""


def is_local(master: str) -> bool:
    """Whether all processes of this master run on this machine, as children of the driver."""
    return master.startswith("local")


def is_remote(master: str) -> bool:
    """Whether the master is a Spark Connect server."""
    return master.startswith(REMOTE)


def cause_of(error: Exception, master: str = "local") -> str:
    """The cause of a failed task, from Spark's message of many lines, and the remedy where a worker of a cluster lacks
    the project."""
    text = str(error).strip() or type(error).__name__
    if not is_remote(master) and _JAVA_ENDED.search(text):
        return "Spark's Java virtual machine has ended; this machine may lack memory"
    match = next((match for cause in _CAUSES if (match := cause.search(text))), None)
    cause = brief(match[0] if match else text.split("\n")[0], 200)
    if is_local(master) or not _LACKS_PROJECT.search(cause):
        return cause
    return f"{cause}; {needs_of_workers(master)}"


def needs_of_workers(master: str) -> str:
    """What the workers of a cluster or a server must have."""
    if is_remote(master):
        version = ".".join(map(str, sys.version_info[:2]))
        return f"the workers of the server need Python {version} with the packages of this project (pyproject.toml)"
    return f"each worker needs the project at {PROJECT_ROOT} and its Python at {sys.executable}"


_LACKS_PROJECT: Final = re.compile(
    r"^(ModuleNotFoundError|ImportError)|Cannot run program|_VERSION_MISMATCH|PACKAGE_NOT_INSTALLED"
)
_CAUSES: Final = (
    re.compile(r'(?<=details = ")[^\n"]+'),  # of gRPC, from a server that does not answer
    re.compile(r"\[PYTHON_VERSION_MISMATCH\] [^\n,]+"),
    re.compile("Python worker exited unexpectedly"),
    re.compile(r"Cannot run program [^\n]+"),
    re.compile(r"(?<=\n)[\w.]+(?:: [^\n]+)?(?=(?:\n SQLSTATE[^\n]*)?\n+\tat )"),  # the last line of Python's traceback
    re.compile(r"(?<=\n)[\w.]+(?:: [^\n]+)?(?=(?:\n SQLSTATE[^\n]*)?\s*\Z)"),  # the same without Java's frames
    re.compile(r"(?<=Exception: )[^\n]+"),
)

_JAVA_ENDED: Final = re.compile(
    r"\A\[Errno \d+\] Connection refused\Z|does not exist in the JVM\Z|Answer from Java side is empty|"
    r"\A[^\n]*\n: [\w.]+: Exception thrown in awaitResult: *\n(?!.*Caused by)",
    re.DOTALL,
)
"""PySpark's errors of a driver's virtual machine that is gone, or that ends."""

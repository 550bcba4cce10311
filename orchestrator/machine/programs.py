"""Starts a module of this project as a small, fast program."""

import os
import sys

from installation.files import PROJECT_ROOT

# Directories of administrators' programs, which are not in every PATH.
_ADMINISTRATION = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def program(module: str, *arguments: str) -> list[str]:
    """The command that calls `module.main([arguments])`, with only the standard library and this project.

    Without site packages (`-S`) and environment settings (`-E`), Python starts in about 10 ms. It does not search the
    current directory (`-P`).
    """
    start = f"import sys; sys.path.insert(0, {str(PROJECT_ROOT)!r}); from {module} import main; main(sys.argv[1:])"
    return [sys.executable, "-S", "-E", "-P", "-c", start, *arguments]


def search_path() -> str:
    """PATH, extended by the directories of administrators' programs."""
    directories = os.environ.get("PATH", "/usr/bin:/bin").split(":")
    return ":".join(dict.fromkeys([*directories, *_ADMINISTRATION]))


def find_program(name: str) -> str | None:
    """The absolute path of a program; None if it is not installed."""
    for directory in search_path().split(":"):
        path = os.path.join(directory, name)
        if os.path.isabs(path) and os.access(path, os.X_OK):
            return path
    return None

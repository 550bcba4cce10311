"""A second name for a directory, in which no program finds anything to parse.

Users choose where a store lies. Programs that are given such a path split it: Spark at commas, a JVM's class path at
colons, Java properties at backslashes and lines, a shell at all of these; not every one of them has an escape. On Linux
an open directory has a name without any such character, `/proc/<process>/fd/<descriptor>`. It leads to the directory as
long as this process has it open, for every process of the same user, and leaves nothing behind.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_PLAIN = re.compile(r"[A-Za-z0-9_/.@+~-]+")


class PlainPath:
    """A directory under a plain name: `path`. It is the directory's own where that is plain, or where this machine has
    no other. A directory that gets another name is made if it is not there."""

    def __init__(self, directory: Path) -> None:
        """Raises `OSError` when the directory cannot be made or opened."""
        self.path = str(directory.absolute())
        self._descriptor: int | None = None
        if not _PLAIN.fullmatch(self.path):
            directory.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            name = f"/proc/{os.getpid()}/fd/{self._descriptor}"
            self.path = name if os.path.isdir(name) else self.path

    def close(self) -> None:
        """Give the second name up. May be called twice."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

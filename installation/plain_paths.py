"""A second name for a directory, without any character that a program would parse.

Users choose the store's path. Programs that get such a path split it: Spark at commas, a JVM's class path at colons,
Java properties at backslashes and line ends, a shell at all of these; not every program has an escape. On Linux an open
directory has a name without such characters, `/proc/<process>/fd/<descriptor>`. It leads to the directory while this
process has it open, for every process of the same user, and leaves nothing behind.
"""

import os
import re
from pathlib import Path

_PLAIN = re.compile(r"[A-Za-z0-9_/.@+~-]+")


class PlainPath:
    """A directory under a plain name: `path`. It is the directory's own path if that is plain, or if this machine has
    no other name. A directory that gets another name is created if missing."""

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
        """Release the second name. Can be called twice."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

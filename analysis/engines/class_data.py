"""The archive of the classes that a start of Spark loads: the JVM maps it instead of reading and verifying jars.

Theory of operation. A JVM that has no archive writes one when it exits (`-XX:ArchiveClassesAtExit`), once for a Java,
its options and the jars. The file is written into the session's scratch directory and gets its place when it is whole.
A JVM ignores an archive that does not fit, so a wrong one costs time and nothing else. It is valid for the order in
which the directory lists the jars, which changes when a jar does; the name depends on both.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from installation.files import cache_directory
from installation.plain_paths import PlainPath

_DRAFT: Final = "classes.jsa"
_KIND: Final = "spark-classes-"


class ClassArchive:
    """The archive for a Java, its options and the directory of Spark's jars; `path` exists after the first session."""

    def __init__(self, java: Path, options: str, jars: Path, *, cache: Path | None = None) -> None:
        parts = [options]
        for path in (java.resolve(), jars.resolve()):
            parts += [str(path), str(path.stat().st_mtime_ns)]
        parts += [each.name for each in os.scandir(jars)]
        digest = hashlib.sha256("\0".join(parts).encode("utf-8", errors="surrogateescape")).hexdigest()
        self.path = (cache or cache_directory()) / "spark" / f"{_KIND}{digest[:16]}.jsa"

    @contextmanager
    def option(self, scratch: str) -> Iterator[str]:
        """The option of Java that uses the archive, or that writes one below `scratch`, a plain path."""
        if not self.path.is_file():
            yield f"-XX:ArchiveClassesAtExit={scratch}/{_DRAFT}"
            return
        place = PlainPath(self.path.parent)
        try:
            yield f"-XX:SharedArchiveFile={place.path}/{self.path.name}"
        finally:
            place.close()

    def keep(self, scratch: Path) -> None:
        """Take the archive that a JVM has written below `scratch`, if it has. Where nothing can be written, the next
        start is slow too."""
        written, draft = scratch / _DRAFT, self.path.with_name(f".{os.getpid()}-{self.path.name}")
        if not written.is_file():
            return
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            for earlier in self.path.parent.glob(f"{_KIND}*"):
                earlier.unlink(missing_ok=True)  # of another Java or another Spark
            shutil.copyfile(written, draft)
            draft.rename(self.path)
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)

"""Archives for nodes: the broker's source, and the files of a system under test."""

from __future__ import annotations

import py_compile
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import nodeimage.archives as archives
from installation.files import cache_directory

# `broker` imports no other room.
_ROOMS = ("broker",)
# The directory into which playbooks unpack the archive; tracebacks name it.
_PLACE = Path("/opt/brownout/app")


@dataclass(frozen=True)
class App:
    """`archive` is a .tar.gz of the packages; `key` changes with their content."""

    key: str
    archive: Path


def app_archive(project: Path) -> App:
    """The archive of the project's current broker, made unless the cache has it under its key.

    The same content has the same key and the same bytes, whichever user makes it at whatever time."""
    files = {str(path.relative_to(project)): path for room in _ROOMS for path in sorted((project / room).rglob("*.py"))}
    key = archives.content_key(files, salt=f"app 2 {sys.implementation.cache_tag}")
    archive = cache_directory(project) / "apps" / f"{key}.tar.gz"
    if not archive.exists():
        with tempfile.TemporaryDirectory() as scratch:
            archives.write({**files, **_compiled(files, Path(scratch))}, archive)
    return App(key, archive)


def _compiled(files: dict[str, Path], scratch: Path) -> dict[str, Path]:
    """The modules compiled by this Python, by their names beside the sources. Most nodes have the same Python version,
    and compiling takes seconds under emulation. Another Python version uses the sources. The archive's key covers the
    sources, so the compiled files are not compared with their times."""
    compiled = {}
    for number, (name, path) in enumerate(files.items()):
        beside = Path(name).parent / "__pycache__" / f"{path.stem}.{sys.implementation.cache_tag}.pyc"
        compiled[str(beside)] = scratch / str(number)
        py_compile.compile(
            str(path),
            cfile=str(scratch / str(number)),
            dfile=str(_PLACE / name),
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
    return compiled


@dataclass(frozen=True)
class FilesArchive:
    """`archive` is a .tar of the files; `key` changes with their names and contents."""

    key: str
    archive: Path


def files_archive(project: Path, files: Mapping[str, Path]) -> FilesArchive:
    """The archive of these files under the given paths, made unless the project's cache has it under its key. Raises
    `OSError` for a file that cannot be read.

    It is not compressed: jars already are, and unpacking is slow on emulated machines."""
    key = archives.content_key(files, salt="files 1")
    archive = cache_directory(project) / "files" / f"{key}.tar"
    if not archive.exists():
        archives.write(files, archive, compressed=False)
    return FilesArchive(key, archive)

"""Archives that depend on their content only, not on the clock, the user or the order of a directory.

Nodes get two: the broker's source, and the files of a system under test.
"""

import contextlib
import gzip
import hashlib
import os
import py_compile
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from installation.files import cache_directory

# 2024-01-01: some tools warn about files from 1970.
_MTIME = 1_704_067_200


def content_key(files: Mapping[str, Path], *, salt: str = "") -> str:
    """A hash of names, contents and executable flags, as 16 hexadecimal digits."""
    digest = hashlib.sha256(salt.encode())
    for name in sorted(files):
        path = files[name]
        executable = os.access(path, os.X_OK)
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"\0{name}\0{executable:d}\0{content}".encode())
    return digest.hexdigest()[:16]


def write(files: Mapping[str, Path], destination: Path, *, compressed: bool = True) -> None:
    """Write a .tar.gz (or a .tar) of regular files under the given names; it appears whole or not at all."""
    with whole_file(destination) as path, open(path, "wb") as raw, contextlib.ExitStack() as packing:
        packed: IO[bytes] = raw
        if compressed:
            squeezed = gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=_MTIME, compresslevel=6)
            packed = cast("IO[bytes]", packing.enter_context(squeezed))
        archive = packing.enter_context(tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT))
        for name in sorted(_with_parents(files)):
            entry = tarfile.TarInfo(name)
            entry.mtime = _MTIME
            if name not in files:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(entry)
                continue
            entry.size = files[name].stat().st_size
            entry.mode = 0o755 if os.access(files[name], os.X_OK) else 0o644
            with open(files[name], "rb") as content:
                archive.addfile(entry, content)


@contextlib.contextmanager
def whole_file(destination: Path) -> Iterator[Path]:
    """A path to write to; it becomes `destination` when the block succeeds, and is removed when it fails."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=destination.parent, prefix=".unfinished-")
    os.close(descriptor)
    path = Path(name)
    try:
        yield path
        path.chmod(0o644)
        path.replace(destination)
    finally:
        path.unlink(missing_ok=True)


def _with_parents(names: Iterable[str]) -> set[str]:
    everything = set(names)
    for name in names:
        everything.update(str(parent) for parent in Path(name).parents if str(parent) != ".")
    return everything


# ---- Archives for nodes.

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
    key = content_key(files, salt=f"app 2 {sys.implementation.cache_tag}")
    archive = cache_directory(project) / "apps" / f"{key}.tar.gz"
    if not archive.exists():
        with tempfile.TemporaryDirectory() as scratch:
            write({**files, **_compiled(files, Path(scratch))}, archive)
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
    key = content_key(files, salt="files 1")
    archive = cache_directory(project) / "files" / f"{key}.tar"
    if not archive.exists():
        write(files, archive, compressed=False)
    return FilesArchive(key, archive)

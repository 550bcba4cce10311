"""Archives that depend on their content only, not on the clock, the user or the order of a directory."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, cast

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

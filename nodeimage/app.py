"""The broker as an archive: what of this project a node needs."""

from __future__ import annotations

import py_compile
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import nodeimage.archives as archives
from installation.files import cache_directory

# `broker` imports no other room.
_ROOMS = ("broker",)
# Where playbooks unpack it: what tracebacks name.
_PLACE = Path("/opt/brownout/app")


@dataclass(frozen=True)
class App:
    """`archive` is a .tar.gz of the packages; `key` changes with their content."""

    key: str
    archive: Path


def app_archive(project: Path) -> App:
    """The archive of the project's broker as it is now, made unless it is there; kept in the cache by its key.

    The same content has the same key and the same bytes, whoever makes it and when."""
    files = {str(path.relative_to(project)): path for room in _ROOMS for path in sorted((project / room).rglob("*.py"))}
    key = archives.content_key(files, salt=f"app 2 {sys.implementation.cache_tag}")
    archive = cache_directory(project) / "apps" / f"{key}.tar.gz"
    if not archive.exists():
        with tempfile.TemporaryDirectory() as scratch:
            archives.write({**files, **_compiled(files, Path(scratch))}, archive)
    return App(key, archive)


def _compiled(files: dict[str, Path], scratch: Path) -> dict[str, Path]:
    """The modules as this Python compiles them, by their names beside the sources: most nodes have the same Python, and
    under emulation compiling takes seconds. Any other Python takes the sources. The archive's key vouches that both are
    the same, so no times are compared."""
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

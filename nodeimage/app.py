"""The broker as an archive: what of this project a node needs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nodeimage import archives

# `broker` imports no other room.
_ROOMS = ("broker",)


@dataclass(frozen=True)
class App:
    """`archive` is a .tar.gz of the packages; `key` changes with their content."""

    key: str
    archive: Path


def app_archive(project: Path) -> App:
    """The archive of the project's broker as it is now, made unless it is there; kept in .cache/apps by its key.

    The same content has the same key and the same bytes, whoever makes it and when."""
    files = {str(path.relative_to(project)): path for room in _ROOMS for path in sorted((project / room).rglob("*.py"))}
    key = archives.content_key(files, salt="app 1")
    archive = project / ".cache" / "apps" / f"{key}.tar.gz"
    if not archive.exists():
        archives.write(files, archive)
    return App(key, archive)

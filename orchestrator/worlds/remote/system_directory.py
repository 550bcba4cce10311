"""The directory of a user's own system as an archive: machines of their own see nothing of this one."""

from __future__ import annotations

from pathlib import Path

from installation.files import PROJECT_ROOT
from nodeimage import FilesArchive, files_archive
from orchestrator.errors import UsageError
from systems.description import FILE_NAME

MOST_BYTES = 256 << 20
# What lies in such a directory and is nothing of the system's: runs, and what is made again.
_LEFT_OUT = frozenset({"store", "__pycache__", "node_modules"})


def directory_archive(directory: Path) -> FilesArchive:
    """Raises `UsageError` for a directory that is too large to be sent, or cannot be read."""
    try:
        files = {str(path.relative_to(directory)): path for path in _files(directory)}
        size = sum(path.stat().st_size for path in files.values())
        if size > MOST_BYTES:
            raise UsageError(
                f"{directory}: {size >> 20} MB would be sent to each node, and {MOST_BYTES >> 20} are allowed; keep "
                f"{FILE_NAME} and what belongs to it in a directory of their own"
            )
        return files_archive(PROJECT_ROOT, files)
    except OSError as error:
        raise UsageError(f"{error.filename}: cannot be sent to the nodes: {error.strerror}") from error


def _files(directory: Path) -> list[Path]:
    found: list[Path] = []
    for path in sorted(directory.iterdir()):
        if path.name in _LEFT_OUT or path.name.startswith("."):
            continue
        if path.is_dir():
            found += _files(path)
        elif path.is_file():
            found.append(path)
    return found

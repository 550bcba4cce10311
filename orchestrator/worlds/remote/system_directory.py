"""Archives the directory of a user-defined system for machines, which do not share files with this one."""

from __future__ import annotations

from pathlib import Path

from installation.files import PROJECT_ROOT
from nodeimage import FilesArchive, files_archive
from orchestrator.errors import UsageError
from systems.description import FILE_NAME

MOST_BYTES = 256 << 20
_MADE_AGAIN = "__pycache__"
# A file that every store has, whatever its name: the plan of its first run, written before the run.
_RUNS = ("*/plans/*.campaign", "*/*/run.toml")


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
    """All files except hidden ones, caches and runs: a system finds the same files on the machine as here."""
    found: list[Path] = []
    for path in sorted(directory.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_file():
            found.append(path)
        elif path.is_dir() and path.name != _MADE_AGAIN and not _has_runs(path):
            found += _files(path)
    return found


def _has_runs(directory: Path) -> bool:
    return any(next(directory.glob(pattern), None) is not None for pattern in _RUNS)

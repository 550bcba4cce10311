"""What playbooks are told of the system under test: its description's directory as an archive, programs, its role."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from installation.files import cache_directory
from nodeimage import archives
from orchestrator.errors import UsageError
from systems.description import FILE_NAME, Description

# What lies in such a directory and is nothing of the system's: runs, and what is made again.
_LEFT_OUT = frozenset({"store", "__pycache__", "node_modules"})
MOST_BYTES = 256 << 20


def system_variables(description: Description | None) -> dict[str, Any]:
    """Variables of every host. None: a system that comes with Brownout and needs nothing more.

    Raises `UsageError` for a directory that is too large to be sent, or cannot be read."""
    if description is None:
        return {}
    told: dict[str, Any] = {"brownout_system_programs": dict(description.programs)}
    if description.playbook_role:
        role = description.directory / description.playbook_role
        told["brownout_system_role"] = str(role) if role.is_dir() else description.playbook_role
    if description.own_directory:
        key, archive = _archive(description.directory)
        told |= {"brownout_system_archive": str(archive), "brownout_system_key": key}
    return told


def _archive(directory: Path) -> tuple[str, Path]:
    try:
        files = {str(path.relative_to(directory)): path for path in _files(directory)}
        size = sum(path.stat().st_size for path in files.values())
        if size > MOST_BYTES:
            raise UsageError(
                f"{directory}: {size >> 20} MB would be sent to each node, and {MOST_BYTES >> 20} are allowed; keep "
                f"{FILE_NAME} and what belongs to it in a directory of their own"
            )
        key = archives.content_key(files)
        archive = cache_directory() / "systems" / "directories" / f"{key}.tar.gz"
        if not archive.exists():
            archives.write(files, archive)
    except OSError as error:
        raise UsageError(f"{error.filename}: cannot be sent to the nodes: {error.strerror}") from error
    return key, archive


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

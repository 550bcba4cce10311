"""The playbooks' variables about the software under test, for virtual machines and an inventory's hosts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from installation.files import PROJECT_ROOT
from nodeimage import App, FilesArchive, app_archive, files_archive
from orchestrator.errors import UsageError, WorldError
from orchestrator.worlds.remote import paths
from systems import Software
from systems.description import FILE_NAME
from systems.service import REMOTE_SYSTEM_DIR

# ---- Archives the directory of a user-defined system for machines, which do not share files with this one.

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
    files: list[Path] = []
    for path in sorted(directory.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_file():
            files.append(path)
        elif path.is_dir() and path.name != _MADE_AGAIN and not _has_runs(path):
            files += _files(path)
    return files


def _has_runs(directory: Path) -> bool:
    return any(next(directory.glob(pattern), None) is not None for pattern in _RUNS)


DEFAULT_ROLE = "service"


@dataclass(frozen=True)
class Provisions:
    """Everything that the machines of a lab get, for any run. `files`: by the directory on the machine."""

    app: App
    files: dict[str, FilesArchive]
    software: tuple[Software, ...]

    def variables(self, site_archive: Path, site_key: str) -> dict[str, Any]:
        """The variables of one machine, whose Python uses the packages in `site_archive`."""
        trees = [
            {"to": f"{paths.PROGRAMS}/app", "archive": str(self.app.archive), "key": self.app.key},
            {"to": f"{paths.PROGRAMS}/site", "archive": str(site_archive), "key": site_key},
            *({"to": to, "archive": str(archive.archive), "key": archive.key} for to, archive in self.files.items()),
        ]
        java = least_java(self.software)
        return {
            **_roles(self.software),
            "brownout_trees": trees,
            "brownout_system_programs": programs(self.software),
            **({"brownout_java": java} if java else {}),
        }


def provisions(software: Sequence[Software]) -> Provisions:
    """Archives of everything that the machines need. Raises `WorldError` or `UsageError` for files that cannot be
    sent."""
    try:
        files = {
            f"{paths.FILES}/{component.name}": files_archive(PROJECT_ROOT, component.files)
            for component in software
            if component.files
        }
        for directory in {component.own_directory for component in software if component.own_directory}:
            files[REMOTE_SYSTEM_DIR] = directory_archive(directory)
    except OSError as error:
        raise WorldError(f"the system's files cannot be archived: {error}") from error
    return Provisions(app_archive(PROJECT_ROOT), files, tuple(software))


def _roles(software: Sequence[Software]) -> dict[str, str]:
    """The role that prepares a machine, and the additional one of a user's system. All versions have the same roles."""
    if not software or not software[0].playbook_role:
        return {"brownout_system": DEFAULT_ROLE}
    role, directory = software[0].playbook_role, software[0].own_directory
    if directory is None:
        return {"brownout_system": role}
    beside = directory / role
    return {"brownout_system": DEFAULT_ROLE, "brownout_system_role": str(beside) if beside.is_dir() else role}


def least_java(software: Sequence[Software]) -> int:
    """The oldest Java that runs all of it; 0: none is needed."""
    return max((program.least_java for program in software), default=0)


def programs(software: Sequence[Software]) -> dict[str, str]:
    """The programs that machines must have, and their packages."""
    return {program: package for component in software for program, package in component.programs.items()}


def ports(software: Sequence[Software], number: int, first: int | None = None) -> tuple[int, ...]:
    """The ports of node `number` (from 1), the clients' port first. `first`: another clients' port for this node."""
    numbers: dict[int, None] = {}
    for component in software:
        own_ports = component.ports[number - 1]
        numbers.update(dict.fromkeys((own_ports[0] if first is None else first, *own_ports[1:])))
    return tuple(numbers) or (first or paths.DEFAULT_PORT,)

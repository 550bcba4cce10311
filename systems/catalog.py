"""Lists the systems that come with Brownout and their versions: the directories of this room that describe one.

The system `apache-kafka` is in `apache_kafka/`: names are written with hyphens, directories must be importable.
The versions are those that the description names; without a description, those that have a lock file. A system whose
files come with this project or from the nodes' packages has no lock files (`versions/`).
"""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import systems.description as description
from systems.errors import InputError
from systems.lock_file import Lock
from systems.toml_tables import suggestion

SYSTEMS = Path(__file__).resolve().parent

_VERSIONS = "versions"
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+-]*")


@dataclass(frozen=True)
class SystemFiles:
    """One system."""

    name: str
    directory: Path

    @cached_property
    def versions(self) -> tuple[str, ...]:
        """In the order of its description; without a description, by lock file, oldest first. Raises `InputError` for
        an invalid description."""
        if self.is_described:
            return tuple(description.read(self.directory).versions)
        return tuple(sorted((path.stem for path in (self.directory / _VERSIONS).glob("[!.]*.lock")), key=_natural))

    def lock(self, version: str) -> Lock:
        """The lock of a version. Raises `InputError`, with the nearest known version, for an unknown version."""
        if not (self.directory / _VERSIONS).is_dir():
            raise InputError(f"{self.name} has no versions whose files are fetched: its files come without a lock")
        if version not in self.versions:
            raise InputError(f"{self.name} has no version {version!r}; {suggestion(version, self.versions)}")
        return Lock.read(lock_path(self.directory, version), self.name, version)

    @property
    def is_described(self) -> bool:
        """Whether it can be tested: a system under construction may have lock files only."""
        return (self.directory / description.FILE_NAME).is_file()


def all_systems(root: Path = SYSTEMS) -> list[SystemFiles]:
    """All systems under `root`, by name."""
    paths = (path for path in root.iterdir() if (path / description.FILE_NAME).is_file() or (path / _VERSIONS).is_dir())
    return sorted((SystemFiles(_name(path), path) for path in paths), key=lambda system: system.name)


def find_system(name: str, root: Path = SYSTEMS) -> SystemFiles:
    """The system of this name. Raises `InputError`, with the nearest known name, for an unknown name."""
    systems = {system.name: system for system in all_systems(root)}
    if name not in systems:
        raise InputError(f"unknown system {name!r}; {suggestion(name, systems)}")
    return systems[name]


def new_lock_path(name: str, version: str, root: Path = SYSTEMS) -> Path:
    """The path of a version's lock, for a known or a new system. Raises `InputError` for names that are not allowed."""
    if not _NAME.fullmatch(name):
        raise InputError(f"{name!r} cannot be a system's name; use small letters, digits and hyphens: apache-kafka")
    if not _VERSION.fullmatch(version):
        raise InputError(f"{version!r} cannot be a version; use letters, digits, dots, plus and hyphens: 4.1.1")
    return lock_path(root / name.replace("-", "_"), version)


def lock_path(directory: Path, version: str) -> Path:
    return directory / _VERSIONS / f"{version}.lock"


def _name(directory: Path) -> str:
    return directory.name.replace("_", "-")


def _natural(version: str) -> list[tuple[int, str]]:
    """Sort key: 0.10 after 0.9; digits before letters."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.findall(r"[0-9]+|[^0-9.]+", version)]

"""What a version of a system needs on machines of their own, which see nothing of this one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class MachineRoot:
    """The root filesystem of the machines that are to run a system, on this machine. `open` gives its directory, which
    programs can be run in by root, for a while; `key` changes with what is in it; `files_dir`: where, as the machines
    see it, the version's files lie. `open` raises `OSError`."""

    key: str
    files_dir: str
    open: Callable[[], AbstractContextManager[Path]]


Making = Callable[[MachineRoot, Callable[[str], None]], Mapping[str, Path]]


def _nothing(_root: MachineRoot, _on_progress: Callable[[str], None]) -> Mapping[str, Path]:
    return {}


@dataclass(frozen=True)
class Software:
    """One version of a system, for who makes machines ready.

    `title`: how people know it. `make`: what machines can have besides the files, made of these by their own programs
    where their root filesystem is at hand; its listener hears what takes time. `name`: its files' directory, below that
    of all files of a machine. `files`: by their
    path in it, where they are on this machine. `least_java`: the oldest feature release of Java that runs it, 0 for
    none. `programs`: by name, the packages that have them. `ports`: of each node, those that it listens on, that of its
    clients first. `playbook_role`: the Ansible role that puts it on a machine; None: what every system gets will do.
    `own_directory`: that of a system which does not come with Brownout: it goes to machines, and its role, which may
    lie in it, is played after what every system gets.
    """

    title: str
    name: str
    files: Mapping[str, Path] = field(default_factory=dict)
    least_java: int = 0
    programs: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[tuple[int, ...], ...] = ()
    playbook_role: str | None = None
    own_directory: Path | None = None
    make: Making = _nothing

"""What a version of a system needs on machines of their own, which see nothing of this one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Software:
    """One version of a system, for who makes machines ready.

    `title`: how people know it. `name`: its files' directory, below that of all files of a machine. `files`: by their
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

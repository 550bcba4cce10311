"""What a version of a system needs on machines that do not share this machine's filesystem."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class MachineRoot:
    """The root filesystem of the machines that will run a system, as a directory of this machine.

    `open`: makes the directory available for a while; root can run programs in it; raises `OSError`. `key` changes with
    the content. `files_dir`: the directory of the version's files, as the machines see it."""

    key: str
    files_dir: str
    open: Callable[[], AbstractContextManager[Path]]


Making = Callable[[MachineRoot, Callable[[str], None]], Mapping[str, Path]]


def _nothing(_root: MachineRoot, _on_progress: Callable[[str], None]) -> Mapping[str, Path]:
    return {}


@dataclass(frozen=True)
class Software:
    """The needs of one version of a system, for the code that prepares machines.

    `title`: the name for users. `name`: the directory of its files, below the directory of all files of a machine.
    `files`: paths on this machine, by path in that directory. `make`: makes additional files with the machines' own
    programs, where their root filesystem is available; its listener receives progress messages. `least_java`: the
    oldest feature release of Java that runs it, 0: it needs no Java. `programs`: by name, the packages that contain
    them. `ports`: the ports on which each node listens, the clients' port first. `playbook_role`: the Ansible role that
    installs it; None: the role of every system is enough. `own_directory`: the directory of a system that does not come
    with Brownout; it is copied to the machines, and its role, which may be in it, is applied after the role of every
    system.
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

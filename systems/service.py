"""What a node runs: one process, its files, and its deadlines for starting and stopping."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Protocol

from installation.files import PROJECT_ROOT

REMOTE_SYSTEM_DIR = "/opt/brownout/system"
"""The directory of a system's description on nodes that do not see this machine's files."""


def in_url(address: str) -> str:
    """The address as it is written before `:port`: an IPv6 address in brackets."""
    return f"[{address}]" if ":" in address else address


def shown_as(path: PurePath) -> Path:
    """The path at which a node's file is kept in a run's evidence; names that start with a dot are changed."""
    return Path(*(f"dot{part}" if part.startswith(".") else part for part in path.parts))


@dataclass(frozen=True)
class Place:
    """A node as a system sees it. All paths are valid on the node."""

    name: str
    id: int
    """Counts from 1, unique in the run."""
    address: str
    ports: Mapping[str, int] = field(hash=False)
    """By the names of the role; clients reach the service at the first one."""
    data_dir: str
    """On the node's own disk: synced files survive a power cut."""
    etc_dir: str
    """Configuration; written before the service starts."""
    var_dir: str
    """The output of the service (`service.log`, `events.jsonl`); it may be lost in a power cut."""
    files_dir: str = ""
    """The directory of the system version's files (jars, programs)."""
    shared_dir: str = ""
    """A directory that all nodes of the run see and may write; it is not on a node's disk, so a power cut does not
    affect it. Empty in worlds without one. It exists if the service's files, command or environment name it."""
    python: str = sys.executable
    """A Python interpreter with Brownout's packages."""
    python_path: str = str(PROJECT_ROOT)
    """PYTHONPATH for `python`: the directory of Brownout's modules."""
    is_local: bool = True
    """Whether the node sees this machine's programs under the same paths."""


@dataclass(frozen=True)
class Service:
    """The one process of a node.

    `files`: texts by their absolute path, written before any command runs. `prepare`: commands that run once, in order,
    before the first start; their files are synced afterwards. `ready`: a command that exits with 0 when the service is
    ready; empty: its port is open then. `after_start`: commands that run once, when all services are ready. `command`:
    the process itself, which stays in the foreground. `shows`: directories of this machine that a local node must see.
    Deadlines are in seconds and unscaled. If the service still runs at its stop deadline it is killed
    (`kills_at_stop`), or the stop is an error. `stop_exit_codes`: exit codes that are allowed after SIGTERM, as shells
    count them (143: ended by SIGTERM). Services of a lower `start_order` start first and stop last.
    """

    role: str
    command: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    prepare: tuple[tuple[str, ...], ...] = ()
    ready: tuple[str, ...] = ()
    after_start: tuple[tuple[str, ...], ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    shows: tuple[str, ...] = ()
    start_deadline_s: float = 30.0
    stop_deadline_s: float = 30.0
    prepare_deadline_s: float = 60.0
    kills_at_stop: bool = False
    stop_exit_codes: tuple[int, ...] = (0, 143)
    start_order: int = 0


class Deployment(Protocol):
    """One run's system on its nodes, as worlds use it."""

    def ports(self, number: int) -> Mapping[str, int]:
        """The ports on which node `number` (from 1) listens, by name; clients reach the service at the first one."""
        ...

    def service(self, node: Place, nodes: Sequence[Place], time_scale: float = 1.0) -> Service:
        """What a node runs; called when all nodes are known."""
        ...

    @property
    def collected(self) -> tuple[str, tuple[str, ...]]:
        """The directory below a node's data directory to collect at the end, and globs of the files in it."""
        ...

    @property
    def files_dir(self) -> str:
        """The directory of the version's files on this machine; empty if the version needs no files."""
        ...

    @property
    def files_name(self) -> str:
        """The name of that directory on other machines, below the directory of all systems' files."""
        ...

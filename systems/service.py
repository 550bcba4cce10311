"""What a node is told to run: one process, its files, and how long it may take to come and to go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Protocol

REMOTE_SYSTEM_DIR = "/opt/brownout/system"
"""Where the directory of a system's description lies on nodes that do not see this machine's."""


def shown_as(path: PurePath) -> Path:
    """The path at which a node's file is kept in a run's evidence: none of its names is hidden."""
    return Path(*(f"dot{part}" if part.startswith(".") else part for part in path.parts))


class Place(Protocol):
    """A node as a system sees it. All paths are as the node itself sees them."""

    @property
    def name(self) -> str: ...

    @property
    def id(self) -> int:
        """From 1, unique in the run."""
        ...

    @property
    def address(self) -> str: ...

    @property
    def ports(self) -> Mapping[str, int]:
        """By the name that the role gives them; the first is where the service is reached."""
        ...

    @property
    def data_dir(self) -> str:
        """On the node's own disk: what it holds and was synced survives a power cut."""
        ...

    @property
    def etc_dir(self) -> str:
        """Configuration; written before the service starts."""
        ...

    @property
    def var_dir(self) -> str:
        """What the service says of itself (`service.log`, `events.jsonl`); it need not survive anything."""
        ...

    @property
    def files_dir(self) -> str:
        """Where the files of the system's version lie (jars, programs)."""
        ...

    @property
    def python(self) -> str:
        """The Python interpreter that has Brownout's packages."""
        ...

    @property
    def python_path(self) -> str:
        """PYTHONPATH for it: where Brownout's own modules lie."""
        ...

    @property
    def is_local(self) -> bool:
        """Whether it sees this machine's programs under the paths that they have here."""
        ...


@dataclass(frozen=True)
class Service:
    """The one process of a node.

    `files`: texts by their absolute path, written before anything is run. `prepare`: commands to run once, in order,
    before the first start; what they wrote is synced then. `command`: the process itself, which stays in the
    foreground. `shows`: directories of this machine that a local node must see. Deadlines are in seconds and unscaled.
    A service that has not ended by itself by its stop deadline is killed where `kills_at_stop`, else that is an error.
    `stop_exit_codes`: those that it may come to after SIGTERM, as shells have them (143: ended by SIGTERM itself).
    Services of a lower `start_order` start first and stop last.
    """

    role: str
    command: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    prepare: tuple[tuple[str, ...], ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    shows: tuple[str, ...] = ()
    start_deadline_s: float = 30.0
    stop_deadline_s: float = 30.0
    prepare_deadline_s: float = 60.0
    kills_at_stop: bool = False
    stop_exit_codes: tuple[int, ...] = (0, 143)
    start_order: int = 0


class Deployment(Protocol):
    """One run's system on its nodes: what worlds ask."""

    def ports(self, number: int) -> Mapping[str, int]:
        """The ports that node `number` (from 1) listens on, by name; the first is where its service is reached."""
        ...

    def service(self, node: Place, nodes: Sequence[Place], time_scale: float = 1.0) -> Service:
        """What a node runs, once all nodes are known."""
        ...

    @property
    def collected(self) -> tuple[str, tuple[str, ...]]:
        """The directory below a node's data directory to bring home, and which files in it, as globs."""
        ...

    @property
    def files_dir(self) -> str:
        """Where the version's files lie on this machine; empty where it needs none."""
        ...

    @property
    def files_name(self) -> str:
        """Their directory on machines of their own, below the one that is for all files."""
        ...

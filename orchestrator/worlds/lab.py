"""A lab: the machines of an invocation, made once, used by each of its runs, taken down at the end.

Theory of operation. A namespace node boots faster than an old one could be cleaned, so its lab is empty and each run
makes its own nodes. A virtual machine is booted and provisioned once; each run gets it in the state after that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from nemeses.ports import Host
from orchestrator.errors import WorldError
from orchestrator.machine.requirement import Requirement
from orchestrator.worlds.base import DISK_BYTES, Progress, World, WorldSpec, no_progress
from systems import Software


@dataclass(frozen=True)
class LabSpec:
    """The inputs of a lab.

    `directory`: the lab's own (logs of booted machines, disks), created by the lab, and empty or removed after `close`.
    `software`: everything that the runs of the invocation need on its machines. `inventory`: the Ansible inventory, of
    the inventory world only; `become_password`: for sudo on its hosts. With `keep`, an `open` that fails leaves what it
    has made until `close`, for inspection.
    """

    node_count: int
    filesystem: str
    directory: Path
    software: tuple[Software, ...] = ()
    disk_bytes: int = DISK_BYTES
    inventory: Path | None = None
    become_password: str | None = field(default=None, repr=False)
    keep: bool = False


class Lab(Protocol):
    """The machines of one invocation. `open`, then `world` for one run after the other, then `close`."""

    name: str
    capabilities: frozenset[str]
    """The names of the kinds of fault that can be injected on its machines."""
    systems: ClassVar[frozenset[str] | None] = None
    """The systems of Brownout that run there; None: all."""
    workloads: ClassVar[frozenset[str] | None] = None
    """The kinds of workload that have clients there; None: all."""
    repeatable: ClassVar[bool] = False
    """Whether a repeated run is identical, byte for byte: then nothing in it depends on its id."""
    keeps_machines: ClassVar[bool] = True
    """Whether all runs have the same machines."""
    has_own_processors: ClassVar[bool] = False
    """Whether its machines are not on this machine: then analyzing a run does not delay the load of another one."""
    limits: list[str]
    needs_sandbox: bool
    time_scale: float
    """How many times longer everything takes than on this machine: a factor for timeouts. It and `limits` are final
    once the lab is open."""

    def __init__(self, spec: LabSpec) -> None: ...

    @classmethod
    def missing(cls, filesystem: str) -> list[Requirement]:
        """What this machine lacks for the world and `prepare` does not install; empty if it can run."""
        del filesystem
        return []

    @classmethod
    def time_scales(cls, spec: LabSpec) -> tuple[float, ...]:
        """The values that `time_scale` may have once the lab is open. Raises `UsageError`."""
        ...

    @classmethod
    def prepare(cls, spec: LabSpec) -> None:
        """Check the lab's requirements and install what can be installed. Called before a sandbox is entered, because
        the sandbox has no network; the lab itself may get another directory. Raises `UsageError`."""
        ...

    def open(self, on_progress: Progress = no_progress) -> None:
        """Make what outlives a run. Raises `WorldError`, after removing what was made (unless `keep` is set)."""
        ...

    def world(self, spec: WorldSpec) -> World:
        """The world of one run; its `up` brings the machines into the state they had after `open`."""
        ...

    def close(self) -> None:
        """Remove everything that `open` made. Can be called twice, and after a failed `open`."""
        ...

    @property
    def hosts(self) -> Mapping[str, Host]:
        """The machines by name, while they exist, for interactive use."""
        ...

    def shell(self, name: str, command: Sequence[str] = ()) -> list[str]:
        """The command that opens a shell on a machine, or runs `command` there, from inside the sandbox.

        The words of `command` are joined and passed to the machine's shell, as ssh does."""
        ...


# ---- Labs of worlds in which nothing outlives a run: it makes its own nodes faster than old ones could be cleaned.


class PerRunLab(Lab):
    """A lab that only holds the world of the current run."""

    kind: ClassVar[type[World]]
    keeps_machines: ClassVar[bool] = False

    def __init__(self, _: LabSpec) -> None:
        self.limits: list[str] = []  # each run's world has its own limits
        self._world: World | None = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.name, cls.needs_sandbox = cls.kind.name, cls.kind.needs_sandbox
        cls.capabilities, cls.time_scale = cls.kind.capabilities, cls.kind.time_scale

    @classmethod
    def time_scales(cls, _: LabSpec) -> tuple[float, ...]:
        return (cls.time_scale,)

    @classmethod
    def prepare(cls, _: LabSpec) -> None:
        """Does nothing: `missing` has the requirements of these worlds."""

    def open(self, on_progress: Progress = no_progress) -> None:
        """Does nothing: nothing outlives a run."""

    def world(self, spec: WorldSpec) -> World:
        self._world = self.kind(spec)
        return self._world

    def close(self) -> None:
        if self._world is not None:
            self._world.down()

    @property
    def hosts(self) -> Mapping[str, Host]:
        return {} if self._world is None else self._world.hosts

    def shell(self, name: str, command: Sequence[str] = ()) -> list[str]:
        if self._world is None:
            raise WorldError(f"{name} does not exist yet: no run has made it")
        return self._world.shell(name, command)

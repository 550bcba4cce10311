"""What outlives a run: the machines of an invocation, made once, given to each of its runs, taken down at the end.

A namespace node boots faster than an old one could be cleaned, so its lab is empty and each run makes its own nodes. A
virtual machine is booted and provisioned once; each run gets it as it was just after that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from nemeses.ports import Host
from orchestrator.worlds.base import DISK_BYTES, Progress, World, WorldSpec, no_progress
from systems import Software


@dataclass(frozen=True)
class LabSpec:
    """What a lab is made from.

    `directory` is the lab's own (logs of what was booted, disks): made by the lab, and empty or gone after `close`.
    `software`: all that the runs of the invocation will have on its machines. `inventory` is the Ansible inventory of
    the inventory world, None in the others. With `keep`, an `open` that fails leaves what it has made, for people to
    look into, until `close`.
    """

    node_count: int
    filesystem: str
    directory: Path
    software: tuple[Software, ...] = ()
    disk_bytes: int = DISK_BYTES
    inventory: Path | None = None
    keep: bool = False


class Lab(Protocol):
    """The machines of one invocation. `open`, then `world` for one run after the other, then `close`."""

    name: str
    capabilities: frozenset[str]
    """The names of the kinds of fault that can be inflicted on its machines."""
    systems: ClassVar[frozenset[str] | None] = None
    """The systems, of those that come with Brownout, that run there; None: all."""
    workloads: ClassVar[frozenset[str] | None] = None
    """The kinds of workload whose clients there are; None: all."""
    repeatable: ClassVar[bool] = False
    """Whether a run comes out the same, byte for byte, when it is made again: then nothing in it depends on its id."""
    limits: list[str]
    needs_sandbox: bool
    time_scale: float
    """How much more time everything needs than on this machine itself: what timeouts are multiplied by. It and `limits`
    are settled once the lab is open."""

    def __init__(self, spec: LabSpec) -> None: ...

    @classmethod
    def prepare(cls, spec: LabSpec) -> None:
        """See that what the lab needs is there, and install what can be installed. Called before a sandbox is entered,
        for in there is no network; the lab itself may be given another directory. Raises `UsageError`."""
        ...

    def open(self, on_progress: Progress = no_progress) -> None:
        """Make what outlives a run. Raises `WorldError`; what was made is then gone again (unless `keep` is asked)."""
        ...

    def world(self, spec: WorldSpec) -> World:
        """The surroundings of one run; its `up` brings the machines into the state they had after `open`."""
        ...

    def close(self) -> None:
        """Remove everything that `open` made. May be called twice, and after a failed `open`."""
        ...

    @property
    def hosts(self) -> Mapping[str, Host]:
        """The machines by name, while they are there: what people look into."""
        ...

    def shell(self, name: str, command: Sequence[str] = ()) -> list[str]:
        """The command that opens a shell on a machine (or runs `command` there), for who is in the same sandbox.

        The words of `command` are joined and handed to the machine's shell, as ssh does it."""
        ...

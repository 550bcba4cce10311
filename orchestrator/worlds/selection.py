"""Choosing a world for this machine, with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from orchestrator.errors import UsageError
from orchestrator.worlds.base import World
from orchestrator.worlds.namespaces import requirements
from orchestrator.worlds.namespaces.world import NamespaceWorld
from orchestrator.worlds.process.world import ProcessWorld

WorldName = Literal["auto", "namespaces", "process"]
WORLD_NAMES: tuple[WorldName, ...] = ("auto", "namespaces", "process")


@dataclass(frozen=True)
class Selection:
    """A world, and why it was chosen."""

    world: type[World]
    reason: str


def select_world(name: str = "auto", filesystem: str = "ext4") -> Selection:
    """The world of this name; with "auto" the namespace world where this machine can, else the process world.

    Raises `UsageError` for an unknown name, and with what is missing and the remedy when the namespace world was asked
    for and cannot be.
    """
    if name == "process":
        return Selection(ProcessWorld, "the process world was asked for")
    if name not in WORLD_NAMES:
        raise UsageError(f"unknown world {name!r}; use one of: {', '.join(WORLD_NAMES)}")
    missing = requirements.missing(filesystem)
    if not missing:
        return Selection(NamespaceWorld, "this machine has all that the namespace world needs")
    lacks = " / ".join(str(requirement) for requirement in missing)
    if name == "namespaces":
        raise UsageError(f"the namespace world cannot run here: {lacks}; or use --world process")
    return Selection(ProcessWorld, f"the namespace world cannot run here: {lacks}")

"""Chooses a world for this machine, with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from installation import extras
from orchestrator.errors import UsageError
from orchestrator.worlds.lab import Lab
from orchestrator.worlds.namespaces import requirements

WorldName = Literal["auto", "namespaces", "process", "vagrant", "inventory", "simulation"]
WORLD_NAMES: tuple[WorldName, ...] = ("auto", "namespaces", "process", "vagrant", "inventory", "simulation")


@dataclass(frozen=True)
class Selection:
    """A lab and the reason for its choice."""

    lab: type[Lab]
    reason: str


def lab_named(name: str) -> type[Lab]:
    """The lab of this world. Raises `UsageError` for an unknown name."""
    # Imported late, because each imports libraries that only its own runs need.
    match name:
        case "namespaces":
            from orchestrator.worlds.stateless_labs import NamespaceLab

            return NamespaceLab
        case "process":
            from orchestrator.worlds.stateless_labs import ProcessLab

            return ProcessLab
        case "vagrant":
            from orchestrator.worlds.vagrant.lab import VagrantLab

            return VagrantLab
        case "inventory":
            from orchestrator.worlds.inventory.lab import InventoryLab

            return InventoryLab
        case "simulation":
            from orchestrator.worlds.simulation.lab import SimulationLab

            return SimulationLab
    raise UsageError(f"unknown world {name!r}; use one of: {', '.join(WORLD_NAMES)}")


def require_machines(purpose: str) -> None:
    """Raise `UsageError` if the software for machines (virtual ones and inventory hosts) is not installed."""
    if not extras.is_there(extras.VMS):
        raise UsageError(extras.what_is_missing(extras.VMS, purpose))


def select_lab(name: str = "auto", filesystem: str = "ext4") -> Selection:
    """The lab of this world; for "auto" namespaces if this machine supports them, else processes.

    Raises `UsageError` for an unknown name, and, if the namespaces world was requested but cannot run, with what is
    missing and the remedy. The other worlds check their requirements in `prepare`.
    """
    if name in ("vagrant", "inventory"):
        require_machines(f"the {name} world")
    if name not in ("auto", "namespaces"):
        return Selection(lab_named(name), f"the {name} world was asked for")
    missing = requirements.missing(filesystem)
    if not missing:
        return Selection(lab_named("namespaces"), "this machine has all that the namespace world needs")
    lacks = " / ".join(str(requirement) for requirement in missing)
    if name == "namespaces":
        raise UsageError(f"the namespace world cannot run here: {lacks}; or use --world process")
    return Selection(lab_named("process"), f"the namespace world cannot run here: {lacks}")

"""The lab of the simulation: nothing outlives a run."""

from collections.abc import Sequence
from typing import ClassVar, Final

from orchestrator.errors import WorldError
from orchestrator.worlds.simulation.world import SimulationWorld
from orchestrator.worlds.stateless_labs import PerRunLab
from workloads.virtual.clients import KINDS

SYSTEM = "brownout"


class SimulationLab(PerRunLab):
    """Runs of Brownout's broker in virtual time."""

    kind = SimulationWorld
    systems: ClassVar[frozenset[str] | None] = frozenset({SYSTEM})
    workloads: ClassVar[frozenset[str] | None] = frozenset(KINDS)
    repeatable = True

    def shell(self, name: str, command: Sequence[str] = ()) -> list[str]:
        del command
        raise WorldError(f"{name} is simulated and has no shell; its trace is in nodes/{name}/events.jsonl")


LAB: Final = SimulationLab

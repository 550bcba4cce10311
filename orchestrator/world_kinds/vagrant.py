"""The vagrant world. Implementation: `orchestrator.worlds.vagrant`."""

from typing import Final

from installation import extras
from orchestrator.world_kind import TRACE_IN_MEMORY, WorldKind

WORLD: Final = WorldKind(
    name="vagrant",
    place=30,
    description="Nodes are virtual machines, each with its own kernel, clock and disk.",
    extra=extras.VMS,
    limits=(TRACE_IN_MEMORY,),
)

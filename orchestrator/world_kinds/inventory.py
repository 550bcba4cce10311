"""The inventory world. Implementation: `orchestrator.worlds.inventory`."""

from typing import Final

from installation import extras
from orchestrator.world_kind import TRACE_IN_MEMORY, WorldKind

WORLD: Final = WorldKind(
    name="inventory",
    place=40,
    description="Nodes are existing hosts, listed in an Ansible inventory and reached by SSH.",
    extra=extras.VMS,
    limits=(TRACE_IN_MEMORY,),
)

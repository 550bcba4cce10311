"""The process world. Implementation: `orchestrator.worlds.process`."""

from typing import Final

from orchestrator.world_kind import WorldKind

WORLD: Final = WorldKind(
    name="process",
    place=20,
    description="Services are processes on loopback. It needs no privileges, and supports kill and pause only.",
    automatic=True,
    limits=(
        "no power loss: a killed service keeps what the kernel holds in memory, so a missing fsync is not seen",
        "no partitions: all services share one loopback network",
        "all services share one kernel, one filesystem and one clock",
    ),
)

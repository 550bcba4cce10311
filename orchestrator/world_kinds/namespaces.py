"""The namespaces world. Implementation: `orchestrator.worlds.namespaces`."""

from typing import Final

from orchestrator.world_kind import WorldKind

WORLD: Final = WorldKind(
    name="namespaces",
    place=10,
    description="Nodes are Linux namespaces of this machine, each with its own network, disk and power switch.",
    automatic=True,
    limits=(
        "all nodes share one kernel and one real-time clock: clock faults and kernel crashes are not exercised",
        "a power cut loses what the kernel holds in memory; the disk itself has no volatile cache to lose",
        "nodes share one page cache: a sync of the whole machine, or 30 s, put what was not synced on every disk",
    ),
)

"""The simulation. Implementation: `orchestrator.worlds.simulation`."""

from typing import Final

from orchestrator.world_kind import WorldKind

WORLD: Final = WorldKind(
    name="simulation",
    place=50,
    description="The real brokers in one process, in virtual time, on a network and disks driven by a seed.",
    limits=(
        "simulated: time, network and disks are a model of real ones; the brokers' code is the real one",
        "clients are simulated too: librdkafka is not exercised",
        "power-loss-all cuts all nodes at once in a schedule only: in campaigns of steps, nodes "
        "lose their power one after another",
    ),
)

"""Profiles of drawn clusters: each makes meetings frequent that independent draws seldom have.

A profile is a declaration: what it narrows, and what it leaves as `PROFILES["anything"]` has it. `campaign.swarm` draws
a profile first, and the rest around it. The ranges of settings are the system's: it declares them, and which of them a
profile narrows (`[roles.ROLE.draws]` of `system.toml`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

SESSION: Final = "session"
LEASE: Final = "lease"
LAG: Final = "lag"
FETCH: Final = "fetch"
ELECTION: Final = "election"
MEMBER_SESSION: Final = "member"
"""Names of time-outs. A system declares which of its settings they are; the last one is of a workload's clients."""

_PARTITIONS: Final = ("partition-one", "partition-halves", "partition-leader", "reject")
_POWER: Final = ("power-loss", "power-loss-all")


@dataclass(frozen=True)
class Profile:
    """What the draw of a run is narrowed to. The defaults narrow nothing."""

    weight: float
    """How often it is drawn, relative to the other profiles."""
    nodes: tuple[int, int] = (1, 7)
    """The fewest and the most nodes."""
    voters: tuple[int, int] = (1, 5)
    """The fewest and the most voters of the metadata quorum."""
    factors: tuple[int, ...] = (1, 2, 3, 3, 3)
    """The replication factors, each as often as it is here."""
    least_in_sync: int = 1
    """The least `min.insync.replicas`, if the partitions have more replicas."""
    meets: tuple[str, ...] = ()
    """Kinds of fault of which a run has at least one; empty: any."""
    beside: tuple[str, ...] = ()
    """The other kinds that it may have; empty: any, except those that cost a disk."""
    lengths: tuple[str, ...] = (SESSION, LEASE, LAG, FETCH, ELECTION)
    """The time-outs around which faults last, if the system has one of them; else any of its own."""
    flushes: bool = True
    """Whether a record is on disk before it counts."""
    tiered: float = 0.2
    """The share of runs with tiered storage."""
    administered: float = 0.3
    """The share of runs with an administrator."""
    retaining: float = 0.15
    """The share of runs whose topic has a retention."""
    unclean: bool = False
    """Whether a replica outside of the ISR and the ELR may lead when no other one runs. Acknowledged records may be
    lost then, and nothing else."""
    kind: str = ""
    """The kind of workload; empty: any."""
    record_bytes: tuple[float, float] = (16, 4_000)
    """The size of a record."""


PROFILES: Final[Mapping[str, Profile]] = {
    "anything": Profile(weight=2),
    "rare-quorum": Profile(
        weight=1.5,
        nodes=(3, 7),
        voters=(3, 5),
        meets=(*_PARTITIONS, *_POWER, "kill", "pause", "packet-delay", "packet-loss"),
        lengths=(FETCH, ELECTION, SESSION),
    ),
    "power-loss": Profile(
        weight=1.5,
        nodes=(3, 7),
        voters=(3, 5),
        factors=(3,),
        least_in_sync=2,
        meets=_POWER,
        lengths=(SESSION, LAG),
    ),
    "long-partitions": Profile(
        weight=1, nodes=(3, 5), voters=(2, 5), factors=(2, 3, 3), meets=(*_PARTITIONS, "stall"), lengths=(SESSION, LAG)
    ),
    "slow-disks": Profile(
        weight=1.5,
        nodes=(2, 5),
        voters=(2, 5),
        factors=(2, 3, 3),
        meets=("disk-slow", "disk-slow", "disk-hang", "disk-error", "disk-full"),
        lengths=(SESSION, LAG, FETCH),
    ),
    "default-durability": Profile(
        weight=1,
        meets=("kill", "stop", "pause"),
        flushes=False,
        record_bytes=(100, 4_000),
    ),
    "unflushed-power-loss": Profile(
        weight=1.5,
        nodes=(3, 7),
        voters=(3, 5),
        factors=(3,),
        meets=("power-loss",),
        beside=("kill", "stop", "pause", "partition-one", "partition-leader"),
        lengths=(SESSION, LAG),
        flushes=False,
        record_bytes=(100, 4_000),
    ),
    "groups-in-motion": Profile(
        weight=1.5,
        nodes=(3, 5),
        factors=(2, 3, 3),
        meets=("kill", "stop", "pause", "partition-leader", "stall", "power-loss"),
        lengths=(MEMBER_SESSION, SESSION),
        kind="group",
    ),
    "tiered-in-motion": Profile(
        weight=1.5,
        nodes=(3, 5),
        factors=(2, 3, 3),
        meets=("kill", "stop", "power-loss", "partition-leader", "pause"),
        lengths=(SESSION, LAG),
        tiered=1,
        kind="log",
        record_bytes=(500, 4_000),
    ),
    "wiped-disks": Profile(
        weight=0.7,
        nodes=(3, 5),
        voters=(3, 5),
        factors=(3,),
        meets=("disk-wipe",),
        beside=("kill", "stop", "pause", "partition-one", "partition-leader", "power-loss"),
        lengths=(SESSION, LAG),
    ),
    "administrators-day": Profile(
        weight=1.5,
        nodes=(3, 7),
        voters=(3, 5),
        factors=(2, 2, 3),
        meets=(*_PARTITIONS, *_POWER, "kill", "stop", "pause", "stall"),
        lengths=(SESSION, FETCH, ELECTION),
        tiered=0.4,
        administered=1,
    ),
    "tiered-joins": Profile(
        weight=2.5,
        nodes=(4, 7),
        voters=(1, 3),
        factors=(2, 3),
        meets=("kill", "stop", "pause", "stall", "partition-one", "partition-leader"),
        lengths=(SESSION, LAG),
        tiered=1,
        administered=1,
        kind="log",
        record_bytes=(1_000, 4_000),
    ),
    "unclean-elections": Profile(
        weight=0.7,
        nodes=(3, 5),
        voters=(3, 5),
        factors=(2, 2, 3),
        meets=("kill", "stop", "power-loss", "pause"),
        beside=("kill", "stop", "pause", "power-loss", "partition-one", "partition-leader", "reject"),
        lengths=(SESSION, LAG),
        tiered=0,
        administered=0,
        retaining=0,
        unclean=True,
        kind="log",
    ),
}
"""By name. The first suits every campaign."""

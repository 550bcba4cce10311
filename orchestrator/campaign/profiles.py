"""Profiles of drawn clusters: each makes meetings frequent that independent draws seldom have.

A profile is a declaration: what it narrows, and what it leaves as `PROFILES["anything"]` has it. `campaign.swarm` draws
a profile first, and the rest around it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

SESSION: Final = "broker.session.timeout.ms"
LEASE: Final = "broker.lease.ms"
LAG: Final = "replica.lag.time.max.ms"
FETCH: Final = "quorum.fetch.timeout.ms"
ELECTION: Final = "quorum.election.timeout.ms"
MEMBER_SESSION: Final = "session_timeout_s"
SEGMENT: Final = "log.segment.bytes"
SNAPSHOT: Final = "metadata.log.max.record.bytes.between.snapshots"
POINTS: Final = "log.flush.offset.checkpoint.interval.ms"

BOUNDS: Final[Mapping[str, tuple[float, float]]] = {
    SESSION: (1_000, 6_000),
    LAG: (500, 6_000),
    FETCH: (500, 3_000),
    ELECTION: (300, 2_000),
    POINTS: (50, 2_000),
    SEGMENT: (8_192, 1 << 20),
    SNAPSHOT: (1_000, 20 << 20),
    "replica.fetch.wait.max.ms": (20, 1_000),
    "replica.fetch.backoff.ms": (10, 500),
    "replica.fetch.max.bytes": (4_096, 1 << 20),
    "replica.high.watermark.checkpoint.interval.ms": (50, 5_000),
    "log.index.interval.bytes": (256, 65_536),
    "record_bytes": (16, 4_000),
}
"""Numbers whose logarithms are drawn evenly: keys of brokers, and the size of a record."""
_SHORT: Final = {SESSION: (1_000, 2_000), LAG: (500, 1_500), FETCH: (500, 1_000), ELECTION: (300, 700)}
"""Times after which a cluster is soon whole again: a load then has several faults that are apart."""
_SMALL_LOGS: Final = {SEGMENT: (4_096, 32_768), "record_bytes": (100, 4_000)}
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
    """The time-outs around which faults last."""
    flushes: bool = True
    """Whether a record is on disk before it counts."""
    tiered: float = 0.2
    """The share of runs with tiered storage."""
    kind: str = ""
    """The kind of workload; empty: any."""
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Bounds of numbers instead of those in `BOUNDS`."""


PROFILES: Final[Mapping[str, Profile]] = {
    "anything": Profile(weight=2),
    "rare-quorum": Profile(
        weight=1.5,
        nodes=(3, 7),
        voters=(3, 5),
        meets=(*_PARTITIONS, *_POWER, "kill", "pause", "packet-delay", "packet-loss"),
        lengths=(FETCH, ELECTION, SESSION),
        bounds={SNAPSHOT: (500, 10_000)},
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
        weight=1,
        nodes=(2, 5),
        factors=(2, 3, 3),
        meets=("disk-slow", "disk-hang", "disk-error", "disk-full"),
        lengths=(SESSION, LAG, FETCH),
    ),
    "default-durability": Profile(
        weight=1,
        meets=("kill", "stop", "pause"),
        flushes=False,
        bounds={**_SMALL_LOGS, POINTS: (50, 500)},
    ),
    "unflushed-power-loss": Profile(
        weight=0.5,
        nodes=(3, 7),
        voters=(3, 5),
        factors=(3,),
        meets=("power-loss",),
        beside=("kill", "stop", "pause", "partition-one", "partition-leader"),
        lengths=(SESSION, LAG),
        flushes=False,
        bounds={**_SMALL_LOGS, **_SHORT, POINTS: (50, 500)},
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
        bounds={"record_bytes": (500, 4_000)},
    ),
    "wiped-disks": Profile(
        weight=0.7,
        nodes=(3, 5),
        voters=(3, 5),
        factors=(3,),
        meets=("disk-wipe",),
        beside=("kill", "stop", "pause", "partition-one", "partition-leader", "power-loss"),
        lengths=(SESSION, LAG),
        bounds=_SHORT,
    ),
}
"""By name. The first suits every campaign."""

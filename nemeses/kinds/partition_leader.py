"""A partition around a leader: the classic of split brains."""

from __future__ import annotations

from nemeses.mechanisms.partition import PartitionKind


class PartitionTheLeader(PartitionKind):
    """A node that leads something, and the others."""

    name = "partition-leader"
    deed = "packets between a partition's leader and the others are dropped, in one direction or both"
    aim = "leader"

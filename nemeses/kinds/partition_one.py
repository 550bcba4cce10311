"""A partition around one node."""

from __future__ import annotations

from nemeses.mechanisms.partition import PartitionKind


class PartitionOne(PartitionKind):
    """One node and the others; in scripts, any two groups."""

    name = "partition-one"
    deed = "packets between one node and the others are dropped, in one direction or both"
    begun_by = "cut"

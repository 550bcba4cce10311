"""Partition between one node and all others."""

from history.fault_looks import FaultMark
from nemeses.mechanisms.partition import PartitionKind


class PartitionOne(PartitionKind):
    """One node is separated from the others; in scripts, any two groups from each other."""

    name = "partition-one"
    mark = FaultMark.CIRCLE
    action = "packets between one node and the others are dropped, in one direction or both"
    injected_by = "cut"

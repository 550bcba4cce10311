"""Partition between a leader and all other nodes: the classic cause of two leaders."""

from history.fault_looks import FaultMark
from nemeses.mechanisms.partition import PartitionKind


class PartitionTheLeader(PartitionKind):
    """A node that leads a partition or the quorum is separated from the others."""

    name = "partition-leader"
    mark = FaultMark.STAR
    action = "packets between a leader and the others are dropped, in one direction or both"
    aim = "leader"

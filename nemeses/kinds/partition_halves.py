"""Partition into two halves of the cluster."""

from random import Random

from history.fault_looks import FaultMark
from nemeses.mechanisms.partition import PartitionKind
from nemeses.targeting import Aim, ClusterView


class PartitionHalves(PartitionKind):
    """The smaller half of the nodes is separated from the larger one."""

    name = "partition-halves"
    mark = FaultMark.SQUARE
    action = "packets between two halves of the cluster are dropped, in one direction or both"
    aim = "any"

    def targets(self, aim: Aim, view: ClusterView, chooser: Random) -> tuple[str, ...]:
        shuffled = chooser.sample(sorted(view.nodes), len(view.nodes))
        return tuple(sorted(shuffled[: len(shuffled) // 2]))

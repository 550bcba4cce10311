"""Power loss of all nodes at the same moment, so that no process memory survives."""

from random import Random

from history.fault_looks import FaultMark
from nemeses.mechanisms.power import PowerLossKind
from nemeses.targeting import Aim, ClusterView


class PowerLossAll(PowerLossKind):
    """All nodes lose power."""

    name = "power-loss-all"
    mark = FaultMark.STAR
    action = "as `power-loss`, for all nodes at the same moment"
    proven_by = "as for `power-loss`, on every node"
    aim = "any"

    def targets(self, aim: Aim, view: ClusterView, chooser: Random) -> tuple[str, ...]:
        return view.nodes

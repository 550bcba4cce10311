"""Power loss of one machine, or of all."""

from random import Random

from history.fault_looks import FaultMark
from nemeses.mechanisms.power import PowerLossKind
from nemeses.parameters import Files
from nemeses.targeting import Aim, ClusterView


class PowerLoss(PowerLossKind):
    """One node loses power."""

    name = "power-loss"
    mark = FaultMark.CIRCLE
    injected_by = "power-loss"
    parameters = (
        *PowerLossKind.parameters,
        Files(
            "loses",
            "files that must lose unsynced data in the power cut; if they lose nothing, the evidence is not sufficient",
        ),
    )


class PowerLossAll(PowerLossKind):
    """All nodes lose power at the same moment, so that no process memory survives."""

    name = "power-loss-all"
    mark = FaultMark.STAR
    action = "as `power-loss`, for all nodes at the same moment"
    proven_by = "as for `power-loss`, on every node"
    aim = "any"

    def targets(self, aim: Aim, view: ClusterView, chooser: Random) -> tuple[str, ...]:
        return view.nodes

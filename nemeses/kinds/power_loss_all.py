"""The whole cluster loses power at the same moment: nobody is left who remembers."""

from __future__ import annotations

from random import Random

from nemeses.mechanisms.power import PowerLossKind
from nemeses.targeting import Aim, ClusterView


class PowerLossAll(PowerLossKind):
    """The power of all nodes goes."""

    name = "power-loss-all"
    deed = "the same, to all nodes at the same moment"
    proven_by = "as for `power-loss`, on every node"
    aim = "any"

    def targets(self, aim: Aim, view: ClusterView, chooser: Random) -> tuple[str, ...]:
        return view.nodes

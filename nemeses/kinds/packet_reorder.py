"""Packet reordering: later packets overtake some packets, and TCP holds the later ones back."""

from history.fault_looks import FaultMark
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Fault
from nemeses.kind import listed
from nemeses.mechanisms.packets import ShareKind
from nemeses.parameters import Parameter


class PacketReorder(ShareKind):
    """Later packets overtake some packets from a node."""

    name = "packet-reorder"
    mark = FaultMark.DIAMOND
    action = (
        "the simulated network holds back some packets from the node to the others, so that later ones overtake them"
    )
    proven_by = (
        "a burst of probe datagrams (false-negative probability 1e-9) shows overtaken ones, and at most the requested "
        "share"
    )
    seen = (EvidenceRule("overtaken", least=1),)
    parameters = (
        Parameter(
            "percent",
            "%",
            "share of the packets from the node to the others that are held back, up to 50 ms",
            1,
            50,
            drawn=(1.0, 50.0),
        ),
    )
    effect = "overtaken"
    told = "were overtaken"
    injected_by = "reorder"

    def sentence(self, fault: Fault) -> str:
        percent = float(fault.parameters["percent"])
        return f"later packets overtake {percent:g} % of the packets from {listed(fault.targets)} to the other nodes"

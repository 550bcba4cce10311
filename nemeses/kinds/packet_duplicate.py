"""Packet duplication: some packets arrive twice, and TCP ignores the second copy."""

from history.fault_looks import FaultMark
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Fault
from nemeses.kind import listed
from nemeses.mechanisms.packets import ShareKind
from nemeses.parameters import Parameter


class PacketDuplicate(ShareKind):
    """Some packets from a node arrive twice."""

    name = "packet-duplicate"
    mark = FaultMark.SQUARE
    action = "the simulated network duplicates some packets from the node to the others"
    proven_by = (
        "a burst of probe datagrams (false-negative probability 1e-9) shows duplicates, and at most the requested share"
    )
    seen = (EvidenceRule("twice", least=1),)
    parameters = (
        Parameter(
            "percent",
            "%",
            "share of the packets from the node to the others that arrive twice",
            1,
            50,
            drawn=(1.0, 50.0),
        ),
    )
    effect = "twice"
    told = "arrived twice"
    injected_by = "duplicate"

    def sentence(self, fault: Fault) -> str:
        percent = float(fault.parameters["percent"])
        return f"{percent:g} % of the packets from {listed(fault.targets)} to the other nodes arrive twice"

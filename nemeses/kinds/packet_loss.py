"""Packet loss: some packets from a node do not arrive, and TCP retransmits them."""

from history.fault_looks import FaultMark
from installation.counted import counted
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Fault
from nemeses.kind import Facts, listed
from nemeses.mechanisms.netem import NetemKind, Rule
from nemeses.parameters import Parameter


class PacketLoss(NetemKind):
    """Some packets from a node to the others are lost."""

    name = "packet-loss"
    mark = FaultMark.TRIANGLE_DOWN
    action = "netem drops some packets from the node to the other nodes"
    proven_by = (
        "a burst of probe datagrams (false-negative probability 1e-9) shows counted drops, and at most the requested "
        "share"
    )
    seen = (EvidenceRule("dropped", least=1),)
    parameters = (
        Parameter(
            "percent",
            "%",
            "share of the packets from the node to the others that are lost",
            1,
            50,  # above this control connections fail, too
            drawn=(1.0, 50.0),
            remedy="to drop all packets, use cut",
        ),
    )
    injected_by = "lose"

    def rule(self, fault: Fault) -> Rule:
        percent = float(fault.parameters["percent"])
        return Rule(self.name, f"loss {percent:g}%", share=percent / 100)

    def sentence(self, fault: Fault) -> str:
        percent = float(fault.parameters["percent"])
        return f"{percent:g} % of the packets from {listed(fault.targets)} to the other nodes are lost"

    def phrase(self, facts: Facts, heal: Facts) -> str:
        return f"{facts.get('dropped', 0)} of {counted(facts.get('seen', 0), 'packet')} dropped"

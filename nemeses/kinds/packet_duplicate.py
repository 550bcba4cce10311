"""Packet duplication: some packets arrive twice, and TCP ignores the second copy."""

from __future__ import annotations

from typing import Any

from history.fault_looks import FaultMark
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault
from nemeses.kind import Facts, RandomDraw, listed, node_facts
from nemeses.mechanisms.packets import WireEffects, WireKind
from nemeses.parameters import Parameter

_PERCENT = Parameter(
    "percent", "%", "share of the packets from the node to the others that arrive twice", 1, 50, drawn=(1.0, 50.0)
)


class PacketDuplicate(WireKind):
    """Some packets from a node arrive twice."""

    name = "packet-duplicate"
    mark = FaultMark.SQUARE
    action = "the simulated network duplicates some packets from the node to the others"
    proven_by = (
        "a burst of probe datagrams (false-negative probability 1e-9) shows duplicates, and at most the requested share"
    )
    seen = (EvidenceRule("twice", least=1),)
    parameters = (_PERCENT,)
    injected_by = "duplicate"

    def inject(self, by: WireEffects, fault: Fault) -> Evidence:
        return by.disturb(fault.targets, "twice", float(fault.parameters["percent"]) / 100)

    def heal(self, by: WireEffects, fault: Fault) -> Evidence:
        return by.calm(fault.targets, "twice", float(fault.parameters["percent"]) / 100)

    def draw(self, drawn: RandomDraw) -> dict[str, Any]:
        return {"percent": round(_PERCENT.draw(drawn.rng()), 1)}

    def sentence(self, fault: Fault) -> str:
        percent = float(fault.parameters["percent"])
        return f"{percent:g} % of the packets from {listed(fault.targets)} to the other nodes arrive twice"

    def proof(self, effect: Facts, heal: Facts) -> str:
        return "; ".join(
            f"{name}: {facts.get('twice', 0)} of {facts.get('sent', 0)} probes arrived twice"
            for name, facts in node_facts(effect).items()
        )

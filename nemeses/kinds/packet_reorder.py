"""Packet reordering: later packets overtake some packets, and TCP holds the later ones back."""

from __future__ import annotations

from typing import Any

from history.fault_looks import FaultMark
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault
from nemeses.kind import Facts, RandomDraw, listed, node_facts
from nemeses.mechanisms.packets import WireEffects, WireKind
from nemeses.parameters import Parameter

_PERCENT = Parameter(
    "percent",
    "%",
    "share of the packets from the node to the others that are held back, up to 50 ms",
    1,
    50,
    drawn=(1.0, 50.0),
)


class PacketReorder(WireKind):
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
    parameters = (_PERCENT,)
    injected_by = "reorder"

    def inject(self, by: WireEffects, fault: Fault) -> Evidence:
        return by.disturb(fault.targets, "overtaken", float(fault.parameters["percent"]) / 100)

    def heal(self, by: WireEffects, fault: Fault) -> Evidence:
        return by.calm(fault.targets, "overtaken", float(fault.parameters["percent"]) / 100)

    def draw(self, drawn: RandomDraw) -> dict[str, Any]:
        return {"percent": round(_PERCENT.draw(drawn.rng()), 1)}

    def sentence(self, fault: Fault) -> str:
        percent = float(fault.parameters["percent"])
        return f"later packets overtake {percent:g} % of the packets from {listed(fault.targets)} to the other nodes"

    def proof(self, effect: Facts, heal: Facts) -> str:
        return "; ".join(
            f"{name}: {facts.get('overtaken', 0)} of {facts.get('sent', 0)} probes were overtaken"
            for name, facts in node_facts(effect).items()
        )

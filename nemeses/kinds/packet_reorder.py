"""Packets that are overtaken by later ones: TCP waits for them with all that came meanwhile."""

from __future__ import annotations

from typing import Any

from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault
from nemeses.kind import Facts, RandomDraw, listed, node_facts
from nemeses.mechanisms.packets import WireEffects, WireKind
from nemeses.parameters import Parameter

_PERCENT = Parameter(
    "percent",
    "%",
    "how many of the packets that the node sends to the others are held back, up to 50 ms",
    1,
    50,
    drawn=(1.0, 50.0),
)


class PacketReorder(WireKind):
    """Some of what a node sends is overtaken by later packets."""

    name = "packet-reorder"
    deed = "the simulated wire: some of what the node sends to the others is overtaken by later packets"
    proven_by = (
        "of a burst of probe datagrams, so many that one in a thousand million such bursts would pass whole, "
        "some were overtaken, and not more than asked for"
    )
    seen = (EvidenceRule("overtaken", least=1),)
    parameters = (_PERCENT,)
    begun_by = "reorder"

    def inflict(self, by: WireEffects, fault: Fault) -> Evidence:
        return by.disturb(fault.targets, "overtaken", float(fault.parameters["percent"]) / 100)

    def heal(self, by: WireEffects, fault: Fault) -> Evidence:
        return by.calm(fault.targets, "overtaken")

    def draw(self, lot: RandomDraw) -> dict[str, Any]:
        return {"percent": round(_PERCENT.draw(lot.rng()), 1)}

    def sentence(self, fault: Fault) -> str:
        percent = float(fault.parameters["percent"])
        return f"{percent:g} % of what {listed(fault.targets)} sends to the other nodes is overtaken by later packets"

    def proof(self, seen: Facts, after: Facts) -> str:
        return "; ".join(
            f"{name}: {facts.get('overtaken', 0)} of {facts.get('sent', 0)} probes were overtaken"
            for name, facts in node_facts(seen).items()
        )

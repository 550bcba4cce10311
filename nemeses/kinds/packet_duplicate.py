"""Packets that arrive twice: TCP takes the second for nothing."""

from __future__ import annotations

from typing import Any

from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault
from nemeses.kind import Facts, RandomDraw, listed, node_facts
from nemeses.mechanisms.packets import WireEffects, WireKind
from nemeses.parameters import Parameter

_PERCENT = Parameter(
    "percent", "%", "how many of the packets that the node sends to the others arrive twice", 1, 50, drawn=(1.0, 50.0)
)


class PacketDuplicate(WireKind):
    """Some of what a node sends arrives twice."""

    name = "packet-duplicate"
    deed = "the simulated wire: some of what the node sends to the others arrives twice"
    proven_by = (
        "of a burst of probe datagrams, so many that one in a thousand million such bursts would pass whole, "
        "some arrived twice, and not more than asked for"
    )
    seen = (EvidenceRule("twice", least=1),)
    parameters = (_PERCENT,)
    begun_by = "duplicate"

    def inflict(self, by: WireEffects, fault: Fault) -> Evidence:
        return by.disturb(fault.targets, "twice", float(fault.parameters["percent"]) / 100)

    def heal(self, by: WireEffects, fault: Fault) -> Evidence:
        return by.calm(fault.targets, "twice")

    def draw(self, lot: RandomDraw) -> dict[str, Any]:
        return {"percent": round(_PERCENT.draw(lot.rng()), 1)}

    def sentence(self, fault: Fault) -> str:
        percent = float(fault.parameters["percent"])
        return f"{percent:g} % of what {listed(fault.targets)} sends to the other nodes arrives twice"

    def proof(self, seen: Facts, after: Facts) -> str:
        return "; ".join(
            f"{name}: {facts.get('twice', 0)} of {facts.get('sent', 0)} probes arrived twice"
            for name, facts in node_facts(seen).items()
        )

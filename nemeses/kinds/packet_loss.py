"""Packets that do not all arrive: what TCP makes up for, by and by."""

from __future__ import annotations

from typing import Any

from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault
from nemeses.kind import Facts, RandomDraw, listed, node_facts
from nemeses.mechanisms.netem import Netem, NetemKind, Rule
from nemeses.parameters import Parameter

_PERCENT = Parameter(
    "percent",
    "%",
    "how many of the packets that the node sends to the others are lost",
    1,
    50,  # beyond it control connections do not work either
    drawn=(1.0, 50.0),
    remedy="to lose everything, use cut",
)


class PacketLoss(NetemKind):
    """Some of what a node sends to the others is lost."""

    name = "packet-loss"
    deed = "netem on the node's device to the other nodes"
    proven_by = (
        "of a burst of probe datagrams, so many that one in a thousand million such bursts would pass whole, some were "
        "dropped and counted, and not more than asked for"
    )
    seen = (EvidenceRule("dropped", least=1),)
    parameters = (_PERCENT,)
    begun_by = "lose"

    def inflict(self, by: Netem, fault: Fault) -> Evidence:
        percent = float(fault.parameters["percent"])
        return by.disturb(fault.targets, Rule(self.name, f"loss {percent:g}%", share=percent / 100))

    def draw(self, lot: RandomDraw) -> dict[str, Any]:
        return {"percent": round(_PERCENT.draw(lot.rng()), 1)}

    def sentence(self, fault: Fault) -> str:
        return (
            f"{float(fault.parameters['percent']):g} % of what {listed(fault.targets)} sends to the other nodes is lost"
        )

    def proof(self, seen: Facts, after: Facts) -> str:
        return "; ".join(
            f"{name}: {facts.get('dropped', 0)} of {facts.get('seen', 0)} packets dropped"
            for name, facts in node_facts(seen).items()
        )

"""Connections that are reset, again and again: as if something between the nodes had forgotten them."""

from __future__ import annotations

from typing import Any

from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault
from nemeses.kind import Facts, RandomDraw, facts_of, listed, node_facts
from nemeses.mechanisms.packets import WireEffects, WireKind
from nemeses.parameters import Parameter

_EVERY = Parameter("every_ms", "ms", "after how long all are reset again", 20, 10_000, drawn=(50.0, 2_000.0))


class ConnectionReset(WireKind):
    """All connections of a node with others are reset, at both ends, until the fault is healed."""

    name = "connection-reset"
    deed = "the simulated wire: all connections of the node are reset at both ends, again and again"
    proven_by = "how many connections there were to reset; when healed, none is for longer than it took"
    seen = (EvidenceRule("broken", least=1),)
    parameters = (_EVERY,)
    begun_by = "reset"

    def inflict(self, by: WireEffects, fault: Fault) -> Evidence:
        return by.reset(fault.targets, float(fault.parameters["every_ms"]) / 1e3)

    def heal(self, by: WireEffects, fault: Fault) -> Evidence:
        return by.leave_alone(fault.targets)

    def draw(self, lot: RandomDraw) -> dict[str, Any]:
        return {"every_ms": round(_EVERY.draw(lot.rng()))}

    def sentence(self, fault: Fault) -> str:
        every_ms = float(fault.parameters["every_ms"])
        return f"all connections of {listed(fault.targets)} are reset every {every_ms:g} ms"

    def proof(self, seen: Facts, after: Facts) -> str:
        return "; ".join(
            f"{name}: {facts.get('broken', 0) + facts_of(after, name).get('broken_again', 0)} ends of connections reset"
            for name, facts in node_facts(seen).items()
        )

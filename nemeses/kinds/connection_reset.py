"""Connection reset: all connections of a node are reset repeatedly, as by a middlebox that lost its state."""

from typing import Any

from history.fault_looks import FaultMark
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault
from nemeses.kind import Facts, RandomDraw, listed
from nemeses.mechanisms.packets import WireEffects, WireKind
from nemeses.parameters import Parameter

_EVERY = Parameter("every_ms", "ms", "interval between two resets", 20, 10_000, drawn=(50.0, 2_000.0))


class ConnectionReset(WireKind):
    """All connections between a node and others are reset at both ends, repeatedly until the heal."""

    name = "connection-reset"
    mark = FaultMark.CROSS
    action = "the simulated network resets all connections of the node at both ends, repeatedly"
    proven_by = "the number of reset connections; after the heal, no connection is reset for longer than the interval"
    seen = (EvidenceRule("broken", least=1),)
    parameters = (_EVERY,)
    rests_on = frozenset({"machine", "process", "links"})
    injected_by = "reset"

    def inject(self, by: WireEffects, fault: Fault) -> Evidence:
        return by.reset(fault.targets, float(fault.parameters["every_ms"]) / 1e3)

    def heal(self, by: WireEffects, fault: Fault) -> Evidence:
        return by.leave_alone(fault.targets, float(fault.parameters["every_ms"]) / 1e3)

    def draw(self, drawn: RandomDraw) -> dict[str, Any]:
        return {"every_ms": round(_EVERY.draw(drawn.rng()))}

    def sentence(self, fault: Fault) -> str:
        every_ms = float(fault.parameters["every_ms"])
        return f"all connections of {listed(fault.targets)} are reset every {every_ms:g} ms"

    def phrase(self, facts: Facts, heal: Facts) -> str:
        return f"{facts.get('broken', 0) + heal.get('broken_again', 0)} connection ends reset"

"""Slow object store: each operation takes longer."""

from history.fault_looks import FaultMark
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Fault
from nemeses.kind import Facts
from nemeses.mechanisms.object_store import ObjectStoreKind, milliseconds
from nemeses.parameters import Parameter
from nemeses.ports import Objects


class ObjectsSlow(ObjectStoreKind):
    """Evidence: a probe of the store while the fault is in force, and another after the heal."""

    name = "objects-slow"
    mark = FaultMark.TRIANGLE_UP
    action = "each operation of the simulated object store takes longer"
    proven_by = "a probe takes at least this long; after the heal it ends"
    seen = (EvidenceRule("probe_ms", least=1),)
    injected_by = "slow-store"
    parameters = (
        Parameter("delay_ms", "ms", "additional duration of each operation", 1, 60_000, drawn=(20.0, 3_000.0)),
    )

    def change(self, fault: Fault, objects: Objects) -> dict[str, object]:
        objects.slow_down(float(fault.parameters["delay_ms"]) / 1e3)
        result, took_s = objects.probe("list", 60.0)
        return {"probe": result, "probe_ms": milliseconds(took_s)}

    def is_shown(self, fault: Fault, facts: Facts) -> bool:
        return float(facts["probe_ms"]) >= float(fault.parameters["delay_ms"])

    def sentence(self, fault: Fault) -> str:
        return f"each operation of the object store takes {float(fault.parameters['delay_ms']):g} ms longer"

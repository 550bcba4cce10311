"""Hung object store: no operation ends."""

from history.fault_looks import FaultMark
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Fault
from nemeses.mechanisms.object_store import HANG_S, ObjectStoreKind
from nemeses.ports import Objects


class ObjectsHung(ObjectStoreKind):
    """Evidence: a probe of the store while the fault is in force, and another after the heal."""

    name = "objects-hung"
    mark = FaultMark.SQUARE
    action = "no operation of the simulated object store ends"
    proven_by = "a probe does not end within 2 s; after the heal it does"
    seen = (EvidenceRule("probe", values=("silent",)),)
    injected_by = "hang-store"

    def change(self, fault: Fault, objects: Objects) -> dict[str, object]:
        objects.hang()
        return {"probe": objects.probe("list", HANG_S)[0]}

    def sentence(self, fault: Fault) -> str:
        return "no operation of the object store ends"

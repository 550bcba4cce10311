"""Failing object store: each operation ends with an error."""

from history.fault_looks import FaultMark
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Fault
from nemeses.mechanisms.object_store import HANG_S, REASON, ObjectStoreKind
from nemeses.ports import Objects


class ObjectsFailing(ObjectStoreKind):
    """Evidence: a probe of the store while the fault is in force, and another after the heal."""

    name = "objects-failing"
    mark = FaultMark.CIRCLE
    action = "each operation of the simulated object store ends with an error"
    proven_by = "a probe gets the error; after the heal it does not"
    seen = (EvidenceRule("probe", values=(REASON,)),)
    injected_by = "fail-store"

    def change(self, fault: Fault, objects: Objects) -> dict[str, object]:
        objects.fail(("put", "get", "list", "delete"), REASON)
        return {"probe": objects.probe("list", HANG_S)[0]}

    def sentence(self, fault: Fault) -> str:
        return "each operation of the object store fails"

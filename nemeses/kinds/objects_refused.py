"""Refusing object store: objects can be read, and none can be written or deleted."""

from history.fault_looks import FaultMark
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Fault
from nemeses.mechanisms.object_store import DONE, HANG_S, REASON, ObjectStoreKind
from nemeses.ports import Objects


class ObjectsRefused(ObjectStoreKind):
    """Evidence: a probe of the store while the fault is in force, and another after the heal."""

    name = "objects-refused"
    mark = FaultMark.DIAMOND
    action = "the simulated object store refuses new objects and deletions"
    proven_by = "a write of a probe is refused and a listing works; after the heal both work"
    seen = (EvidenceRule("probe", values=(REASON,)), EvidenceRule("listing", values=(DONE,)))
    injected_by = "refuse-objects"

    def change(self, fault: Fault, objects: Objects) -> dict[str, object]:
        objects.fail(("put", "delete"), REASON)
        return {"probe": objects.probe("put", HANG_S)[0], "listing": objects.probe("list", HANG_S)[0]}

    def sentence(self, fault: Fault) -> str:
        return "the object store refuses new objects and deletions"

"""Partial uploads: an upload fails in its middle and leaves what was written."""

from history.fault_looks import FaultMark
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Fault
from nemeses.mechanisms.object_store import DONE, HANG_S, REASON, ObjectStoreKind
from nemeses.ports import Objects


class ObjectsPartial(ObjectStoreKind):
    """Evidence: a probe of the store while the fault is in force, and another after the heal."""

    name = "objects-partial"
    mark = FaultMark.TRIANGLE_DOWN
    action = "each upload to the simulated object store fails in its middle, and leaves a part of the object"
    proven_by = "a write of a probe fails and leaves an object; after the heal it ends"
    seen = (EvidenceRule("probe", values=(REASON,)), EvidenceRule("listing", values=(DONE,)))
    injected_by = "break-uploads"

    def change(self, fault: Fault, objects: Objects) -> dict[str, object]:
        objects.keep_part(REASON)
        return {"probe": objects.probe("put", HANG_S)[0], "listing": objects.probe("list", HANG_S)[0]}

    def sentence(self, fault: Fault) -> str:
        return "uploads to the object store fail in their middle and leave a part of the object"

"""Partial uploads: an upload fails in its middle and leaves what was written."""

from __future__ import annotations

from history.damage import Damage
from history.fault_looks import FaultMark
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault
from nemeses.mechanisms.object_store import DONE, HANG_S, REASON, ObjectStoreKind, ObjectTroubles
from nemeses.ports import Objects


class ObjectsPartial(ObjectStoreKind):
    """Evidence: a probe of the store while the fault is in force, and another after the heal."""

    name = "objects-partial"
    mark = FaultMark.TRIANGLE_DOWN
    action = "each upload to the simulated object store fails in its middle, and leaves a part of the object"
    proven_by = "a write of a probe fails and leaves an object; after the heal it ends"
    destroys = frozenset({Damage.SPEED})
    seen = (EvidenceRule("probe", values=(REASON,)),)
    healed = (EvidenceRule("probe", values=("done",)),)
    injected_by = "break-uploads"

    def inject(self, by: ObjectTroubles, fault: Fault) -> Evidence:
        def act(objects: Objects) -> dict[str, object]:
            objects.keep_part(REASON)
            return {"probe": objects.probe("put", HANG_S)[0], "listing": objects.probe("list", HANG_S)[0]}

        return by.trouble(fault, act, lambda facts: facts == {"probe": REASON, "listing": DONE})

    def sentence(self, fault: Fault) -> str:
        return "uploads to the object store fail in their middle and leave a part of the object"

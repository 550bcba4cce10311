"""Failing object store: each operation ends with an error."""

from __future__ import annotations

from history.damage import Damage
from history.fault_looks import FaultMark
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault
from nemeses.mechanisms.object_store import HANG_S, REASON, ObjectStoreKind, ObjectTroubles
from nemeses.ports import Objects


class ObjectsFailing(ObjectStoreKind):
    """Evidence: a probe of the store while the fault is in force, and another after the heal."""

    name = "objects-failing"
    mark = FaultMark.CIRCLE
    action = "each operation of the simulated object store ends with an error"
    proven_by = "a probe gets the error; after the heal it does not"
    destroys = frozenset({Damage.SPEED})
    seen = (EvidenceRule("probe", values=(REASON,)),)
    healed = (EvidenceRule("probe", values=("done",)),)
    injected_by = "fail-store"

    def inject(self, by: ObjectTroubles, fault: Fault) -> Evidence:
        def act(objects: Objects) -> dict[str, object]:
            objects.fail(("put", "get", "list", "delete"), REASON)
            return {"probe": objects.probe("list", HANG_S)[0]}

        return by.trouble(fault, act, lambda facts: facts["probe"] == REASON)

    def sentence(self, fault: Fault) -> str:
        return "each operation of the object store fails"

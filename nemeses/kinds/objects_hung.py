"""Hung object store: no operation ends."""

from __future__ import annotations

from history.damage import Damage
from history.fault_looks import FaultMark
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault
from nemeses.mechanisms.object_store import HANG_S, ObjectStoreKind, ObjectTroubles
from nemeses.ports import Objects


class ObjectsHung(ObjectStoreKind):
    """Evidence: a probe of the store while the fault is in force, and another after the heal."""

    name = "objects-hung"
    mark = FaultMark.SQUARE
    action = "no operation of the simulated object store ends"
    proven_by = "a probe does not end within 2 s; after the heal it does"
    destroys = frozenset({Damage.SPEED})
    seen = (EvidenceRule("probe", values=("silent",)),)
    healed = (EvidenceRule("probe", values=("done",)),)
    injected_by = "hang-store"

    def inject(self, by: ObjectTroubles, fault: Fault) -> Evidence:
        def act(objects: Objects) -> dict[str, object]:
            objects.hang()
            return {"probe": objects.probe("list", HANG_S)[0]}

        return by.trouble(fault, act, lambda facts: facts["probe"] == "silent")

    def sentence(self, fault: Fault) -> str:
        return "no operation of the object store ends"

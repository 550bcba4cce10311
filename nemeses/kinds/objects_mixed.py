"""Mixed-up store: an object's name returns another segment's object, and objects of unknown segments appear."""

from __future__ import annotations

from history.damage import Damage
from history.fault_looks import FaultMark
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault
from nemeses.mechanisms.object_store import HANG_S, ObjectStoreKind, ObjectTroubles
from nemeses.ports import Objects


class ObjectsMixed(ObjectStoreKind):
    """As after a wrong restore or a copy between buckets. Evidence: a probe of the store while the fault is in force,
    and another after the heal."""

    name = "objects-mixed"
    mark = FaultMark.CROSS
    action = (
        "the simulated object store returns another segment's object, and has copies of objects under the names of "
        "segments that no broker uploaded"
    )
    proven_by = "a probe reads the object of another name; after the heal it does not"
    destroys = frozenset({Damage.SPEED})
    seen = (EvidenceRule("reads_own", values=(False,)),)
    healed = (EvidenceRule("probe", values=("done",)),)
    injected_by = "mix-up-store"

    def inject(self, by: ObjectTroubles, fault: Fault) -> Evidence:
        def act(objects: Objects) -> dict[str, object]:
            strays = objects.mix_up()
            return {"probe": "two reads", "reads_own": objects.reads_own(HANG_S), "strays": strays}

        return by.trouble(fault, act, lambda facts: facts["reads_own"] is False)

    def sentence(self, fault: Fault) -> str:
        return "the object store returns objects of other segments, and has some of unknown ones"

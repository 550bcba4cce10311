"""Mixed-up store: an object's name returns another segment's object, and objects of unknown segments appear."""

from history.fault_looks import FaultMark
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Fault
from nemeses.mechanisms.object_store import HANG_S, ObjectStoreKind
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
    seen = (EvidenceRule("reads_own", values=(False,)),)
    injected_by = "mix-up-store"

    def change(self, fault: Fault, objects: Objects) -> dict[str, object]:
        strays = objects.mix_up()
        return {"probe": "two reads", "reads_own": objects.reads_own(HANG_S), "strays": strays}

    def sentence(self, fault: Fault) -> str:
        return "the object store returns objects of other segments, and has some of unknown ones"

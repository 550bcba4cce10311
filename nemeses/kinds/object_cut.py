"""Cut object: an object of the store ends in its middle, as after half an upload."""

from __future__ import annotations

from history.damage import Damage
from history.fault_looks import FaultMark
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Fault
from nemeses.mechanisms.store import ObjectKind


class ObjectCut(ObjectKind):
    """Evidence: the digest of the object before, during and after the fault. The target is the node through which the
    store is changed."""

    name = "object-cut"
    mark = FaultMark.TRIANGLE_DOWN
    action = "an object with the records of a remote segment is cut in its middle; the heal puts it back"
    proven_by = "its digest has changed; after the heal it is that from before"
    destroys = frozenset({Damage.SPEED})
    seen = (EvidenceRule("size", least=1), EvidenceRule("after", unlike=("missing",), differs_from="before"))
    healed = (EvidenceRule("restored", unlike=("nothing",)),)
    injected_by = "cut-object"
    change = "cut"

    def sentence(self, fault: Fault) -> str:
        return "the first object of the store ends in its middle, for all nodes"

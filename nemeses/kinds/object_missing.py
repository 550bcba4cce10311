"""Missing object: an object of the store is gone, and comes back at the heal."""

from __future__ import annotations

from history.damage import Damage
from history.fault_looks import FaultMark
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Fault
from nemeses.mechanisms.store import ObjectKind


class ObjectMissing(ObjectKind):
    """Evidence: the digest of the object before, during and after the fault. The target is the node through which the
    store is changed."""

    name = "object-missing"
    mark = FaultMark.TRIANGLE_UP
    action = "an object with the records of a remote segment is removed from the store; the heal puts it back"
    proven_by = "the object is gone; after the heal its digest is that from before"
    destroys = frozenset({Damage.SPEED})
    seen = (EvidenceRule("size", least=1), EvidenceRule("after", values=("missing",)))
    healed = (EvidenceRule("restored", unlike=("nothing",)),)
    injected_by = "remove-object"
    change = "missing"

    def sentence(self, fault: Fault) -> str:
        return "the first object of the store is missing, for all nodes"

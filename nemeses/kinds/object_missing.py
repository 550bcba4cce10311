"""Missing object: an object of the store is gone, and comes back at the heal."""

from history.fault_looks import FaultMark
from nemeses.evidence_rule import EvidenceRule
from nemeses.mechanisms.store import ObjectKind


class ObjectMissing(ObjectKind):
    name = "object-missing"
    mark = FaultMark.TRIANGLE_UP
    action = "an object with the records of a remote segment is removed from the store; the heal puts it back"
    proven_by = "the object is gone; after the heal its digest is that from before"
    injected_by = "remove-object"
    change = "missing"
    state = "is missing"
    seen = (EvidenceRule("size", least=1), EvidenceRule("after", values=("missing",)))

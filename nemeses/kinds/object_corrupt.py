"""Corrupt object: bytes of an object of the store change at rest."""

from __future__ import annotations

from history.damage import Damage
from history.fault_looks import FaultMark
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Fault
from nemeses.mechanisms.store import ObjectKind


class ObjectCorrupt(ObjectKind):
    """Evidence: the digest of the object before, during and after the fault. The target is the node through which the
    store is changed."""

    name = "object-corrupt"
    mark = FaultMark.STAR
    action = "16 bytes of an object with the records of a remote segment are overwritten; the heal puts it back"
    proven_by = "its digest has changed; after the heal it is that from before"
    destroys = frozenset({Damage.SPEED})
    seen = (EvidenceRule("size", least=1), EvidenceRule("after", unlike=("missing",), differs_from="before"))
    healed = (EvidenceRule("restored", unlike=("nothing",)),)
    injected_by = "corrupt-object"
    change = "corrupt"

    def sentence(self, fault: Fault) -> str:
        return "bytes of the first object of the store have changed, for all nodes"

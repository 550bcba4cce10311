"""Faults of the store of remote segments: of an object in it, and of a node's way to it.

Evidence of the latter: what a probe on the node sees of the store and can write to it, before, during and after the
fault.
"""

from typing import Any

from history.fault_looks import FaultMark
from history.journal.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault
from nemeses.kind import RandomDraw
from nemeses.mechanisms.store import CoveringKind, ObjectKind, StoreTroubles
from nemeses.parameters import Choice


class ObjectCorrupt(ObjectKind):
    """Bytes of an object change at rest, or a segment's objects become another segment's. What is damaged may be
    unreadable until the heal. A reader gets an error, and never other data. The CRCs and offsets of another segment's
    batches may be valid: only the digest shows that the object is another one."""

    name = "object-corrupt"
    mark = FaultMark.STAR
    action = (
        "16 bytes of an object with the records of a remote segment are overwritten, or all objects of the segment are "
        "replaced by those of another one; the heal puts them back. Its records may be unreadable meanwhile, which is "
        "an error for their readers, and never other records"
    )
    proven_by = "its digest has changed; after the heal it is that from before"
    injected_by = "corrupt-object"
    parameters = (
        Choice(
            "replaced",
            "a segment, which a seed chooses, gets the objects of another segment, as after a wrong restore",
            scripted=True,
        ),
    )
    change = "corrupt"
    state = "has changed bytes"

    def inject(self, by: StoreTroubles, fault: Fault) -> Evidence:
        return by.change(fault, _change_of(fault))

    def draw(self, drawn: RandomDraw) -> dict[str, Any]:
        return {"replaced": drawn.tear}

    def sentence(self, fault: Fault) -> str:
        if _change_of(fault) == self.change:
            return super().sentence(fault)
        return "the objects of a segment in the store are those of another segment, for all nodes"


def _change_of(fault: Fault) -> str:
    return "corrupt" if fault.parameters.get("replaced") is None else "replaced"


class ObjectCut(ObjectKind):
    """An object of the store ends in its middle, as after half an upload."""

    name = "object-cut"
    mark = FaultMark.TRIANGLE_DOWN
    action = "an object with the records of a remote segment is cut in its middle; the heal puts it back"
    proven_by = "its digest has changed; after the heal it is that from before"
    injected_by = "cut-object"
    change = "cut"
    state = "ends in its middle"


class ObjectMissing(ObjectKind):
    """An object of the store is gone, and comes back at the heal."""

    name = "object-missing"
    mark = FaultMark.TRIANGLE_UP
    action = "an object with the records of a remote segment is removed from the store; the heal puts it back"
    proven_by = "the object is gone; after the heal its digest is that from before"
    injected_by = "remove-object"
    change = "missing"
    state = "is missing"
    seen = (EvidenceRule("size", least=1), EvidenceRule("after", values=("missing",)))


class StoreDown(CoveringKind):
    """Store down: it has no objects for a node, and takes none."""

    name = "store-down"
    mark = FaultMark.CIRCLE
    action = "the store of remote segments is empty and read-only for the node"
    statement = "the store of remote segments is away for {nodes}"
    proven_by = "a probe on the node sees no object and cannot write (EROFS); after the heal it can write"
    seen = (EvidenceRule("objects", values=(0,)), EvidenceRule("write", values=("EROFS",)))
    injected_by = "take-store"
    cover = "away"


class StoreFull(CoveringKind):
    """Full store: it has no space for objects of a node."""

    name = "store-full"
    mark = FaultMark.DIAMOND
    action = "the store of remote segments has no space for what the node writes"
    statement = "the store of remote segments has no space for {nodes}"
    proven_by = "a probe on the node gets ENOSPC; after the heal it can write"
    seen = (EvidenceRule("write", values=("ENOSPC",)),)
    injected_by = "fill-store"
    cover = "full"


class StoreReadOnly(CoveringKind):
    """Read-only store: it refuses writes and deletions of a node."""

    name = "store-read-only"
    mark = FaultMark.SQUARE
    action = "the store of remote segments is read-only for the node"
    statement = "the store of remote segments refuses what {nodes} writes"
    proven_by = "a probe on the node cannot write (EROFS); after the heal it can"
    seen = (EvidenceRule("write", values=("EROFS",)),)
    injected_by = "refuse-store"
    cover = "read-only"

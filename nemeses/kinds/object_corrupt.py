"""Corrupt object: bytes of an object of the store change at rest, or a segment's objects become another segment's."""

from typing import Any

from history.fault_looks import FaultMark
from nemeses.fault import Evidence, Fault
from nemeses.kind import RandomDraw
from nemeses.mechanisms.store import ObjectKind, StoreTroubles
from nemeses.parameters import Choice


class ObjectCorrupt(ObjectKind):
    """What is damaged may be unreadable until the heal. A reader gets an error, and never other data. The CRCs and
    offsets of another segment's batches may be valid: only the digest shows that the object is another one."""

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

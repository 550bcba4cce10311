"""Corrupt object: bytes of an object of the store change at rest."""

from __future__ import annotations

from history.fault_looks import FaultMark
from nemeses.mechanisms.store import ObjectKind


class ObjectCorrupt(ObjectKind):
    name = "object-corrupt"
    mark = FaultMark.STAR
    action = "16 bytes of an object with the records of a remote segment are overwritten; the heal puts it back"
    proven_by = "its digest has changed; after the heal it is that from before"
    injected_by = "corrupt-object"
    change = "corrupt"
    state = "has changed bytes"

"""Cut object: an object of the store ends in its middle, as after half an upload."""

from history.fault_looks import FaultMark
from nemeses.mechanisms.store import ObjectKind


class ObjectCut(ObjectKind):
    name = "object-cut"
    mark = FaultMark.TRIANGLE_DOWN
    action = "an object with the records of a remote segment is cut in its middle; the heal puts it back"
    proven_by = "its digest has changed; after the heal it is that from before"
    injected_by = "cut-object"
    change = "cut"
    state = "ends in its middle"

"""Store down: the store of remote segments has no objects for a node, and takes none."""

from history.fault_looks import FaultMark
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Fault
from nemeses.kind import listed
from nemeses.mechanisms.store import CoveringKind


class StoreDown(CoveringKind):
    """Evidence: what a probe on the node sees of the store and can write to it, before, during and after the fault."""

    name = "store-down"
    mark = FaultMark.CIRCLE
    action = "the store of remote segments is empty and read-only for the node"
    proven_by = "a probe on the node sees no object and cannot write (EROFS); after the heal it can write"
    seen = (
        EvidenceRule("objects", values=(0,)),
        EvidenceRule("write", values=("EROFS",)),
    )
    injected_by = "take-store"
    cover = "away"

    def sentence(self, fault: Fault) -> str:
        return f"the store of remote segments is away for {listed(fault.targets)}"

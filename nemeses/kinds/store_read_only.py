"""Read-only store: the store of remote segments refuses writes and deletions of a node."""

from history.fault_looks import FaultMark
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Fault
from nemeses.kind import listed
from nemeses.mechanisms.store import CoveringKind


class StoreReadOnly(CoveringKind):
    """Evidence: what a probe on the node sees of the store and can write to it, before, during and after the fault."""

    name = "store-read-only"
    mark = FaultMark.SQUARE
    action = "the store of remote segments is read-only for the node"
    proven_by = "a probe on the node cannot write (EROFS); after the heal it can"
    seen = (EvidenceRule("write", values=("EROFS",)),)
    injected_by = "refuse-store"
    cover = "read-only"

    def sentence(self, fault: Fault) -> str:
        return f"the store of remote segments refuses what {listed(fault.targets)} writes"

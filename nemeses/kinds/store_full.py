"""Full store: the store of remote segments has no space for objects of a node."""

from history.fault_looks import FaultMark
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Fault
from nemeses.kind import listed
from nemeses.mechanisms.store import CoveringKind


class StoreFull(CoveringKind):
    """Evidence: what a probe on the node sees of the store and can write to it, before, during and after the fault."""

    name = "store-full"
    mark = FaultMark.DIAMOND
    action = "the store of remote segments has no space for what the node writes"
    proven_by = "a probe on the node gets ENOSPC; after the heal it can write"
    seen = (EvidenceRule("write", values=("ENOSPC",)),)
    injected_by = "fill-store"
    cover = "full"

    def sentence(self, fault: Fault) -> str:
        return f"the store of remote segments has no space for {listed(fault.targets)}"

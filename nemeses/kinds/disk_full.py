"""Disk full: the disk accepts no further writes."""

from history.damage import Damage
from history.fault_looks import FaultMark
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Fault
from nemeses.kind import listed
from nemeses.mechanisms.disks import FULL, FailingDiskKind


class DiskFull(FailingDiskKind):
    """The disk of a node is full."""

    name = "disk-full"
    mark = FaultMark.SQUARE
    action = "every write of new data to the node's simulated disk fails with ENOSPC"
    proven_by = (
        "a probe gets ENOSPC; at the heal, a service that got ENOSPC has exited with a code other than 0 and 1 (1: an "
        "uncaught exception), and a new process answers"
    )
    destroys = frozenset({Damage.SPEED, Damage.MEMORY})
    seen = (EvidenceRule("probe", values=("ENOSPC",)),)
    injected_by = "fill-disk"
    effect = FULL

    def sentence(self, fault: Fault) -> str:
        return f"the disk of {listed(fault.targets)} is full"

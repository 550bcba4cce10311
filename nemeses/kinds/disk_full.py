"""A disk on which nothing more can be written."""

from __future__ import annotations

from history.damage import Damage
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault
from nemeses.kind import listed
from nemeses.mechanisms.disks import DEFECTS, DiskTroubles, FailingDiskKind


class DiskFull(FailingDiskKind):
    """The disk of a node is full."""

    name = "disk-full"
    deed = "no byte more can be written to the node's simulated disk (ENOSPC)"
    proven_by = (
        "a probe meets ENOSPC; when healed, a service that had met it has ended, with an exit code other than 0 and 1 "
        "(an exception that nobody caught), and a new one answers"
    )
    destroys = frozenset({Damage.SPEED, Damage.MEMORY})
    seen = (EvidenceRule("probe", values=("ENOSPC",)),)
    healed = (EvidenceRule("exit", unlike=DEFECTS), EvidenceRule("service.port", values=("open",)))
    begun_by = "fill-disk"

    def inflict(self, by: DiskTroubles, fault: Fault) -> Evidence:
        return by.fail(fault.targets, full=True)

    def heal(self, by: DiskTroubles, fault: Fault) -> Evidence:
        return by.repair(fault.targets)

    def sentence(self, fault: Fault) -> str:
        return f"the disk of {listed(fault.targets)} is full"

"""A disk whose syncs fail: what they should have written is gone, and a second sync would not say so."""

from __future__ import annotations

from history.damage import Damage
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault
from nemeses.kind import listed
from nemeses.mechanisms.disks import DEFECTS, DiskTroubles, FailingDiskKind


class DiskError(FailingDiskKind):
    """The disk of a node fails every sync."""

    name = "disk-error"
    deed = "every sync of the node's simulated disk fails with EIO, and what it should have written is forgotten"
    proven_by = (
        "a probe meets EIO; when healed, a service that had met it has ended, with an exit code other than 0 and 1 (an "
        "exception that nobody caught); then the machine is booted, for its page cache shows what is not on its disk, "
        "and a new one answers"
    )
    destroys = frozenset({Damage.SPEED, Damage.MEMORY, Damage.UNSYNCED})
    seen = (EvidenceRule("probe", values=("EIO",)),)
    healed = (EvidenceRule("exit", unlike=DEFECTS), EvidenceRule("service.port", values=("open",)))
    begun_by = "break-disk"

    def inflict(self, by: DiskTroubles, fault: Fault) -> Evidence:
        return by.fail(fault.targets, full=False)

    def heal(self, by: DiskTroubles, fault: Fault) -> Evidence:
        return by.repair(fault.targets)

    def sentence(self, fault: Fault) -> str:
        return f"the disk of {listed(fault.targets)} fails every sync"

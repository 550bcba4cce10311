"""Disk error: syncs fail and their data is lost; as on Linux, a second sync reports success."""

from history.damage import Damage
from history.fault_looks import FaultMark
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Fault
from nemeses.kind import listed
from nemeses.mechanisms.disks import FAILS, FailingDiskKind


class DiskError(FailingDiskKind):
    """Every sync of a node's disk fails."""

    name = "disk-error"
    mark = FaultMark.CROSS
    action = "every sync of the node's simulated disk fails with EIO, and the data to sync is lost"
    proven_by = (
        "a probe gets EIO; at the heal, a service that got EIO has exited with a code other than 0 and 1 (1: an "
        "uncaught exception); then the machine is rebooted, because its page cache has data that its disk does not "
        "have, and a new process answers"
    )
    destroys = frozenset({Damage.SPEED, Damage.MEMORY, Damage.UNSYNCED})
    seen = (EvidenceRule("probe", values=("EIO",)),)
    injected_by = "break-disk"
    effect = FAILS

    def sentence(self, fault: Fault) -> str:
        return f"every sync of the disk of {listed(fault.targets)} fails"

"""Disk wipe: a node restarts with its identity and an empty disk."""

from history.damage import Damage
from history.fault_looks import FaultMark
from installation.counted import counted
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault
from nemeses.kind import Facts, listed
from nemeses.mechanisms.disks import DiskKind, DiskTroubles


class DiskWipe(DiskKind):
    """A node's service is killed and started on an empty disk. No log promises to survive this if the node votes or
    has the last copy of a record: a campaign with this fault states what it allows."""

    name = "disk-wipe"
    mark = FaultMark.CIRCLE
    action = "SIGKILL to the service, and its disk is replaced by an empty one"
    proven_by = "the number of removed files; afterwards a new process answers on the empty disk"
    destroys = frozenset({Damage.PROGRESS, Damage.MEMORY, Damage.DISK})
    hides = frozenset({"process"})
    heal_rests_on = frozenset()
    service = "ended"
    seen = (EvidenceRule("files_before", least=1),)
    healed = (EvidenceRule("service.port", values=("open",), unless="service.withheld_by"),)
    proven_late = True
    injected_by = "wipe-disk"
    healed_by = "start-empty"

    def inject(self, by: DiskTroubles, fault: Fault) -> Evidence:
        return by.wipe(fault.targets)

    def heal(self, by: DiskTroubles, fault: Fault) -> Evidence:
        return by.start(fault.targets)

    def sentence(self, fault: Fault) -> str:
        return f"{listed(fault.targets)} gets an empty disk"

    def phrase(self, facts: Facts, heal: Facts) -> str:
        return f"{counted(facts.get('files_before', 0), 'file')} gone"

"""Old disk: a node's disk is replaced by an earlier copy, as when a machine is rolled back to a snapshot."""

from history.damage import Damage
from history.fault_looks import FaultMark
from installation.counted import counted
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault
from nemeses.kind import Facts, listed
from nemeses.mechanisms.disks import DiskKind, DiskTroubles


class OldDisk(DiskKind):
    """The durable data of a node is copied. At the heal its service is killed and started on the copy. No log promises
    to survive this, because durable votes and records are lost: a campaign with this fault states what it allows."""

    name = "old-disk"
    mark = FaultMark.DIAMOND
    action = "the node's durable data is copied; at the heal SIGKILL to the service, and the copy replaces its disk"
    proven_by = "the number of copied files; after the heal a new process answers on the copy"
    destroys = frozenset({Damage.SPEED, Damage.MEMORY, Damage.NEWER_STATE})
    ends_services_late = True
    seen = (EvidenceRule("files_copied", least=1),)
    healed = (
        EvidenceRule("files_before", least=1),
        EvidenceRule("service.port", values=("open",), unless="service.withheld_by"),
    )
    proven_late = True
    injected_by = "copy-disk"
    healed_by = "roll-back"

    def inject(self, by: DiskTroubles, fault: Fault) -> Evidence:
        return by.copy(fault.targets)

    def heal(self, by: DiskTroubles, fault: Fault) -> Evidence:
        return by.put_back(fault.targets)

    def sentence(self, fault: Fault) -> str:
        return f"{listed(fault.targets)} will restart with the present state of its disk"

    def phrase(self, facts: Facts, heal: Facts) -> str:
        return f"{counted(facts.get('files_copied', 0), 'file')} copied; they replaced {heal.get('files_before', 0)}"

"""Disk hang: syncs block for some time and then succeed."""

from history.damage import Damage
from history.fault_looks import FaultMark
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault
from nemeses.kind import Facts, listed
from nemeses.mechanisms.disks import HANGS, DiskKind, DiskTroubles


class DiskHang(DiskKind):
    """No sync of a node returns until the fault is healed."""

    name = "disk-hang"
    mark = FaultMark.TRIANGLE_DOWN
    action = "every sync of the node's simulated disk blocks until the heal"
    proven_by = "a probe's sync does not return within a second; after the heal, it returns"
    destroys = frozenset({Damage.SPEED})
    seen = (EvidenceRule("silent_s", least=1),)
    healed = (EvidenceRule("sync_ms", least=0),)
    hides = frozenset({"disk"})
    injected_by = "hang-disk"

    def inject(self, by: DiskTroubles, fault: Fault) -> Evidence:
        return by.hang(fault.targets)

    def heal(self, by: DiskTroubles, fault: Fault) -> Evidence:
        return by.soothe(fault.targets, HANGS)

    def sentence(self, fault: Fault) -> str:
        return f"every sync of {listed(fault.targets)} blocks"

    def phrase(self, facts: Facts, heal: Facts) -> str:
        return f"a sync did not return in {facts.get('silent_s')} s; afterwards one took {heal.get('sync_ms')} ms"

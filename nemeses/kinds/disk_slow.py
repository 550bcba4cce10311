"""Slow disk: each sync takes longer."""

from history.damage import Damage
from history.fault_looks import FaultMark
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault
from nemeses.kind import Facts, listed
from nemeses.mechanisms.disks import DiskKind, DiskTroubles
from nemeses.parameters import Parameter


class DiskSlow(DiskKind):
    """Each sync of a node takes longer."""

    name = "disk-slow"
    mark = FaultMark.TRIANGLE_UP
    action = "each sync of the node's simulated disk takes longer"
    proven_by = "a probe's sync takes at least this long; after the heal, one of several takes less"
    destroys = frozenset({Damage.SPEED})
    seen = (EvidenceRule("sync_ms", least=1),)
    healed = (EvidenceRule("sync_ms", least=0),)
    parameters = (Parameter("sync_ms", "ms", "additional duration of each sync", 1, 5_000, drawn=(10.0, 1_000.0)),)
    injected_by = "slow-disk"

    def inject(self, by: DiskTroubles, fault: Fault) -> Evidence:
        return by.delay(fault.targets, float(fault.parameters["sync_ms"]) / 1e3)

    def heal(self, by: DiskTroubles, fault: Fault) -> Evidence:
        return by.soothe(fault.targets, ("slow", float(fault.parameters["sync_ms"]) / 1e3))

    def sentence(self, fault: Fault) -> str:
        sync_ms = float(fault.parameters["sync_ms"])
        return f"each sync of {listed(fault.targets)} takes {sync_ms:g} ms longer"

    def phrase(self, facts: Facts, heal: Facts) -> str:
        return f"a sync took {facts.get('sync_before_ms')} ms before, {facts.get('sync_ms')} ms then"

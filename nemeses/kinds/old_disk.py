"""A disk that is replaced by a copy of old, as by a snapshot of a machine that is rolled back."""

from __future__ import annotations

from history.damage import Damage
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault
from nemeses.kind import Facts, facts_of, listed, node_facts
from nemeses.mechanisms.disks import DiskKind, DiskTroubles


class OldDisk(DiskKind):
    """What is durable on a node is copied; when the fault is healed, its service is killed and started on the copy.
    More than any log promises to survive: votes and records that were durable are gone. A campaign with it says what it
    allows."""

    name = "old-disk"
    deed = "a copy of what is durable on the node; later SIGKILL to the service, and the copy in place of its disk"
    proven_by = "how many files were copied; when healed, a new process answers on the copy"
    destroys = frozenset({Damage.SPEED, Damage.MEMORY, Damage.NEWER_STATE})
    ends_services_late = True
    seen = (EvidenceRule("files_copied", least=1),)
    healed = (EvidenceRule("files_before", least=1), EvidenceRule("service.port", values=("open",)))
    proven_late = True
    begun_by = "copy-disk"
    ended_by = "roll-back"

    def inflict(self, by: DiskTroubles, fault: Fault) -> Evidence:
        return by.copy(fault.targets)

    def heal(self, by: DiskTroubles, fault: Fault) -> Evidence:
        return by.put_back(fault.targets)

    def sentence(self, fault: Fault) -> str:
        return f"{listed(fault.targets)} comes back with the disk that it has now"

    def proof(self, seen: Facts, after: Facts) -> str:
        return "; ".join(
            f"{name}: {facts.get('files_copied', 0)} files copied, and put in the place of "
            f"{facts_of(after, name).get('files_before', 0)}"
            for name, facts in node_facts(seen).items()
        )

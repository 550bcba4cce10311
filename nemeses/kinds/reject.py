"""A partition by a firewall that answers: connections are refused and reset, as if the other side had died."""

from __future__ import annotations

from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault
from nemeses.kind import Facts
from nemeses.mechanisms.partition import PartitionKind, PartitionMechanism


class Reject(PartitionKind):
    """One node and the others; in scripts, any two groups. Evidence: as of every partition, and connections along all
    that is cut are refused at once."""

    name = "reject"
    deed = (
        "packets between one node and the others are rejected, in one direction or both: TCP by a reset, anything else "
        "by ICMP"
    )
    proven_by = "the rule's counters under probes, and connections that are refused at once; after healing they succeed"
    seen = (*PartitionKind.seen, EvidenceRule("not_refused", of="fault", values=({},)))
    begun_by = "reject"

    def inflict(self, by: PartitionMechanism, fault: Fault) -> Evidence:
        return by.cut(fault, reject=True)

    def sentence(self, fault: Fault) -> str:
        return f"{super().sentence(fault)}: whoever sends is refused"

    def proof(self, seen: Facts, after: Facts) -> str:
        return super().proof(seen, after).replace("dropped", "rejected")

"""Partition by a rejecting firewall: connections are refused and reset, as if the peer's process were dead."""

from history.fault_looks import FaultMark
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault
from nemeses.kind import Facts
from nemeses.mechanisms.partition import PartitionKind, PartitionMechanism


class Reject(PartitionKind):
    """One node is separated from the others; in scripts, any two groups from each other. Evidence: as for every
    partition, and connections along each separated pair are refused at once."""

    name = "reject"
    mark = FaultMark.CROSS
    action = (
        "packets between one node and the others are rejected, in one direction or both: TCP with a reset, other "
        "protocols with ICMP"
    )
    proven_by = (
        "the rule's counters under probes, and immediate refusals of connections; after the heal connections succeed"
    )
    seen = (*PartitionKind.seen, EvidenceRule("not_refused", of="fault", values=({},)))
    injected_by = "reject"

    def inject(self, by: PartitionMechanism, fault: Fault) -> Evidence:
        return by.cut(fault, reject=True)

    def sentence(self, fault: Fault) -> str:
        return f"{super().sentence(fault)}: connections are refused"

    def proof(self, effect: Facts, heal: Facts) -> str:
        return super().proof(effect, heal).replace("dropped", "rejected")

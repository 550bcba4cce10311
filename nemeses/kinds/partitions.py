"""Partitions: nodes cannot reach each other, because packets between them are dropped or refused."""

from random import Random

from history.fault_looks import FaultMark
from history.journal.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault
from nemeses.kind import Facts
from nemeses.mechanisms.partition import PartitionKind, PartitionMechanism
from nemeses.targeting import Aim, ClusterView


class PartitionHalves(PartitionKind):
    """The smaller half of the nodes is separated from the larger one."""

    name = "partition-halves"
    mark = FaultMark.SQUARE
    action = "packets between two halves of the cluster are dropped, in one direction or both"
    aim = "any"

    def targets(self, aim: Aim, view: ClusterView, chooser: Random) -> tuple[str, ...]:
        shuffled = chooser.sample(sorted(view.nodes), len(view.nodes))
        return tuple(sorted(shuffled[: len(shuffled) // 2]))


class PartitionTheLeader(PartitionKind):
    """A node that leads a partition or the quorum is separated from the others: the classic cause of two leaders."""

    name = "partition-leader"
    mark = FaultMark.STAR
    action = "packets between a leader and the others are dropped, in one direction or both"
    aim = "leader"


class PartitionOne(PartitionKind):
    """One node is separated from the others; in scripts, any two groups from each other."""

    name = "partition-one"
    mark = FaultMark.CIRCLE
    action = "packets between one node and the others are dropped, in one direction or both"
    injected_by = "cut"


class Reject(PartitionKind):
    """As by a rejecting firewall: connections of one node are refused and reset, as if the peer's process were dead; in
    scripts, of any two groups. Evidence: as for every partition, and connections along each separated pair are refused
    at once."""

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

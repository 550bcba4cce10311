"""The oracles of leases (H31): leases are exclusive, and a leader without a lease answers no reads.

A new leader that commits during an old one's lease is detected by its commit, but reads from the old one just before
would have been stale, too. And a leader that is cut off, whose lease ends, gets hardly any requests.
"""

from collections.abc import Iterable, Mapping

from broker.controller.image import PartitionImage, TopicImage
from broker.errors import ErrorCode
from broker.protocol.messages.metadata_records import NO_LEADER
from broker.replica.leader import PartitionLeader
from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition
from broker.replica.queries import EARLIEST
from broker.replica.reads import FetchLimits, FetchPosition
from simulator.oracles.findings import LEASE_SHARED, WOULD_ANSWER, OracleFindings
from simulator.oracles.machine_view import MachineView

Key = tuple[bytes, int]
NOT_ELECTED = (NO_LEADER, -1)


class LeaseRules:
    """All partitions of a cluster. `machines` by broker id."""

    def __init__(self, machines: Mapping[int, MachineView], findings: OracleFindings) -> None:
        self._machines = machines
        self._findings = findings
        self._elected: dict[Key, tuple[int, int]] = {}
        """By partition the last leader in any broker's metadata, and its epoch."""
        self._asked: dict[tuple[str, Key], PartitionLeader] = {}
        """By machine and partition the leader that was asked last while it had no lease."""

    def elect(self, topic: TopicImage, index: int, state: PartitionImage) -> None:
        """The newest metadata have a partition in another state: its leader may answer from now on."""
        key = (topic.id, index)
        if state.leader == NO_LEADER or self._elected.get(key) == (state.leader, state.leader_epoch):
            return
        self._elected[key] = (state.leader, state.leader_epoch)
        for machine in self._machines.values():
            partition = None if machine.node is None else machine.node.replicas.partition(topic.name, index)
            if partition is not None and partition.topic_id == topic.id:
                self.look(machine, [partition])

    def look(self, machine: MachineView, partitions: Iterable[Partition]) -> None:
        """Check the partitions of a broker: it may have got, or lost, its lease."""
        if machine.node is None:
            return
        leased: bool | None = None
        for partition in partitions:
            role = partition.role
            if not isinstance(role, PartitionLeader) or role.recovering:
                continue  # it answers no reads
            key = (partition.topic_id, partition.index)
            leased = machine.holds_lease if leased is None else leased
            if leased:
                self._shared(machine, partition, role, *self._elected.get(key, NOT_ELECTED))
            elif self._asked.get((machine.name, key)) is not role:
                self._asked[machine.name, key] = role
                self._would_answer(machine, machine.node.replicas, partition, role)

    def _shared(
        self, machine: MachineView, partition: Partition, role: PartitionLeader, leader: int, epoch: int
    ) -> None:
        """A replaced leader must not answer reads any more."""
        if epoch <= role.leader_epoch or leader == machine.node_id or machine.excused(LEASE_SHARED):
            return
        self._findings.compared(LEASE_SHARED, partition.topic)
        sentence = (
            f"{partition.topic}-{partition.index}: broker {leader} leads epoch {epoch}, while {machine.name} leads in "
            f"epoch {role.leader_epoch} and holds a lease"
        )
        witness = {"node": machine.name, "epoch": role.leader_epoch}
        self._findings.report(LEASE_SHARED, partition.topic, partition.index, sentence, witness, {"leader": leader})

    def _would_answer(
        self, machine: MachineView, replicas: ReplicaManager, partition: Partition, role: PartitionLeader
    ) -> None:
        """A leader that may be replaced answers no consumer. No record is read: the requested offset is beyond the
        visible end."""
        topic, index, offset = partition.topic, partition.index, role.high_watermark
        position = FetchPosition(topic, index, offset, 0, role.leader_epoch)
        fetched = machine.run(lambda: replicas.fetch_now(FetchLimits(), [position])) or []
        listed = machine.run(lambda: replicas.list_offset(topic, index, EARLIEST, role.leader_epoch))
        errors = {"a consumer's Fetch": [read.error for read in fetched], "ListOffsets": [listed.error]}
        answered = ", ".join(name for name, codes in errors.items() if ErrorCode.NONE in codes)
        self._findings.compared(WOULD_ANSWER, topic)
        if answered:
            sentence = (
                f"{topic}-{index}: {machine.name} leads in epoch {role.leader_epoch}, holds no lease, and would answer "
                f"{answered}"
            )
            witness = {"node": machine.name, "epoch": role.leader_epoch}
            self._findings.report(WOULD_ANSWER, topic, index, sentence, witness)

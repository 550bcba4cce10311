"""The oracles of leases (H31): leases are exclusive, a controller knows of each, and a leader without a lease answers
no reads.

A new leader that commits during an old one's lease is detected by its commit, but reads from the old one just before
would have been stale, too. And a leader that is cut off, whose lease ends, gets hardly any requests.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from broker.controller.image import PartitionImage, TopicImage
from broker.errors import ErrorCode
from broker.protocol.messages.metadata_records import NO_LEADER
from broker.quorum.wire import METADATA_TOPIC, PARTITION
from broker.replica.leader import PartitionLeader
from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition
from broker.replica.queries import EARLIEST
from broker.replica.reads import FetchLimits, FetchPosition
from simulator.oracles.findings import LEASE_SHARED, WOULD_ANSWER, OracleFindings
from simulator.oracles.machine_view import MachineView

Key = tuple[bytes, int]
NOT_ELECTED = (NO_LEADER, -1)
FASTEST: Final = 1.1 / 0.9
"""How much faster than one clock another one may be: both gain or lose at most 10 %."""
ROUNDING_S: Final = 0.002


@dataclass
class ObservedProcess:
    """A broker's process at the last look. All times are those of its own clock, in seconds."""

    life: int
    lease_ends_at: float = -math.inf
    proven_at: float = -math.inf
    appended: list[tuple[int, float]] = field(default_factory=list)
    """The ends that its metadata log has had since its last proof, each with the time of the append."""


class ControllerLeases:
    """Checks that the newest controller knows of every lease: it may replace a leader after its session, and a lease
    that is longer would be left beside the new leader (H31). That takes a loss of the leader; this takes none.

    A controller gives leases only while it is proven to lead, by a record that a majority has accepted. It proves that
    for the time at which it appended the record, not for the time at which it learned of the commit."""

    def __init__(self, machines: Mapping[int, MachineView], findings: OracleFindings) -> None:
        self._machines = machines
        self._findings = findings
        self._newest: tuple[int, MachineView] | None = None
        """The newest epoch in which a controller was active, and that controller."""
        self._processes: dict[str, ObservedProcess] = {}
        """By machine."""
        self._lease_ends: tuple[float | None, ...] = ()
        """The ends of all leases that the newest controller knew last."""

    def look(self, machine: MachineView) -> None:
        """A broker's code has run: its lease may be another, or it may be the controller and know other leases."""
        node = machine.node
        if node is None:
            return
        process = self._processes.get(machine.name)
        if process is None or process.life != machine.life:
            process = self._processes[machine.name] = ObservedProcess(machine.life)
        if process.lease_ends_at != node.lease.ends_at:
            process.lease_ends_at = node.lease.ends_at
            self._check([machine])
        end, appended = node.metadata_log.log_end_offset, process.appended
        while appended and appended[-1][0] > end:  # the log was cut
            appended.pop()
        if not appended or appended[-1][0] < end:
            appended.append((end, machine.own_time))
        epoch = node.controller.term_epoch
        if epoch < 0 or (self._newest is not None and epoch < self._newest[0]):
            return
        self._newest = (epoch, machine)
        lease_ends = tuple(map(node.controller.lease_ends_at, self._machines))
        if lease_ends != self._lease_ends:
            self._lease_ends = lease_ends
            self._check(self._machines.values())
        if process.proven_at != node.controller.proven_at:
            process.proven_at = node.controller.proven_at
            self._check_proof(machine, process, node.quorum.high_watermark)

    def _check(self, brokers: Iterable[MachineView]) -> None:
        controller = None if self._newest is None else self._newest[1]
        if controller is None or controller.node is None or controller.node.controller.term_epoch < 0:
            return
        now: float | None = None
        for machine in brokers:
            if machine.node is None or not machine.holds_lease or machine.excused(LEASE_SHARED):
                continue
            known_end = controller.node.controller.lease_ends_at(machine.node_id)
            if known_end is None:
                continue  # it is being replaced: a new leader beside it is found by `LeaseRules`
            now = controller.own_time if now is None else now
            self._findings.compared(LEASE_SHARED, METADATA_TOPIC)
            remaining_s, known_s = machine.node.lease.ends_at - machine.own_time, known_end - now
            if known_s + ROUNDING_S < remaining_s * FASTEST:
                sentence = (
                    f"{machine.name} has a lease for {remaining_s:.3f} s, and the controller {controller.name} may "
                    f"replace it after {max(0.0, known_s):.3f} s, by clocks that may differ by 10 %"
                )
                witness = {"node": machine.name, "controller": controller.name}
                self._findings.report(LEASE_SHARED, METADATA_TOPIC, PARTITION, sentence, witness)

    def _check_proof(self, machine: MachineView, process: ObservedProcess, high_watermark: int) -> None:
        appended = process.appended
        committed = next((place for place, (end, _) in enumerate(appended) if end >= high_watermark), None)
        self._findings.compared(LEASE_SHARED, METADATA_TOPIC)
        if committed is None:
            return
        late_s = process.proven_at - appended[committed][1]
        del appended[:committed]
        if late_s > ROUNDING_S:
            sentence = (
                f"{machine.name} takes a record for a proof that it led {late_s:.3f} s after it had appended it: "
                "another controller may have been elected in this time"
            )
            self._findings.report(LEASE_SHARED, METADATA_TOPIC, PARTITION, sentence, {"node": machine.name})


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

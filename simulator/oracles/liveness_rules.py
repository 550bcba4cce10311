"""The oracles of liveness during faults: what no fault touches makes progress.

If a majority of the voters was well and connected for longer than the bound, the quorum has a leader. If enough in-sync
replicas of a partition were among them, the partition has a leader that commits what it appends, and no unreachable
machine stays in its ISR. A run in which the cluster recovers only after the final heal does not show any of this to its
clients: they see only what is acknowledged in the end.
"""

from collections.abc import Mapping

from broker.controller.image import MetadataImage, PartitionImage, TopicImage
from broker.protocol.messages.metadata_records import NO_LEADER
from broker.quorum.wire import METADATA_TOPIC, PARTITION
from broker.replica.leader import PartitionLeader
from history.damage import OTHER_DISK
from simulator.oracles.findings import ISR_KEEPS, STANDS_STILL, OracleFindings
from simulator.oracles.health import Durations, Health, MachineStates
from simulator.oracles.machine_view import MachineView
from simulator.oracles.settings import least_in_sync

EVERY_S = 0.2
"""The time between checks of the machines, in virtual seconds."""
ROUNDS = 2
"""The bound, as a multiple of the time that detecting a lost broker, replica and quorum leader takes."""


class LivenessRules:
    """Checks one cluster. `machines` by node id."""

    def __init__(self, machines: Mapping[int, MachineView], findings: OracleFindings, states: MachineStates) -> None:
        self._machines = machines
        self._findings = findings
        self._health = Health([machine.name for machine in machines.values()], states)
        self._timers = Durations()
        self._next_s = 0.0
        self._other_disk: set[int] = set()
        """Voters whose disk was replaced: their votes do not count until the log names the new disk (KIP-853)."""

    def touched(self, name: str) -> None:
        """Record that a machine was changed at this moment."""
        self._health.touched(name)

    def look(self) -> None:
        """Check all machines, if it is time."""
        now = self._findings.now()
        if now < self._next_s:
            return
        self._next_s = now + EVERY_S
        self._health.look(now)
        self._other_disk |= {view.node_id for view in self._machines.values() if view.suffered & OTHER_DISK}
        bound = self.bound_s
        well_names = set(self._health.well(bound))
        ids = {machine.node_id for machine in self._machines.values() if machine.name in well_names}
        voters = next(iter(self._machines.values())).settings.voters
        majority = 2 * len((ids - self._other_disk) & set(voters)) > len(voters)
        self._controlled(ids, majority, bound, now)
        image = max((view.image for view in self._machines.values() if view.running), key=_offset, default=None)
        if image is None:
            return
        for topic, index, state in image.partitions():
            minimum = least_in_sync(
                (view.settings for view in self._machines.values()), topic.configs, len(state.replicas)
            )
            enough = majority and len(ids & set(state.isr)) >= minimum and not state.recovering
            self._led(topic, index, state, enough, bound, now)
            self._commits(topic, index, state, enough and state.leader in ids, bound, now)
            self._shrinks(topic, index, state, majority and bool(ids & set(state.isr)), bound, now)

    @property
    def bound_s(self) -> float:
        """The bound for progress of healthy parts."""
        return ROUNDS * max(machine.settings.patience_s for machine in self._machines.values())

    def _controlled(self, ids: set[int], majority: bool, bound: float, now: float) -> None:
        """A quorum with a majority that is well has a leader."""
        leads = any(
            view.running and view.node is not None and view.node.quorum.is_leader for view in self._machines.values()
        )
        held_s = self._timers.held("controller", None if leads else True, now)
        if not majority:
            return
        self._findings.compared(STANDS_STILL, METADATA_TOPIC)
        if held_s > bound:
            problem = f"no node has led for {held_s:.1f} s, while the nodes {sorted(ids)} were well"
            sentence = f"{METADATA_TOPIC}-{PARTITION}: {problem}; the bound is {bound:.1f} s"
            witness = {"well": sorted(ids), "bound_s": bound}
            self._findings.report(STANDS_STILL, METADATA_TOPIC, PARTITION, sentence, witness)

    def _led(
        self, topic: TopicImage, index: int, state: PartitionImage, enough: bool, bound: float, now: float
    ) -> None:
        """A partition with enough in-sync replicas that are well has a leader that leads."""
        machine = self._machines.get(state.leader)
        leads = machine is not None and self._role(machine, topic, index, state) is not None
        held_s = self._timers.held(("led", topic.id, index), None if leads else True, now)
        if not enough:
            return
        self._findings.compared(STANDS_STILL, topic.name)
        if held_s > bound:
            leader = "no broker" if state.leader == NO_LEADER else f"broker {state.leader}, which does not lead"
            self._still(topic, index, state, bound, f"for {held_s:.1f} s the leader has been {leader}")

    def _commits(
        self, topic: TopicImage, index: int, state: PartitionImage, judged: bool, bound: float, now: float
    ) -> None:
        """A leader that is well commits its records if enough in-sync replicas are well, too."""
        machine = self._machines.get(state.leader)
        role = None if machine is None else self._role(machine, topic, index, state)
        waiting = None
        if role is not None and machine is not None and machine.node is not None:
            partition = machine.node.replicas.partition(topic.name, index)
            if partition is not None and partition.log.log_end_offset > role.high_watermark:
                waiting = (state.leader_epoch, role.high_watermark)
        held_s = self._timers.held(("commits", topic.id, index), waiting, now)
        enough = self._timers.held(("enough", topic.id, index), judged or None, now)
        if waiting is None or not judged:
            return
        self._findings.compared(STANDS_STILL, topic.name)
        if min(held_s, enough) > bound:
            claim = f"for {held_s:.1f} s broker {state.leader} has committed nothing behind {waiting[1]}, and has more"
            self._still(topic, index, state, bound, claim)

    def _shrinks(
        self, topic: TopicImage, index: int, state: PartitionImage, judged: bool, bound: float, now: float
    ) -> None:
        """An unreachable broker does not stay in an ISR that has another member that is well."""
        for member in state.replicas:
            machine = self._machines.get(member)
            is_away = machine is not None and self._health.away(machine.name)
            unreachable_s = self._timers.held(("away", topic.id, index, member), is_away or None, now)
            held_s = self._timers.held(
                ("kept", topic.id, index, member), (is_away and member in state.isr) or None, now
            )
            well_s = self._timers.held(("judged", topic.id, index, member), judged or None, now)
            if min(unreachable_s, well_s) <= bound or machine is None:
                continue
            self._findings.compared(ISR_KEEPS, topic.name)
            if held_s > bound:
                sentence = (
                    f"{topic.name}-{index}: the ISR {list(state.isr)} still has {machine.name}, which no machine could "
                    f"reach for {held_s:.1f} s; the bound is {bound:.1f} s"
                )
                witness = {"isr": list(state.isr), "member": member, "leader": state.leader, "bound_s": bound}
                self._findings.report(ISR_KEEPS, topic.name, index, sentence, witness)

    def _still(self, topic: TopicImage, index: int, state: PartitionImage, bound: float, problem: str) -> None:
        sentence = (
            f"{topic.name}-{index}: {problem}, while a majority of the voters and enough of the ISR {list(state.isr)} "
            f"were well; the bound is {bound:.1f} s"
        )
        witness = {"leader": state.leader, "epoch": state.leader_epoch, "isr": list(state.isr), "bound_s": bound}
        self._findings.report(STANDS_STILL, topic.name, index, sentence, witness)

    @staticmethod
    def _role(machine: MachineView, topic: TopicImage, index: int, state: PartitionImage) -> PartitionLeader | None:
        partition = None if machine.node is None else machine.node.replicas.partition(topic.name, index)
        role = None if partition is None or partition.topic_id != topic.id else partition.role
        return role if isinstance(role, PartitionLeader) and role.leader_epoch >= state.leader_epoch else None


def _offset(image: MetadataImage) -> int:
    return image.offset

"""The oracles of the partitions: compares the state of leaders and followers with the logs and disks of all
replicas.

The oracle of recovery points: a log's recovery point on the disk is not past the part of the log on that disk.

Everything below a recovery point counts as written, and recovery does not read it (LOG-2, LOG-3). A point that is
ahead of the disk shows only after a power cut: the log then lacks records that it must have, and does not open.

The oracle of idempotent producers: a log's producer state equals what its batches say (K98-6, K98-7, K98-8).

A replica that knows too little appends a repeated batch again; one that knows too much reports a missing batch as
written. Both show only when a producer repeats a batch after a change of leader or a restart, which most never do.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from broker.controller.controller import Controller
from broker.controller.image import MetadataImage, PartitionImage, TopicImage
from broker.coordinator.offsets_topic import OFFSETS_TOPIC
from broker.log.log import PartitionLog
from broker.replica.follower import PartitionFollower, Phase
from broker.replica.leader import IsrProposal, PartitionLeader
from broker.replica.partition import Partition
from history.damage import Damage
from simulator.oracles.administration_events import AdministrationRules
from simulator.oracles.compacted_rules import CompactedRules
from simulator.oracles.controller_rules import ControllerRules
from simulator.oracles.deletion_rules import DeletionRules
from simulator.oracles.excuses import LogBeforeDamage
from simulator.oracles.findings import (
    BAD_MARK,
    EPOCH_FELL,
    IN_RECOVERY,
    INCOMPLETE,
    LEASE_SHARED,
    MARK_FELL,
    MISCOUNTED,
    NARROW_ISR,
    NOT_A_MEMBER,
    NOT_DURABLE,
    POINT_AHEAD,
    PRODUCERS_DIFFER,
    START_BACK,
    UNMATCHED,
    OracleFindings,
    members_text,
)
from simulator.oracles.group_rules import GroupRules
from simulator.oracles.hypothetical_requests import (
    would_answer,
    would_append,
    would_count,
    would_delete,
    would_elect,
    would_grant,
    would_join,
)
from simulator.oracles.lease_rules import LeaseRules
from simulator.oracles.log_copy import MAX_SEQUENCE, BatchSequence, CopiedBatch, CopiedLog
from simulator.oracles.log_rules import HEADER_LINES, LogRules, written_start
from simulator.oracles.machine_view import MachineView
from simulator.oracles.replica import ObservedReplica
from simulator.oracles.sequence_rules import forgets
from simulator.oracles.settings import LEASE, least_in_sync
from simulator.oracles.supposed_starts import would_start

REMEMBERED = 5
"""The number of batches that are remembered per producer, the most requests that it may have in flight (KIP-98; in
Apache Kafka `ProducerStateEntry.NUM_BATCHES_TO_RETAIN`)."""


class Last(NamedTuple):
    """A remembered batch of a producer."""

    sequence: int
    offset: int
    delta: int


class KnownProducer(NamedTuple):
    """A producer: its epoch and the last batches of that epoch, oldest first."""

    epoch: int
    batches: tuple[Last, ...]

    def __str__(self) -> str:
        batches = ", ".join(f"{batch.sequence} at offset {batch.offset}" for batch in self.batches)
        return f"epoch {self.epoch}, last sequences {batches or 'of no batch'}"


def look_at_producers(rules: LogRules, replica: ObservedReplica) -> None:
    """Check a replica when its log was opened or truncated, and when its role changes: otherwise it only adds what it
    appends. `replica.copy` is the content of its log."""
    partition = replica.partition
    if partition is None:
        return
    log = partition.log
    state = (log, log.truncations, partition.role)
    if state == replica.producers_of:  # first, because it is true for nearly every check
        return
    if replica.machine.excused(PRODUCERS_DIFFER, replica.copy.path) or partition.lock.locked() or log.is_being_cut:
        return  # a truncation may be in progress, or ends with its process: the next check sees its result
    if forgets(replica.machine):
        return
    replica.producers_of = state
    rules.checked(PRODUCERS_DIFFER)
    start = log.segments[0].base_offset
    log_producers = _said_by(replica.copy)
    for producer_id, producer in log_producers.items():
        batches = {
            BatchSequence(
                producer_id, producer.epoch, (last.sequence - last.delta) & MAX_SEQUENCE, last.delta
            ): last.offset
            for last in producer.batches
        }
        would_append(rules, replica, log.producers, batches)
    known_producers = {
        producer_id: KnownProducer(producer.epoch, tuple(Last(*written[:3]) for written in producer.batches))
        for producer_id, producer in log.producers
    }
    for producer_id in sorted(log_producers.keys() | known_producers.keys()):
        ours, theirs = known_producers.get(producer_id), log_producers.get(producer_id)
        # Producers of records that retention removed are still known, but not those from before a restart of the log.
        removed = [batch for batch in ours.batches if batch.offset < start] if ours is not None else []
        expected = ours and KnownProducer(ours.epoch, ours.batches[len(removed) :])
        only_removed = theirs is None and expected is not None and not expected.batches
        if any(batch.offset < replica.restarted_at for batch in removed) or not (only_removed or expected == theirs):
            sentence = (
                f"{replica.name} knows of producer {producer_id} {ours or 'nothing'}, and the batches of its log, from "
                f"{start} to {replica.copy.end}, say {theirs or 'nothing'}"
            )
            witness = {"node": replica.name, "producer": producer_id, "end": replica.copy.end}
            rules.report(PRODUCERS_DIFFER, sentence, witness)
            return


def note_begin(replica: ObservedReplica, log: PartitionLog, end: int) -> None:
    """The log's start has moved; `end`: the log's end then. Notes whether the whole log was removed and restarted. One
    that starts from remote storage has the producers of the segment below, also those of deleted batches (K1023-12)."""
    _, cuts, _ = replica.producers_of or (log, log.truncations, None)
    if cuts != log.truncations and not replica.start < log.log_start_offset <= end:
        is_remote = log.log_start_offset < log.local_start_offset
        replica.restarted_at = 0 if is_remote else log.log_start_offset


def start_rises(rules: LogRules, replica: ObservedReplica, log: PartitionLog, before: int) -> None:
    """The start of a log has moved: it rises, unless the whole log was replaced."""
    _, cuts, _ = replica.producers_of or (log, -1, None)
    rules.checked(START_BACK)
    if log.log_start_offset < before and cuts == log.truncations:
        sentence = f"the log of {replica.name} started at {before}, and starts at {log.log_start_offset}"
        rules.report(START_BACK, sentence, {"node": replica.name, "before": before, "start": log.log_start_offset})


def _said_by(copy: CopiedLog) -> dict[int, KnownProducer]:
    """The producer state that the batches of a log imply, by producer id."""
    epochs: dict[int, int] = {}
    batches: dict[int, deque[Last]] = {}
    for batch, sequence in copy.sequenced():
        if epochs.get(sequence.producer_id) != sequence.epoch:
            epochs[sequence.producer_id] = sequence.epoch
            batches[sequence.producer_id] = deque(maxlen=REMEMBERED)
        batches[sequence.producer_id].append(Last(sequence.last_sequence, batch.next - 1, sequence.delta))
    return {producer_id: KnownProducer(epoch, tuple(batches[producer_id])) for producer_id, epoch in epochs.items()}


POINTS_FILE = "recovery-point-offset-checkpoint"

Points = dict[tuple[str, int], int]


class DurablePoints:
    """The recovery points that each machine's disk has after a power cut. A file is parsed once for each content, since
    the oracle looks far more often than it changes."""

    def __init__(self) -> None:
        self._parsed: dict[str, tuple[bytes, Points]] = {}

    def of(self, machine: MachineView) -> Points:
        """By topic and partition; a torn file has none."""
        content = machine.disk.durable(machine.path_of(POINTS_FILE)) or b""
        parsed = self._parsed.get(machine.name)
        if parsed is None or parsed[0] != content:
            parsed = self._parsed[machine.name] = (content, _points_in(content))
        return parsed[1]


def _points_in(content: bytes) -> Points:
    try:
        lines = [line.split() for line in content.decode().splitlines()[HEADER_LINES:]]
        return {(topic, int(partition)): int(offset) for topic, partition, offset in lines}
    except ValueError:
        return {}


def look_at_recovery_point(rules: LogRules, replica: ObservedReplica, log: PartitionLog, points: Points) -> None:
    """Check a replica when its point on the disk has changed, or its log was truncated. `replica.copy` is the content
    of its log. Removed segments are not needed: the point may be at the start of a log that has none."""
    point = points.get((rules.topic, rules.index), 0)
    state = (point, log.truncations)
    if state == replica.point_seen:
        return
    replica.point_seen = state
    if not point or replica.machine.excused(POINT_AHEAD, replica.copy.path):
        return
    rules.checked(POINT_AHEAD)
    durable = max(replica.copy.durable_end(replica.machine.disk), log.local_start_offset)
    if point > durable:
        sentence = f"the recovery point of {replica.name} is {point}, and its disk has the log up to {durable}"
        rules.report(POINT_AHEAD, sentence, {"node": replica.name, "point": point, "durable_end": durable})


# ---- The oracles between a leader and its followers: counted ends, requested ISRs, and where followers start.

Counts = tuple[tuple[int, int], ...]


def counts(role: PartitionLeader) -> Counts:
    """The ends of its followers that a leader counts, and the epochs of their processes."""
    followers = (role.follower(replica) for replica in role.replicas if replica != role.node_id)
    return tuple((follower.log_end_offset, follower.broker_epoch) for follower in followers)


def counted(rules: LogRules, leader: ObservedReplica, role: PartitionLeader, peers: Iterable[ObservedReplica]) -> None:
    """A counted end came in a fetch of the leader's epoch (H3), from a log that equals the leader's up to there (H6).

    A follower that has moved to a newer epoch, or was replaced by another process, cannot be compared.
    """
    for peer in peers:
        node_id = peer.machine.node_id
        if node_id not in role.replicas:
            continue
        state = role.follower(node_id)
        now = (state.log_end_offset, role.leader_epoch)
        if state.log_end_offset < 0 or leader.counted.get(node_id) == now:
            continue
        leader.counted[node_id] = now
        theirs = None if peer.alive is None else peer.alive.role
        same_process = peer.machine.registered_in == state.broker_epoch
        if not same_process or not isinstance(theirs, PartitionFollower) or theirs.leader_epoch > role.leader_epoch:
            continue
        _not_below_start(rules, peer)
        rules.checked(MISCOUNTED)
        claim = f"{leader.name} counts {peer.name} up to {state.log_end_offset} in epoch {role.leader_epoch}"
        witness = {"node": leader.name, "epoch": role.leader_epoch, "counts": state.log_end_offset}
        if theirs.leader_epoch < role.leader_epoch:
            peer_witness = {"node": peer.name, "epoch": theirs.leader_epoch, "end": peer.copy.end}
            rules.report(MISCOUNTED, f"{claim}, which is still in epoch {theirs.leader_epoch}", witness, peer_witness)
            continue
        lacks = _lacks(rules, leader, peer, state.log_end_offset)
        if lacks is not None:
            sentence = f"{claim}, which lacks offset {lacks.base} of epoch {lacks.epoch}"
            rules.report(MISCOUNTED, sentence, witness, {"node": peer.name, "end": peer.copy.end, **lacks.to_json()})


def _not_below_start(rules: LogRules, follower: ObservedReplica) -> None:
    """A follower's log must start no later than its high watermark: deleted records were committed (H9)."""
    if follower.alive is None:
        return
    mark, start = follower.alive.high_watermark, follower.alive.log.log_start_offset
    rules.checked(BAD_MARK)
    if mark < start:
        sentence = f"the high watermark of {follower.name}, which fetches, is {mark}, and its log starts at {start}"
        rules.report(BAD_MARK, sentence, {"node": follower.name, "high_watermark": mark, "start": start})


def matched(
    rules: LogRules, follower: ObservedReplica, role: PartitionFollower, peers: Iterable[ObservedReplica]
) -> None:
    """A follower that starts to fetch has no record that its leader lacks (H1, K101-7)."""
    for peer in peers:
        theirs = None if peer.alive is None else peer.alive.role
        if peer.machine.node_id != role.leader_id or not isinstance(theirs, PartitionLeader) or peer.alive is None:
            continue
        if theirs.leader_epoch != role.leader_epoch or not follower.copy.batches:
            continue
        rules.checked(UNMATCHED)
        rules.follow(peer.machine, peer.copy, peer.alive.log)
        last_batch = follower.copy.batches[-1]
        if last_batch.next > peer.alive.log.local_start_offset and not peer.copy.holds(last_batch):
            sentence = (
                f"{follower.name} follows {peer.name} in epoch {role.leader_epoch} behind its offset {last_batch.base} "
                f"of epoch {last_batch.epoch}, which {peer.name} has not"
            )
            rules.report(UNMATCHED, sentence, {"node": follower.name, **last_batch.to_json()}, {"node": peer.name})


def proposed(
    rules: LogRules,
    leader: ObservedReplica,
    role: PartitionLeader,
    proposal: IsrProposal,
    peers: Iterable[ObservedReplica],
) -> None:
    """A broker proposed for an ISR has everything that is or may be committed: the leader's log as it was when its
    epoch started (H5)."""
    peers = list(peers)
    # A deposed leader's log may lack what a later leader has committed; the controller refuses its proposal.
    deposed = any(peer.epoch > role.leader_epoch for peer in peers)
    for peer in peers:
        node_id = peer.machine.node_id
        if node_id not in proposal.isr or node_id in role.isr:
            continue
        would_join(rules, leader, role, node_id)
        would_delete(rules, leader, role, node_id)
        rules.checked(NOT_A_MEMBER)
        state = role.follower(node_id)
        began_at = leader.copy.end_before(role.leader_epoch)
        if state.log_end_offset < began_at:
            sentence = (
                f"{leader.name} asks for {peer.name}, which it knows up to {state.log_end_offset}, in an epoch that "
                f"started at {began_at}"
            )
            rules.report(NOT_A_MEMBER, sentence, {"node": leader.name, "epoch": role.leader_epoch})
        if peer.alive is None or peer.machine.registered_in != state.broker_epoch:
            continue
        lacks = None if deposed else _lacks(rules, leader, peer, rules.committed.end)
        if lacks is not None:
            sentence = f"{leader.name} asks for {peer.name}, which lacks offset {lacks.base} of epoch {lacks.epoch}"
            rules.report(NOT_A_MEMBER, sentence, {"node": peer.name, **lacks.to_json()})


def _lacks(rules: LogRules, leader: ObservedReplica, peer: ObservedReplica, end: int) -> CopiedBatch | None:
    """The leader's last batch below `end`, if the other lacks it. Logs with a common batch are equal before it; another
    oracle checks that. Batches below either log's start were deleted, and are not served."""
    if any(replica.alive is not None and end <= replica.alive.log.local_start_offset for replica in (leader, peer)):
        return None
    if peer.alive is None:
        return None
    rules.follow(peer.machine, peer.copy, peer.alive.log)
    last_batch = _last_below(leader.copy, end)
    return None if last_batch is None or peer.copy.holds(last_batch) else last_batch


def _last_below(copy: CopiedLog, end: int) -> CopiedBatch | None:
    batches = copy.between(copy.start, end)
    return batches[-1] if batches and batches[-1].next <= end else None


Key = tuple[bytes, int]
STARTS_FILE = "log-start-offset-checkpoint"


class PartitionRules:
    """Checks all partitions of a cluster. `machines` by broker id."""

    def __init__(self, machines: Mapping[int, MachineView], findings: OracleFindings) -> None:
        self._machines = machines
        self._findings = findings
        self._controller = ControllerRules(machines, findings)
        self._administration = AdministrationRules(findings)
        self._rules: dict[Key, LogRules] = {}
        self._replicas: dict[Key, dict[str, ObservedReplica]] = {}
        self._of: dict[str, dict[Partition, ObservedReplica]] = {}
        self._known_offset = -1
        self._unasked: dict[Key, None] = {}
        """The partitions whose current state no controller was asked about, or not with all the necessary metadata."""
        self._asked_at = -1
        self._compacted: dict[Key, None] = {}
        """The partitions whose replicas may have compacted their logs: they have other rules."""
        self._compacted_rules = CompactedRules(findings)
        self._groups = GroupRules(findings)
        self._leases = LeaseRules(machines, findings)
        self._points = DurablePoints()
        self.deletions = DeletionRules(findings)

    def look(self, machine: MachineView, partitions: Iterable[Partition]) -> None:
        """Check the partitions of a broker whose code has run."""
        partitions = tuple(partitions)
        replicas = self._of.setdefault(machine.name, {})
        points = self._points.of(machine)
        for partition in partitions:
            key = (partition.topic_id, partition.index)
            self.deletions.look(machine, partition)
            if partition.topic == OFFSETS_TOPIC:
                self._groups.look(machine, partition)
            compacts = machine.settings.compacts(machine.set_for(partition.topic))
            if compacts or key in self._compacted:
                self._compacted_rules.look(machine, partition)
            if compacts and len(partition.log.segments) > 1:
                self._compacted[key] = None  # from now on there is something to compact, and the log has other rules
            if key in self._compacted:
                if isinstance(partition.role, PartitionLeader) and partition.role.pending is not None:
                    self._controller.asked(key, partition.role.pending)
                continue
            replica = replicas.get(partition)
            if replica is None:
                replica = replicas[partition] = self._first_seen(machine, partition)
            now = _state_of(partition)
            if now != replica.seen:
                self._look_at(replica, partition, now)
            look_at_producers(self._rules[key], replica)
            look_at_recovery_point(self._rules[key], replica, partition.log, points)
        self._leases.look(machine, partitions)
        if machine.running and machine.image.offset > self._known_offset:
            self._known_offset = machine.image.offset
            for topic, index, state in self._controller.look(machine.image):
                self._eligible(topic.id, index, state)
                self._leases.elect(topic, index, state)
                self._unasked[topic.id, index] = None
            self._isr_everywhere()
        controller = machine.node.controller if machine.node is not None else None
        if self._unasked and controller is not None and controller.is_active and machine.image.offset > self._asked_at:
            self._ask(controller.rules, machine.image)

    def power_lost(self, machine: MachineView) -> None:
        """A machine's page cache is lost: its replicas now have what its disk holds."""
        self.process_ended(machine)
        for replica in self._replicas_on(machine):
            replica.copy.read_from(machine.disk)

    def process_ended(self, machine: MachineView) -> None:
        """The next process may lack these partitions: those with damaged logs are offline."""
        self._of.pop(machine.name, None)
        for replica in self._replicas_on(machine):
            replica.partition = None

    def disk_damaging(self, machine: MachineView) -> None:
        """A machine's disk is about to be damaged: leaders have counted what its logs hold now."""
        for replica in self._replicas_on(machine):
            if replica.copy.path not in machine.held:
                durable_end = replica.copy.durable_end(machine.disk)
                machine.held[replica.copy.path] = LogBeforeDamage(replica.copy.copied(), durable_end)

    def settle(self, machine: MachineView) -> None:
        """A damaged machine is excused until a process started since then is registered with all others."""
        if machine.registered_in >= 0 and machine.registered_in == self._epoch_of(machine.node_id):
            machine.registered()
        if Damage.ELAPSED_TIME in machine.suffered and machine.node is not None:
            machine.passed(machine.settings.seconds(LEASE))

    def _replicas_on(self, machine: MachineView) -> list[ObservedReplica]:
        return [replicas[machine.name] for replicas in self._replicas.values() if machine.name in replicas]

    def _first_seen(self, machine: MachineView, partition: Partition) -> ObservedReplica:
        key = (partition.topic_id, partition.index)
        if key not in self._rules:
            self._rules[key] = LogRules(partition.topic, partition.index, self._findings)
            self._rules[key].electable = self._controller.electable(key)
        rules, predecessor = self._rules[key], self._replicas.setdefault(key, {}).get(machine.name)
        replica = ObservedReplica(machine, CopiedLog(machine.path_of(partition.log.directory)), partition)
        replica.start = partition.log.local_start_offset
        rules.local_start = max(rules.local_start, replica.start)
        # An earlier process may have written the log's new start and ended before it moved the start.
        written = written_start(machine.disk, machine.path_of(STARTS_FILE), partition.topic, partition.index)
        rules.committed.start = max(rules.committed.start, min(replica.start, written))
        replica.epoch = -1 if predecessor is None else predecessor.epoch
        self._replicas[key][machine.name] = replica
        rules.follow(machine, replica.copy, partition.log)
        replica.high_watermark = partition.high_watermark
        if partition.log.recovered.scanned and not machine.acts_on_metadata:
            rules.no_epoch_past_end(machine.name, partition.log, "has been recovered")
        return replica

    # --- one replica

    def _look_at(self, replica: ObservedReplica, partition: Partition, now: tuple[Any, ...]) -> None:
        rules = self._rules[partition.topic_id, partition.index]
        before, epoch, replica.seen = replica.seen, replica.epoch, now
        role, log = partition.role, partition.log
        replica.flushes = replica.machine.settings.flushes(replica.machine.set_for(partition.topic))
        end = max(replica.copy.end, replica.start)
        rules.follow(replica.machine, replica.copy, log)
        if log.local_start_offset != replica.start:
            note_begin(replica, log, end)
            replica.start = log.local_start_offset
            rules.began_anew(replica.name, end, replica.copy, log)
            rules.start_moved(replica.name, replica.copy, log)
        if before and before[2][0] != log.log_start_offset:  # retention of remote records moves a log's start alone
            rules.committed.start = max(rules.committed.start, log.log_start_offset)
            start_rises(rules, replica, log, before[2][0])
        led = before[0] if before else None
        if isinstance(led, PartitionLeader) and led is not role:
            # It may have committed more, and resigned, since the last check.
            self._committed(rules, replica, partition, led)
        if role is not None and led is not role:
            self._new_role(rules, replica, partition, role)
        fetches = bool(before) and led is role and before[-1] is Phase.FETCHING
        if isinstance(role, PartitionFollower) and role.phase is Phase.FETCHING and not fetches:
            rules.no_epoch_past_end(replica.name, log, "has matched its log with its leader's")
            matched(rules, replica, role, self._others(partition, replica))
        self._high_watermark(rules, replica, partition, epoch)
        if isinstance(role, PartitionLeader):
            self._leads_on(rules, replica, partition, role, before)

    def _leads_on(
        self,
        rules: LogRules,
        replica: ObservedReplica,
        partition: Partition,
        role: PartitionLeader,
        before: tuple[Any, ...],
    ) -> None:
        """Checks what a leader requests, counts and answers, in addition to what it commits."""
        self._isr(rules, replica, partition, role)
        if before and before[0] is role:
            self._recovers(rules, replica, role, before, partition.log.log_end_offset)
        if role.pending is not None and (not before or before[0] is not role or before[5] is not role.pending):
            self._controller.asked((partition.topic_id, partition.index), role.pending)
            proposed(rules, replica, role, role.pending, self._others(partition, replica))
        counted(rules, replica, role, self._others(partition, replica))
        if replica.machine.node is not None:
            reader = replica.machine.node.replicas.reader
            would_count(rules, reader, replica, self._others(partition, replica))
            would_answer(rules, reader, replica)
            would_start(rules, replica)

    def _new_role(
        self, rules: LogRules, replica: ObservedReplica, partition: Partition, role: PartitionLeader | PartitionFollower
    ) -> None:
        rules.checked(EPOCH_FELL)
        epoch, name = role.leader_epoch, replica.name
        if epoch < replica.epoch:
            sentence = f"{name} was in leader epoch {replica.epoch}, and takes a role in epoch {epoch}"
            rules.report(EPOCH_FELL, sentence, {"node": name, "epoch": replica.epoch}, {"node": name, "epoch": epoch})
        replica.epoch = max(epoch, replica.epoch)
        if not isinstance(role, PartitionLeader):
            return
        rules.leads(name, replica.machine.life, epoch)
        start = partition.log.local_start_offset
        if role.recovering:
            self._most_complete(rules, replica, partition, epoch)
        elif rules.complete(name, replica.copy, start, epoch, "leads"):
            return
        missing = rules.missing_in(replica.copy, start, epoch)
        if missing is not None:
            rules.committed.cut(missing.base, epoch)

    def _most_complete(self, rules: LogRules, replica: ObservedReplica, partition: Partition, epoch: int) -> None:
        """Without an eligible replica, the leader has at least as much of the committed log as any replica asked."""
        state = replica.machine.image.partition(partition.topic, partition.index)
        missing = rules.missing_in(replica.copy, partition.log.local_start_offset, epoch)
        if state is None or state.leader_epoch != epoch or missing is None:
            return
        for peer in self._others(partition, replica):
            if peer.machine.node_id not in state.last_known_elr:
                continue
            rules.checked(INCOMPLETE)
            if peer.copy.holds(missing):
                sentence = (
                    f"{replica.name} leads in epoch {epoch} without offset {missing.base} of epoch {missing.epoch}, "
                    f"which is committed and which {peer.name} has, that could have led"
                )
                rules.report(INCOMPLETE, sentence, {"node": replica.name, **missing.to_json()}, {"node": peer.name})
                return

    def _high_watermark(self, rules: LogRules, replica: ObservedReplica, partition: Partition, epoch: int) -> None:
        """`epoch`: the replica's at the last check; its high watermark may still have risen in that epoch."""
        mark, old_mark = partition.high_watermark, replica.high_watermark
        name, end = replica.name, partition.log.log_end_offset
        replica.high_watermark = mark
        if mark > end and (mark > old_mark or not partition.lock.locked()):  # else a truncation is in progress
            rules.checked(BAD_MARK)
            sentence = f"the high watermark of {name} is {mark}, and its log ends at {end}"
            rules.report(BAD_MARK, sentence, {"node": name, "high_watermark": mark, "end": end})
            return
        if mark == old_mark:
            return
        committed = rules.committed
        if replica.rose_in >= committed.lost_in:
            rules.checked(MARK_FELL)
            if mark < old_mark and not replica.machine.excused(MARK_FELL, replica.copy.path):
                sentence = f"the high watermark of {name} was {old_mark} and is {mark}"
                rules.report(MARK_FELL, sentence, {"node": name, "before": old_mark, "high_watermark": mark})
        if mark <= old_mark:
            return
        replica.rose_in = epoch
        rules.checked(BAD_MARK)
        start = partition.log.log_start_offset
        if mark < start:
            sentence = f"the high watermark of {name} is {mark}, and its log starts at {start}"
            rules.report(BAD_MARK, sentence, {"node": name, "high_watermark": mark, "start": start})
        if epoch >= committed.lost_in:
            self._as_committed(rules, replica, max(old_mark, start), min(mark, committed.end))
        if isinstance(partition.role, PartitionLeader):
            self._committed(rules, replica, partition, partition.role)
        elif mark > committed.end and epoch >= committed.lost_in:
            sentence = f"{name} takes everything below {mark} for committed, and leaders have committed {committed.end}"
            rules.report(BAD_MARK, sentence, {"node": name, "high_watermark": mark, "committed": committed.end})

    def _as_committed(self, rules: LogRules, replica: ObservedReplica, start: int, mark: int) -> None:
        """What a replica considers committed, a leader's view included, equals what leaders have committed before."""
        for batch in replica.copy.between(start, mark):
            if batch.base >= rules.committed.start and not rules.committed.holds(batch):
                sentence = (
                    f"{replica.name} takes its offset {batch.base} of epoch {batch.epoch} for committed, and leaders "
                    "have committed other records there"
                )
                rules.report(BAD_MARK, sentence, {"node": replica.name, "high_watermark": mark, **batch.to_json()})
                return

    # --- a leader's commits

    def _committed(
        self, rules: LogRules, replica: ObservedReplica, partition: Partition, role: PartitionLeader
    ) -> None:
        mark, name = role.high_watermark, replica.name
        if mark <= rules.committed.end or role.leader_epoch < rules.committed.lost_in:
            return  # commits of a leader that an unclean election has deposed are lost with the rest
        rules.commit(replica.copy, mark, role.leader_epoch)
        settings = (machine.settings for machine in self._machines.values())
        minimum = least_in_sync(
            settings, replica.machine.set_for(partition.topic), len(self._replicas_of(partition, role))
        )
        if len(role.isr) < minimum:  # a joining broker is in sync only once the controller says so
            sentence = f"{name} commits up to {mark} with the ISR {list(role.isr)}, smaller than {minimum}"
            rules.report(BAD_MARK, sentence, {"node": name, "high_watermark": mark, "isr": list(role.isr)})
        for peer in self._others(partition, replica):
            theirs = None if peer.alive is None else peer.alive.role
            if not isinstance(theirs, PartitionLeader):
                continue
            if theirs.leader_epoch > role.leader_epoch:
                rules.complete(peer.name, peer.copy, peer.start, theirs.leader_epoch, f"leads, as {name} commits,")
            elif not theirs.recovering:
                self._lease(rules, replica, role, peer, theirs)
        state = self._newest_state(partition)
        if state is not None and state.leader_epoch == role.leader_epoch:
            self._everywhere(rules, replica, partition, state, mark)

    def _lease(
        self,
        rules: LogRules,
        replica: ObservedReplica,
        role: PartitionLeader,
        peer: ObservedReplica,
        theirs: PartitionLeader,
    ) -> None:
        """A leader of an older epoch must not answer reads any more once a newer leader commits."""
        rules.checked(LEASE_SHARED)
        if peer.machine.holds_lease and not peer.machine.excused(LEASE_SHARED):
            sentence = (
                f"{replica.name} commits up to {role.high_watermark} in epoch {role.leader_epoch}, while {peer.name} "
                f"leads in epoch {theirs.leader_epoch} and holds a lease"
            )
            witness = {"node": replica.name, "epoch": role.leader_epoch}
            rules.report(LEASE_SHARED, sentence, witness, {"node": peer.name, "epoch": theirs.leader_epoch})

    def _everywhere(
        self, rules: LogRules, replica: ObservedReplica, partition: Partition, state: PartitionImage, mark: int
    ) -> None:
        """Committed records are in the logs of all replicas that the controller may elect; on disk where required."""
        replicas = self._replicas[partition.topic_id, partition.index]
        for member in state.isr:
            machine = self._machines.get(member)
            if machine is None:
                continue
            rules.checked(BAD_MARK)
            peer = replicas.get(machine.name)
            if peer is None:
                self._beyond(rules, replica, machine.name, mark, BAD_MARK, "{0} has never had a log", 0)
                continue
            if peer.alive is not None and machine.registered_in == self._epoch_of(member):
                rules.follow(machine, peer.copy, peer.alive.log)
                if peer.copy.end < mark or not peer.copy.holds(rules.committed.batches[-1]):
                    self._beyond(rules, replica, peer.name, mark, BAD_MARK, "that of {0} ends at {1}", peer.copy.end)
            if peer.flushes:
                rules.checked(NOT_DURABLE)
                durable = peer.copy.durable_end(machine.disk)
                if (lost := machine.held_of(NOT_DURABLE, peer.copy.path)) is not None:
                    durable = max(durable, lost.durable_end)
                if durable < mark:
                    template = "{0} has only {1} of it on its disk"
                    self._beyond(rules, replica, peer.name, mark, NOT_DURABLE, template, durable)

    def _beyond(
        self, rules: LogRules, replica: ObservedReplica, member: str, mark: int, oracle: str, template: str, end: int
    ) -> None:
        sentence = f"{replica.name} commits up to {mark}, and of the ISR {template.format(member, end)}"
        rules.report(oracle, sentence, {"node": replica.name, "high_watermark": mark}, {"node": member, "end": end})

    def _recovers(
        self, rules: LogRules, replica: ObservedReplica, role: PartitionLeader, before: tuple[Any, ...], end: int
    ) -> None:
        """A leader that recovers appends no record and commits none (K704-5)."""
        rules.checked(IN_RECOVERY)
        if role.recovering and before[6] and (end, role.high_watermark) != (before[1], before[3]):
            sentence = (
                f"{replica.name} recovers in epoch {role.leader_epoch}, and its log went from {before[1]} to {end}, "
                f"its high watermark from {before[3]} to {role.high_watermark}"
            )
            rules.report(IN_RECOVERY, sentence, {"node": replica.name, "epoch": role.leader_epoch, "end": end})

    # --- the in-sync set

    def _ask(self, rules: Controller, image: MetadataImage) -> None:
        """Asks the controller about changed partitions, with its own metadata; about a recovering leader again and
        again, because brokers that could join may come later."""
        self._asked_at = image.offset
        unasked, self._unasked, partitions = self._unasked, {}, list[tuple[TopicImage, int, PartitionImage]]()
        for topic_id, index in unasked:
            topic = image.topic_by_id(topic_id)
            state = None if topic is None else topic.partitions.get(index)
            if topic is not None and state is not None:
                would_grant(self._findings, rules, image, topic, index, state)
                partitions.append((topic, index, state))
                if state.recovering:
                    self._unasked[topic_id, index] = None
        would_elect(self._findings, rules, image, partitions)
        self._administration.look(rules, image)

    def _eligible(self, topic_id: bytes, index: int, state: PartitionImage) -> None:
        """A broker that may be elected without a recovery has all that is committed (H5, H16)."""
        rules = self._rules.get((topic_id, index))
        if rules is not None:
            rules.electable = self._controller.electable((topic_id, index))
        if rules is None or state.recovering or (topic_id, index) in self._compacted:
            return
        for member in (*state.isr, *state.elr):
            machine = self._machines.get(member)
            replica = None if machine is None else self._replicas[topic_id, index].get(machine.name)
            if machine is None or replica is None or replica.alive is None:
                continue
            if machine.registered_in != self._epoch_of(member):
                continue
            rules.checked(NOT_A_MEMBER)
            rules.follow(machine, replica.copy, replica.alive.log)
            missing = rules.missing_in(replica.copy, replica.alive.log.local_start_offset)
            if missing is not None:
                sentence = (
                    f"{replica.name} may be elected (ISR {list(state.isr)}, ELR {members_text(state.elr)}) without "
                    f"offset {missing.base} of epoch {missing.epoch}, which is committed"
                )
                rules.report(NOT_A_MEMBER, sentence, {"node": replica.name, **missing.to_json()})

    def _isr_everywhere(self) -> None:
        """Metadata were committed: what leaders count may not be sufficient any more."""
        for replicas in self._replicas.values():
            for replica in replicas.values():
                partition = replica.alive
                if partition is not None and isinstance(partition.role, PartitionLeader):
                    rules = self._rules[partition.topic_id, partition.index]
                    self._isr(rules, replica, partition, partition.role)

    def _isr(self, rules: LogRules, replica: ObservedReplica, partition: Partition, role: PartitionLeader) -> None:
        """A leader counts every broker that the controller may elect from the ISR (H13)."""
        state = self._newest_state(partition)
        if state is None or state.leader_epoch != role.leader_epoch:
            return
        rules.checked(NARROW_ISR)
        if not set(state.isr) <= role.maximal_isr:
            sentence = (
                f"{replica.name} counts {sorted(role.maximal_isr)} in epoch {role.leader_epoch}, and the controller "
                f"may elect from {list(state.isr)}"
            )
            witness = {"node": replica.name, "counts": sorted(role.maximal_isr), "isr": list(state.isr)}
            rules.report(NARROW_ISR, sentence, witness)

    # --- others

    def _replicas_of(self, partition: Partition, role: PartitionLeader) -> Collection[int]:
        """The brokers with a replica, by the newest metadata; by the leader if those lack the partition."""
        state = self._newest_state(partition)
        return role.replicas if state is None else state.replicas

    def _others(self, partition: Partition, replica: ObservedReplica) -> Iterator[ObservedReplica]:
        for peer in self._replicas[partition.topic_id, partition.index].values():
            if peer is not replica:
                yield peer

    def _newest_image(self) -> MetadataImage | None:
        images = (machine.image for machine in self._machines.values() if machine.running)
        return max(images, key=lambda image: image.offset, default=None)

    def _newest_state(self, partition: Partition) -> PartitionImage | None:
        image = self._newest_image()
        return None if image is None else image.partition(partition.topic, partition.index)

    def _epoch_of(self, broker_id: int) -> int | None:
        image = self._newest_image()
        broker = None if image is None else image.brokers.get(broker_id)
        return None if broker is None else broker.epoch


def _state_of(partition: Partition) -> tuple[Any, ...]:
    """The replica's state that the rules use; the role comes first, the phase of a follower last."""
    role, log = partition.role, partition.log
    starts = (log.log_start_offset, log.local_start_offset)
    if role is None:
        return (None, log.log_end_offset, starts, partition.high_watermark)
    if isinstance(role, PartitionLeader):
        return (
            role,
            log.log_end_offset,
            starts,
            role.high_watermark,
            role.isr,
            role.pending,
            role.recovering,
            counts(role),
        )
    return (role, log.log_end_offset, starts, role.high_watermark, role.phase)

"""The oracles of the metadata quorum: votes, leaders, and what the disks of a majority hold.

The oracle of check quorum: a leader of the quorum without a majority of the voters resigns in time.

Such a leader commits nothing, and becomes a follower once it learns of its successor, so no event shows that it led too
long. Whether it would do so depends only on its timer, and on what postpones it: whose fetches count, and how many. (A
timer that fires and is ignored needs no oracle: it fires again at once, for ever.)

The oracle of the snapshots of the metadata log: each equals the result of the records before its end.

This includes the records that name the voters: a member with another set of voters counts other votes. A member that
starts from a snapshot continues as if there had been no other records. What the snapshot lacks has effects only later,
and other oracles compare each state only with an earlier one of the same node.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from broker.controller.image import MetadataImage
from broker.controller.image_records import records_of
from broker.errors import ProtocolError, StartupError
from broker.log.log import PartitionLog
from broker.protocol.messages.metadata_records import NO_LEADER, encode_record
from broker.quorum.messages import OffsetAndEpoch
from broker.quorum.roles import Leader
from broker.quorum.runner import QuorumRunner
from broker.quorum.snapshots import Snapshots
from broker.quorum.voters import VoterSet
from broker.quorum.wire import METADATA_TOPIC, PARTITION
from broker.server.node_directory import METADATA_DIRECTORY
from broker.trace import Value
from simulator.oracles.excuses import LogBeforeDamage
from simulator.oracles.findings import (
    BAD_MARK,
    EPOCH_FELL,
    MARK_FELL,
    NO_MAJORITY,
    NO_VOTES,
    NOT_DURABLE,
    OLD_EPOCH,
    SNAPSHOT_DIFFERS,
    VOTE_AGAINST,
    VOTE_FIRST,
    OracleFindings,
)
from simulator.oracles.log_copy import CopiedBatch, CopiedLog
from simulator.oracles.log_rules import LogRules
from simulator.oracles.machine_view import MachineView
from simulator.oracles.quorum_requests import QuorumRequests


class SnapshotState(NamedTuple):
    """The content of an image, without what no snapshot holds: where brokers lost their places last, and the deleted
    topics."""

    cluster: Mapping[Any, Any]
    brokers: Mapping[Any, Any]
    topics: Mapping[Any, Any]
    acls: Mapping[Any, Any]
    credentials: Mapping[Any, Any]
    voters: Mapping[Any, Any]


class Difference(NamedTuple):
    """A difference between two states, as text."""

    what: str
    was: str
    now: str


class SnapshotRules:
    """Checks all snapshots of one metadata log; `rules`: that log's. Records before an offset are identified by its
    epoch, too: records that were written again after the loss of a majority are in a later epoch."""

    def __init__(self, rules: LogRules) -> None:
        self._rules = rules
        self._known: dict[OffsetAndEpoch, tuple[SnapshotState, str]] = {}
        self._looked_at = -1
        self._kinds: set[tuple[object, ...]] = set()
        """The kinds of content of states for which a hypothetical snapshot was checked."""

    def look(self, machine: MachineView, epoch: int) -> None:
        """A member in this epoch has applied a record. Few runs make a snapshot of each relevant state, so a
        hypothetical one is made of each state with content of a new kind."""
        image = machine.image
        if image.offset <= self._looked_at:
            return
        self._looked_at = image.offset
        kinds = set(_kinds(image))
        if kinds <= self._kinds:
            return
        self._kinds |= kinds
        self._rules.checked(SNAPSHOT_DIFFERS)
        restored, snapshot = MetadataImage(), OffsetAndEpoch(epoch, image.offset + 1)
        try:
            restored.restore(snapshot.offset, [encode_record(record) for record in records_of(image)])
        except ValueError as error:
            self._report(machine, snapshot, f"could not be read: {error}")
            return
        made_of = "the state that it is made of"
        self._compare(machine, snapshot, _state_of(image, None), _state_of(restored, None), f"would not be {made_of}")

    def heard(self, machine: MachineView, snapshot: OffsetAndEpoch) -> None:
        """A member has made a snapshot, or starts from one, now: it equals the state at that offset."""
        if machine.node is None:
            return
        self._rules.checked(SNAPSHOT_DIFFERS)
        last_batch = self._rules.committed.last_below(snapshot.offset)
        if last_batch is not None and last_batch.epoch != snapshot.epoch:
            # With another epoch its node would truncate records that it has acknowledged, and send it to others.
            self._report(machine, snapshot, f"is behind a record of epoch {last_batch.epoch}", last_batch.to_json())
            return
        state = _state_of(machine.image, _voters_at(machine.node.quorum, snapshot.offset))
        original, author = self._known.setdefault(snapshot, (state, machine.name))
        try:
            written = _written(machine, snapshot)
        except (OSError, StartupError, ValueError) as error:
            self._report(machine, snapshot, f"cannot be read: {error}")
            return
        other_copy = "the state that it was made of" if author == machine.name else f"what {author} had there"
        for version in (state, written):
            self._compare(machine, snapshot, original, version, f"is not {other_copy}")

    def _compare(
        self, machine: MachineView, snapshot: OffsetAndEpoch, expected: SnapshotState, actual: SnapshotState, claim: str
    ) -> None:
        difference = next(_differences(expected, actual), None)
        if difference is not None:
            values = {"was": difference.was, "is": difference.now}
            self._report(machine, snapshot, f"{claim}: it differs in {difference.what}", values)

    def _report(
        self, machine: MachineView, snapshot: OffsetAndEpoch, problem: str, *witness: Mapping[str, object]
    ) -> None:
        own_witness = {"node": machine.name, "offset": snapshot.offset, "epoch": snapshot.epoch}
        sentence = f"the snapshot of {machine.name} at {snapshot.offset} in epoch {snapshot.epoch} {problem}"
        self._rules.report(SNAPSHOT_DIFFERS, sentence, own_witness, *witness)


def _kinds(image: MetadataImage) -> Iterator[tuple[object, ...]]:
    """The kinds of content of a state: partitions, brokers and the rest, by what a snapshot could lack."""
    for topic, _, state in image.partitions():
        lists = (state.elr, state.last_known_elr, state.adding, state.removing)
        traits = (state.leader == NO_LEADER, state.recovering, *map(bool, lists))
        yield ("partition", *traits, *sorted(topic.configs))
    for broker in image.brokers.values():
        yield ("broker", broker.fenced, broker.rack is None, len(broker.endpoints), len(broker.directories))
    remainder = (
        image.cluster_id,
        image.session_timeout_ms,
        image.defaults,
        image.next_producer_id,
        image.acls,
        image.scram,
    )
    yield ("rest", *map(bool, remainder))


def _voters_at(quorum: QuorumRunner, end: int) -> VoterSet | None:
    """The voters according to the records below an offset."""
    return next((voters for offset, voters in reversed(quorum.member.voters.sets) if offset < end), None)


def _state_of(image: MetadataImage, voters: VoterSet | None) -> SnapshotState:
    return SnapshotState(
        {
            "id": image.cluster_id,
            "session timeout": image.session_timeout_ms,
            "defaults": dict(image.defaults),
            "next producer id": image.next_producer_id,
        },
        {broker.id: replace(broker, lost_at=-1) for broker in image.brokers.values()},
        {name: (topic.id, dict(topic.partitions), dict(topic.configs)) for name, topic in image.topics.items()},
        dict(image.acls),
        dict(image.scram),
        {} if voters is None else dict(voters.keys),
    )


def _written(machine: MachineView, snapshot: OffsetAndEpoch) -> SnapshotState:
    """The content of the file. Raises `OSError`, `StartupError`, `ValueError` for a missing or damaged one."""
    image = MetadataImage()
    with machine.disk.as_written():
        content = Snapshots(machine.disk, machine.path_of(METADATA_DIRECTORY)).load(snapshot)
    image.restore(snapshot.offset, content.records)
    return _state_of(image, content.voters)


def _differences(expected: SnapshotState, actual: SnapshotState) -> Iterator[Difference]:
    for kind, ours, theirs in zip(SnapshotState._fields, expected, actual, strict=True):
        for key in {**ours, **theirs}:
            if ours.get(key) != theirs.get(key):
                yield Difference(f"{kind} {key}", str(ours.get(key)), str(theirs.get(key)))


NO_NODE = -1
STANDS = ("candidate", "leader")
"""The roles of a node that has voted for itself."""


@dataclass
class ObservedVoter:
    """A member at the last check. `reported`: the newest epoch that any process on this disk has shown to others."""

    machine: MachineView
    copy: CopiedLog
    seen: tuple[Any, ...] = ()
    high_watermark: int = 0
    start: int = 0
    reported: int = 0
    led: bool = False


class QuorumRules:
    """Checks the metadata log and its quorum. `machines` by node id."""

    def __init__(self, machines: Mapping[int, MachineView], findings: OracleFindings) -> None:
        self._rules = LogRules(METADATA_TOPIC, PARTITION, findings)
        self._members = {
            node_id: ObservedVoter(machine, CopiedLog(machine.path_of(METADATA_DIRECTORY)))
            for node_id, machine in machines.items()
        }
        self._snapshots = SnapshotRules(self._rules)
        self._requests = QuorumRequests(findings)
        self._named: dict[CopiedBatch, tuple[int, ...]] = {}
        """The voters that records of any log have named."""
        self._given: dict[tuple[int, int], set[int]] = {}
        """The voters that voted, by epoch and candidate."""

    def look(self, machine: MachineView, quorum: QuorumRunner) -> None:
        """Check a member whose code has run."""
        member = self._members[machine.node_id]
        try:
            role = quorum.role
        except ProtocolError:  # it has not started, or has ended
            role = None
        log = machine.node.metadata_log if machine.node is not None else None
        if log is None or not quorum.has_started:  # before that the log may start before its snapshot
            return
        mark = role.high_watermark if isinstance(role, Leader) else None
        if mark is None and member.led:  # it may have committed more, and resigned, since the last check
            mark = quorum.high_watermark
        member.led = quorum.is_leader
        ends = (log, log.log_end_offset, log.log_start_offset)
        now = (*ends, quorum.high_watermark, mark, quorum.epoch, quorum.is_leader)
        if now != member.seen:
            self._changed(member, quorum, now, mark, log)
        if role is not None:
            self._requests.look(machine, quorum.member, member.copy)

    def _changed(
        self, member: ObservedVoter, quorum: QuorumRunner, now: tuple[Any, ...], mark: int | None, log: PartitionLog
    ) -> None:
        """The log, the epoch or the commits of a member have changed. `mark`: what it has committed as leader."""
        machine = member.machine
        before, member.seen = member.seen, now
        self._snapshots.look(machine, quorum.epoch)
        if not before or before[0] is not log:
            member.copy = CopiedLog(machine.path_of(METADATA_DIRECTORY))
            member.high_watermark = 0
        self._rules.follow(machine, member.copy, log)
        if log.log_start_offset != member.start:
            member.start = log.log_start_offset
            self._rules.start_moved(machine.name, member.copy, log)
        if quorum.is_leader and (not before or before[-2:] != now[-2:]):
            self._rules.leads(machine.name, machine.life, quorum.epoch)
            self._rules.complete(machine.name, member.copy, log.log_start_offset, quorum.epoch, "leads")
        if mark is not None and quorum.is_leader and mark > member.high_watermark:
            self._of_its_epoch(member, mark, quorum.epoch)
        if mark is not None and mark > self._rules.committed.end:
            # A record of voters that was appended at this moment, behind the commit of the one before, does not count.
            end = max(mark, before[1]) if before and before[0] is log else log.log_end_offset
            self._committed(member, mark, quorum.epoch, list(self._voters_of(member, end)))
        self._applied(member, quorum.high_watermark)

    def heard(self, machine: MachineView, event: Mapping[str, Value]) -> None:
        """A member shows a role or a vote to others now, reports what its disk had, or has a snapshot."""
        event_name = event["event"]
        if event_name == "quorum_restored":
            self._restored(machine, event)
        elif event_name == "quorum_persisted":
            vote = machine.durable_vote()
            if vote is not None and vote.leader != NO_NODE:
                self._rules.leads(self._members[vote.leader].machine.name, 0, vote.epoch)
        elif event_name == "quorum_snapshot":
            self._snapshots.heard(machine, OffsetAndEpoch(int(str(event["epoch"])), int(str(event["offset"]))))
        elif event_name in ("quorum_vote", "quorum_role"):
            chosen = event.get("candidate", machine.node_id if event.get("role") in STANDS else NO_NODE)
            self._shown(machine, int(str(event["epoch"])), int(str(chosen)))
            if event_name == "quorum_vote":
                self._given.setdefault((int(str(event["epoch"])), int(str(chosen))), set()).add(machine.node_id)
                self._judged(machine, int(str(event["epoch"])), int(str(chosen)))
            elif event["role"] == "leader":
                self._elected(machine, int(str(event["epoch"])))

    def disk_damaging(self, machine: MachineView) -> None:
        """A machine's disk is about to be damaged: a leader has counted what it holds now."""
        copy = self._members[machine.node_id].copy
        machine.held.setdefault(copy.path, LogBeforeDamage(copy.copied(), copy.durable_end(machine.disk)))

    def power_lost(self, machine: MachineView) -> None:
        """A machine's page cache is lost: the member now has what its disk holds."""
        member = self._members[machine.node_id]
        member.seen = ()
        member.copy.read_from(machine.disk)

    # --- elections

    def _restored(self, machine: MachineView, event: Mapping[str, Value]) -> None:
        member = self._members[machine.node_id]
        self._rules.checked(EPOCH_FELL)
        if machine.excused(EPOCH_FELL):
            vote = machine.durable_vote()
            member.reported = 0 if vote is None else vote.epoch
        epoch = int(str(event["epoch"]))
        if epoch < member.reported:
            sentence = f"{machine.name} had shown epoch {member.reported}, and starts again with epoch {epoch}"
            witness = {"node": machine.name, "epoch": member.reported}
            self._rules.report(EPOCH_FELL, sentence, witness, {"node": machine.name, "epoch": epoch})

    def _shown(self, machine: MachineView, epoch: int, chosen: int) -> None:
        """No member shows an epoch or a vote that its disk does not certainly hold."""
        member = self._members[machine.node_id]
        self._rules.checked(VOTE_FIRST)
        self._rules.checked(EPOCH_FELL)
        if epoch < member.reported:
            sentence = f"{machine.name} has shown epoch {member.reported}, and shows epoch {epoch} now"
            witness = {"node": machine.name, "epoch": member.reported}
            self._rules.report(EPOCH_FELL, sentence, witness, {"node": machine.name, "epoch": epoch})
        member.reported = max(member.reported, epoch)
        vote = machine.durable_vote()
        is_durable = vote is not None and vote.epoch == epoch and chosen in (NO_NODE, vote.voted)
        if not is_durable and (epoch or vote is not None):
            claim = f"epoch {epoch}" if chosen == NO_NODE else f"its vote for node {chosen} in epoch {epoch}"
            on_disk = "nothing"
            if vote is not None:
                voted = "no vote" if vote.voted == NO_NODE else f"a vote for node {vote.voted}"
                on_disk = f"epoch {vote.epoch} and {voted}"
            sentence = f"{machine.name} shows {claim}, while its disk holds {on_disk} for certain"
            witness = {"node": machine.name, "epoch": epoch, "vote": chosen}
            self._rules.report(VOTE_FIRST, sentence, witness, {"node": machine.name, "disk": on_disk})

    def _judged(self, voter: MachineView, epoch: int, candidate: int) -> None:
        """A voter votes only for a candidate whose log is at least as complete as its own (K595-18). A candidate's log
        does not change, and a leader's grows."""
        stands = self._members[candidate].machine
        if not stands.running or stands.node is None or voter.node is None or stands.node.quorum.epoch != epoch:
            return
        self._rules.checked(VOTE_AGAINST)
        mine, theirs = voter.node.metadata_log, stands.node.metadata_log
        has, own_end = (theirs.last_epoch, theirs.log_end_offset), (mine.last_epoch, mine.log_end_offset)
        if has < own_end:
            sentence = (
                f"{voter.name} votes in epoch {epoch} for {stands.name}, whose log ends at {has[1]} in epoch {has[0]}, "
                f"while its own ends at {own_end[1]} in epoch {own_end[0]}"
            )
            witness = {"node": voter.name, "epoch": own_end[0], "end": own_end[1]}
            self._rules.report(VOTE_AGAINST, sentence, witness, {"node": stands.name, "epoch": has[0], "end": has[1]})

    def _elected(self, leader: MachineView, epoch: int) -> None:
        """A leader was elected by a majority in this epoch (K595-21); its own vote is implicit."""
        if leader.node is None:
            return
        self._rules.checked(NO_VOTES)
        member = self._members[leader.node_id]
        self._rules.follow(leader, member.copy, leader.node.metadata_log)
        voters = self._voters_of(member)
        votes = (self._given.get((epoch, leader.node_id), set()) | {leader.node_id}) & set(voters)
        if len(votes) <= len(voters) // 2:
            sentence = (
                f"{leader.name} leads epoch {epoch} by the votes of {sorted(votes)}, of the voters {list(voters)}"
            )
            self._rules.report(NO_VOTES, sentence, {"node": leader.name, "epoch": epoch, "votes": sorted(votes)})

    def _voters_of(self, member: ObservedVoter, end: float = math.inf) -> tuple[int, ...]:
        """The voters in the last voters record of a member's log (KIP-853) below `end`, committed or not. Another
        member's log has the records that a snapshot has replaced; without any record they are the configured ones."""
        copy = member.copy
        self._named.update(copy.voters)
        named = [batch for batch in self._named if batch.next <= min(copy.end, end) and copy.holds(batch)]
        return self._named[max(named)] if named else member.machine.settings.voters

    # --- commits

    def _of_its_epoch(self, leader: ObservedVoter, mark: int, epoch: int) -> None:
        """A leader's high watermark rises to records of its own epoch only, and includes older ones (K595-36)."""
        self._rules.checked(OLD_EPOCH)
        batch = next((batch for batch in reversed(leader.copy.batches) if batch.next <= mark), None)
        if batch is not None and batch.next == mark and batch.epoch != epoch:
            name = leader.machine.name
            sentence = f"{name} leads epoch {epoch}, and commits up to {mark}, with a record of epoch {batch.epoch}"
            self._rules.report(OLD_EPOCH, sentence, {"node": name, "leads": epoch, **batch.to_json()})

    def _committed(self, leader: ObservedVoter, mark: int, epoch: int, voters: list[int]) -> None:
        """What a leader commits is in the logs, and on the disks, of a majority of the voters."""
        rules, name = self._rules, leader.machine.name
        rules.commit(leader.copy, mark, epoch)
        if not rules.committed.batches:
            return
        rules.checked(NO_MAJORITY)
        rules.checked(NOT_DURABLE)
        batch = rules.committed.batches[-1]
        holding, durable = [], []
        for voter in voters:
            member = self._members.get(voter)
            if member is None:
                continue
            machine = member.machine
            if machine.running and machine.node is not None:
                rules.follow(machine, member.copy, machine.node.metadata_log)
            lost = machine.held_of(NO_MAJORITY, member.copy.path)
            if member.copy.holds(batch) or (lost is not None and lost.copy.holds(batch)):
                holding.append(voter)
                lost = machine.held_of(NOT_DURABLE, member.copy.path)
                if max(member.copy.durable_end(machine.disk), -1 if lost is None else lost.durable_end) >= mark:
                    durable.append(voter)
        majority = len(voters) // 2 + 1
        for oracle, have, storage in ((NO_MAJORITY, holding, "logs"), (NOT_DURABLE, durable, "disks")):
            if len(have) < majority:
                sentence = (
                    f"{name} commits up to {mark}, which is in the {storage} of {have or 'no voter'}, "
                    f"and a majority of {voters} is {majority}"
                )
                rules.report(oracle, sentence, {"node": name, "high_watermark": mark, "have": have}, batch.to_json())

    def _applied(self, member: ObservedVoter, mark: int) -> None:
        rules, name, old_mark = self._rules, member.machine.name, member.high_watermark
        member.high_watermark = mark
        if mark == old_mark:
            return
        rules.checked(MARK_FELL)
        rules.checked(BAD_MARK)
        if mark < old_mark:
            sentence = f"the high watermark of {name} was {old_mark} and is {mark}"
            rules.report(MARK_FELL, sentence, {"node": name, "before": old_mark, "high_watermark": mark})
        if mark > rules.committed.end:
            sentence = f"{name} acts on everything below {mark}, and leaders have committed {rules.committed.end}"
            witness = {"node": name, "high_watermark": mark, "committed": rules.committed.end}
            rules.report(BAD_MARK, sentence, witness)

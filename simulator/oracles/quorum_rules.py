"""The oracles of the metadata quorum: votes, leaders, and what the disks of a majority hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from broker.errors import ProtocolError
from broker.quorum.messages import OffsetAndEpoch
from broker.quorum.roles import Leader
from broker.quorum.runner import QuorumRunner
from broker.quorum.wire import METADATA_TOPIC, PARTITION
from broker.server.node_directory import METADATA_DIRECTORY
from broker.trace import Value
from simulator.oracles.check_quorum import CheckQuorumRules
from simulator.oracles.excuses import LogBeforeDamage
from simulator.oracles.findings import (
    BAD_MARK,
    EPOCH_FELL,
    MARK_FELL,
    NO_MAJORITY,
    NO_VOTES,
    NOT_DURABLE,
    OLD_EPOCH,
    VOTE_AGAINST,
    VOTE_FIRST,
    OracleFindings,
)
from simulator.oracles.log_copy import CopiedBatch, CopiedLog
from simulator.oracles.log_rules import LogRules
from simulator.oracles.machine_view import MachineView
from simulator.oracles.snapshot_rules import SnapshotRules

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
        self._check_quorum = CheckQuorumRules(self._rules)
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
        if isinstance(role, Leader):
            self._check_quorum.look(machine, role, quorum.member.leading, len(self._voters_of(member)))
        mark = role.high_watermark if isinstance(role, Leader) else None
        if mark is None and member.led:  # it may have committed more, and resigned, since the last check
            mark = quorum.high_watermark
        member.led = quorum.is_leader
        ends = (log, log.log_end_offset, log.log_start_offset)
        now = (*ends, quorum.high_watermark, mark, quorum.epoch, quorum.is_leader)
        if now == member.seen:
            return
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
            self._committed(member, mark, quorum.epoch, list(self._voters_of(member)))
        self._applied(member, quorum.high_watermark)

    def heard(self, machine: MachineView, event: Mapping[str, Value]) -> None:
        """A member shows a role or a vote to others now, reports what its disk had, or has a snapshot."""
        what = event["event"]
        if what == "quorum_restored":
            self._restored(machine, event)
        elif what == "quorum_persisted":
            vote = machine.durable_vote()
            if vote is not None and vote.leader != NO_NODE:
                self._rules.leads(self._members[vote.leader].machine.name, 0, vote.epoch)
        elif what == "quorum_snapshot":
            self._snapshots.heard(machine, OffsetAndEpoch(int(str(event["epoch"])), int(str(event["offset"]))))
        elif what in ("quorum_vote", "quorum_role"):
            chosen = event.get("candidate", machine.node_id if event.get("role") in STANDS else NO_NODE)
            self._shown(machine, int(str(event["epoch"])), int(str(chosen)))
            if what == "quorum_vote":
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
            of = {"node": machine.name, "epoch": member.reported}
            self._rules.report(EPOCH_FELL, sentence, of, {"node": machine.name, "epoch": epoch})

    def _shown(self, machine: MachineView, epoch: int, chosen: int) -> None:
        """No member shows an epoch or a vote that its disk does not certainly hold."""
        member = self._members[machine.node_id]
        self._rules.checked(VOTE_FIRST)
        self._rules.checked(EPOCH_FELL)
        if epoch < member.reported:
            sentence = f"{machine.name} has shown epoch {member.reported}, and shows epoch {epoch} now"
            of = {"node": machine.name, "epoch": member.reported}
            self._rules.report(EPOCH_FELL, sentence, of, {"node": machine.name, "epoch": epoch})
        member.reported = max(member.reported, epoch)
        vote = machine.durable_vote()
        held = vote is not None and vote.epoch == epoch and chosen in (NO_NODE, vote.voted)
        if not held and (epoch or vote is not None):
            what = f"epoch {epoch}" if chosen == NO_NODE else f"its vote for node {chosen} in epoch {epoch}"
            on_disk = "nothing"
            if vote is not None:
                voted = "no vote" if vote.voted == NO_NODE else f"a vote for node {vote.voted}"
                on_disk = f"epoch {vote.epoch} and {voted}"
            sentence = f"{machine.name} shows {what}, while its disk holds {on_disk} for certain"
            of = {"node": machine.name, "epoch": epoch, "vote": chosen}
            self._rules.report(VOTE_FIRST, sentence, of, {"node": machine.name, "disk": on_disk})

    def _judged(self, voter: MachineView, epoch: int, candidate: int) -> None:
        """A voter votes only for a candidate whose log is at least as complete as its own (K595-18). A candidate's log
        does not change, and a leader's grows."""
        stands = self._members[candidate].machine
        if not stands.running or stands.node is None or voter.node is None or stands.node.quorum.epoch != epoch:
            return
        self._rules.checked(VOTE_AGAINST)
        mine, theirs = voter.node.metadata_log, stands.node.metadata_log
        has, wanted = (theirs.last_epoch, theirs.log_end_offset), (mine.last_epoch, mine.log_end_offset)
        if has < wanted:
            sentence = (
                f"{voter.name} votes in epoch {epoch} for {stands.name}, whose log ends at {has[1]} in epoch {has[0]}, "
                f"while its own ends at {wanted[1]} in epoch {wanted[0]}"
            )
            of = {"node": voter.name, "epoch": wanted[0], "end": wanted[1]}
            self._rules.report(VOTE_AGAINST, sentence, of, {"node": stands.name, "epoch": has[0], "end": has[1]})

    def _elected(self, leader: MachineView, epoch: int) -> None:
        """A leader was elected by a majority in this epoch (K595-21); its own vote is implicit."""
        if leader.node is None:
            return
        self._rules.checked(NO_VOTES)
        member = self._members[leader.node_id]
        self._rules.follow(leader, member.copy, leader.node.metadata_log)
        voters = self._voters_of(member)
        given = (self._given.get((epoch, leader.node_id), set()) | {leader.node_id}) & set(voters)
        if len(given) <= len(voters) // 2:
            sentence = (
                f"{leader.name} leads epoch {epoch} by the votes of {sorted(given)}, of the voters {list(voters)}"
            )
            self._rules.report(NO_VOTES, sentence, {"node": leader.name, "epoch": epoch, "votes": sorted(given)})

    def _voters_of(self, member: ObservedVoter) -> tuple[int, ...]:
        """The voters in the last voters record of a member's log (KIP-853), committed or not. Another member's log has
        the records that a snapshot has replaced; without any record they are the configured ones."""
        copy = member.copy
        self._named.update(copy.voters)
        named = [batch for batch in self._named if batch.next <= copy.end and copy.holds(batch)]
        return self._named[max(named)] if named else member.machine.settings.voters

    # --- commits

    def _of_its_epoch(self, leader: ObservedVoter, mark: int, epoch: int) -> None:
        """A leader's high watermark rises to records of its own epoch only, and includes older ones (K595-36)."""
        self._rules.checked(OLD_EPOCH)
        last = next((batch for batch in reversed(leader.copy.batches) if batch.next <= mark), None)
        if last is not None and last.next == mark and last.epoch != epoch:
            name = leader.machine.name
            sentence = f"{name} leads epoch {epoch}, and commits up to {mark}, with a record of epoch {last.epoch}"
            self._rules.report(OLD_EPOCH, sentence, {"node": name, "leads": epoch, **last.to_json()})

    def _committed(self, leader: ObservedVoter, mark: int, epoch: int, voters: list[int]) -> None:
        """What a leader commits is in the logs, and on the disks, of a majority of the voters."""
        rules, name = self._rules, leader.machine.name
        rules.commit(leader.copy, mark, epoch)
        if not rules.committed.batches:
            return
        rules.checked(NO_MAJORITY)
        rules.checked(NOT_DURABLE)
        last = rules.committed.batches[-1]
        holding, durable = [], []
        for voter in voters:
            member = self._members.get(voter)
            if member is None:
                continue
            machine = member.machine
            if machine.running and machine.node is not None:
                rules.follow(machine, member.copy, machine.node.metadata_log)
            lost = machine.held_of(NO_MAJORITY, member.copy.path)
            if member.copy.holds(last) or (lost is not None and lost.copy.holds(last)):
                holding.append(voter)
                lost = machine.held_of(NOT_DURABLE, member.copy.path)
                if max(member.copy.durable_end(machine.disk), -1 if lost is None else lost.durable_end) >= mark:
                    durable.append(voter)
        majority = len(voters) // 2 + 1
        for oracle, have, where in ((NO_MAJORITY, holding, "logs"), (NOT_DURABLE, durable, "disks")):
            if len(have) < majority:
                sentence = (
                    f"{name} commits up to {mark}, which is in the {where} of {have or 'no voter'}, "
                    f"and a majority of {voters} is {majority}"
                )
                rules.report(oracle, sentence, {"node": name, "high_watermark": mark, "have": have}, last.to_json())

    def _applied(self, member: ObservedVoter, mark: int) -> None:
        rules, name, before = self._rules, member.machine.name, member.high_watermark
        member.high_watermark = mark
        if mark == before:
            return
        rules.checked(MARK_FELL)
        rules.checked(BAD_MARK)
        if mark < before:
            sentence = f"the high watermark of {name} was {before} and is {mark}"
            rules.report(MARK_FELL, sentence, {"node": name, "before": before, "high_watermark": mark})
        if mark > rules.committed.end:
            sentence = f"{name} acts on everything below {mark}, and leaders have committed {rules.committed.end}"
            of = {"node": name, "high_watermark": mark, "committed": rules.committed.end}
            rules.report(BAD_MARK, sentence, of)

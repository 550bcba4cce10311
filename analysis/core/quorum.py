"""The rules of the metadata quorum: its elections, and the metadata that it committed.

The evidence of a member is its files and its trace events. Of elections it is everything that names leaders and votes:
the control records that open epochs, in the logs and, where snapshots have replaced them, in the nodes' traces; the
quorum-state files; and other trace events. No clock is used.

- E1 an epoch has at most one leader, across all sources;
- E2 a voter votes for at most one candidate in an epoch, across restarts (a leader has voted for itself);
- E3 a leader is elected by a majority;
- E4 a vote leaves a voter only when its disk has it;
- E5 what a voter has reported of epochs and votes is never newer than what its disk has later, and its epoch never
  decreases. A voter may forget a vote once it knows the epoch's leader, because it can then vote for no other. A fault
  that replaces the node's disk excuses one start with older state; the node's own statement about its disk excuses
  nothing.

Metadata that is committed stays, and every node applied it and nothing else. A
*mark* is a high watermark that a node reported: everything below it is committed, as of the mark's epoch.

- M1 a process's high watermark does not fall;
- M2 what is committed in an epoch is in the log of each later leader: no later epoch starts below the mark;
- M3 what is committed is on the disks of a majority of the voters from then on;
- M4 what a node has applied, by its digest, is what the logs have and what all others have applied (a process that
  started from a snapshot knows no digest); the log of a node that was stopped cleanly has all that its last process
  has applied;
- M5 every node finally has applied what was committed before the cluster was left alone;
- D1 to D4 as for any log (`analysis.core.replicas`), with the highest mark of each node as its high watermark. For
  nodes without trace events, a snapshot's end is equivalent: a snapshot has only committed records.

M1 to M4 follow from the protocol alone, for any failures and any clock errors. M5 needs the order of events, and is
checked only if no clock was set back meanwhile.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from analysis.core.anomaly import Anomaly
from analysis.core.replica_evidence import Circumstances, ReplicaReport
from analysis.core.replicas import check_partition
from analysis.evidence.run_directory import moment
from analysis.evidence.traces import Event, Trace
from analysis.replicafiles.kraft import NO_NODE, PARTITION, TOPIC, LeaderChange, MetadataReplica, QuorumStateFile
from history.record.schemas import INF

Row = dict[str, Any]

STATE_FILE: Final = "quorum-state file"


@dataclass(frozen=True)
class QuorumMember:
    """`at_rest`: its process had stopped cleanly before its files were read, so they are its final state.
    `disks_replaced`: how many faults have replaced the node's disk, according to the journal."""

    node: str
    replica: MetadataReplica
    trace: Trace
    at_rest: bool
    disks_replaced: int = 0

    def events_named(self, *names: str) -> Iterator[Event]:
        """Its trace's events of these names, in order."""
        for process in self.trace.processes:
            yield from (event for event in process if event["event"] in names)

    def elections(self) -> Iterator[tuple[LeaderChange, Row]]:
        """The control records that opened epochs, with their votes: those in its log, and those that it reported as
        committed. A log no longer has them once a snapshot has replaced them."""
        yield from ((change, self.change_row(change)) for change in self.replica.leader_changes)
        for event in self.events_named("quorum_leader_change"):
            if "voters" in event and "granting" in event:
                votes = tuple(event["voters"]), tuple(event["granting"])
                yield LeaderChange(event["offset"], event["epoch"], event["leader"], *votes), self.event_row(event)

    def event_row(self, event: Event) -> Row:
        fields = {key: value for key, value in event.items() if key not in ("event", "node", "seq")}
        return {"op": event["event"], "node": self.node, "topic": TOPIC, "partition": PARTITION, **fields}

    def state_row(self, state: QuorumStateFile) -> Row:
        content = {"epoch": state.epoch, "leader": state.leader, "voted": state.voted}
        return {"op": STATE_FILE, "node": self.node, "topic": TOPIC, "partition": PARTITION, **content}

    def change_row(self, change: LeaderChange) -> Row:
        content = {"offset": change.offset, "epoch": change.epoch, "leader": change.leader}
        votes = {"voters": list(change.voters), "granting": list(change.granting)}
        return {"op": "leader change", "node": self.node, "topic": TOPIC, "partition": PARTITION, **content, **votes}

    def end_row(self) -> Row:
        end = -1 if self.replica.log is None else self.replica.log.end
        return {"op": "log end", "node": self.node, "topic": TOPIC, "partition": PARTITION, "offset": end}


def voters_of(members: Sequence[QuorumMember]) -> frozenset[int]:
    """The node ids of the voters, as the logs and the quorum-state files name them."""
    changes = {voter for member in members for change, _ in member.elections() for voter in change.voters}
    states = (member.replica.state for member in members)
    return frozenset(changes | {voter for state in states if state is not None for voter in state.voters})


def anomaly(name: str, sentence: str, witness: Sequence[Row], count: int = 1) -> Anomaly:
    """A finding about the metadata log."""
    return Anomaly(name, TOPIC, PARTITION, sentence, tuple(witness), count)


# ---- Elections.

STANDS: Final = ("candidate", "leader")
"""The roles of a node that has voted for itself."""
TELL_OF_ELECTIONS: Final = ("quorum_restored", "quorum_persisted", "quorum_vote", "quorum_role")
READ_FROM_DISK: Final = ("quorum_restored", STATE_FILE)


class ElectionClaim(NamedTuple):
    """A source says that in `epoch` node `chosen` led (then `who` is `NO_NODE`) or had the vote of node `who`."""

    epoch: int
    who: int
    chosen: int
    row: Row


def check_elections(members: Sequence[QuorumMember]) -> list[Anomaly]:
    """E1 to E5; one anomaly for each rule and epoch or node."""
    anomalies = [*_two_leaders(members), *_two_votes(members), *_elected_by_minority(members)]
    for member in members:
        anomalies += _votes_not_on_disk(member)
        anomalies += _forgotten(member)
    return anomalies


def leaders_of(members: Sequence[QuorumMember]) -> Iterator[ElectionClaim]:
    """Every mention of a leader."""
    for member in members:
        for change in member.replica.leader_changes:
            yield ElectionClaim(change.epoch, NO_NODE, change.leader, member.change_row(change))
        state = member.replica.state
        if state is not None and state.leader != NO_NODE:
            yield ElectionClaim(state.epoch, NO_NODE, state.leader, member.state_row(state))
        for event in member.events_named("quorum_restored", "quorum_persisted", "quorum_role", "quorum_leader_change"):
            if event["leader"] != NO_NODE:
                yield ElectionClaim(event["epoch"], NO_NODE, event["leader"], member.event_row(event))


def votes_of(members: Sequence[QuorumMember]) -> Iterator[ElectionClaim]:
    """Every mention of a vote."""
    for member in members:
        for change, row in member.elections():
            for voter in change.granting:
                yield ElectionClaim(change.epoch, voter, change.leader, row)
        state, own_id = member.replica.state, member.replica.id
        if state is not None and own_id is not None and state.voted != NO_NODE:
            yield ElectionClaim(state.epoch, own_id, state.voted, member.state_row(state))
        for event in member.events_named(*TELL_OF_ELECTIONS):
            if (vote := _vote_of(event)) != NO_NODE:
                yield ElectionClaim(event["epoch"], event["node"], vote, member.event_row(event))


def _vote_of(event: Event) -> int:
    """The candidate that the node had voted for in the epoch of an event; `NO_NODE` if the event does not say."""
    if event["event"] == "quorum_role":
        return int(event["node"]) if event.get("role") in STANDS else NO_NODE
    return int(event["candidate"] if event["event"] == "quorum_vote" else event["voted"])


def _contradictions(claims: Iterable[ElectionClaim]) -> Iterator[tuple[ElectionClaim, ElectionClaim]]:
    """Per epoch and voter the first two claims that name different nodes."""
    first_claims: dict[tuple[int, int], ElectionClaim] = {}
    reported: set[tuple[int, int]] = set()
    for claim in claims:
        key = (claim.epoch, claim.who)
        other = first_claims.setdefault(key, claim)
        if other.chosen != claim.chosen and key not in reported:
            reported.add(key)
            yield other, claim


def _two_leaders(members: Sequence[QuorumMember]) -> Iterator[Anomaly]:
    """E1."""
    for one, other in _contradictions(leaders_of(members)):
        sentence = (
            f"epoch {one.epoch} of the metadata quorum was led by node {one.chosen} ({_source(one)}) and by node "
            f"{other.chosen} ({_source(other)})"
        )
        yield anomaly("two-leaders", sentence, [one.row, other.row])


def _two_votes(members: Sequence[QuorumMember]) -> Iterator[Anomaly]:
    """E2."""
    for one, other in _contradictions(votes_of(members)):
        sentence = (
            f"node {one.who} voted in epoch {one.epoch} for node {one.chosen} ({_source(one)}) and for node "
            f"{other.chosen} ({_source(other)})"
        )
        yield anomaly("two-votes", sentence, [one.row, other.row])


def _source(claim: ElectionClaim) -> str:
    return f"{claim.row['op']} of {claim.row['node']}"


def _elected_by_minority(members: Sequence[QuorumMember]) -> Iterator[Anomaly]:
    """E3."""
    reported: set[int] = set()
    for member in members:
        for change, row in member.elections():
            votes = set(change.granting) & set(change.voters)
            if 2 * len(votes) > len(set(change.voters)) or change.epoch in reported:
                continue
            reported.add(change.epoch)
            sentence = (
                f"node {change.leader} led epoch {change.epoch} by the votes of {len(votes)} of "
                f"{len(set(change.voters))} voters"
            )
            yield anomaly("elected-by-minority", sentence, [row])


def _votes_not_on_disk(member: QuorumMember) -> Iterator[Anomaly]:
    """E4: within a process, which at its start writes again what it found."""
    for process in member.trace.processes:
        on_disk: set[tuple[int, int]] = set()
        written: list[Row] = []
        for event in process:
            if event["event"] == "quorum_persisted":
                on_disk.add((event["epoch"], event["voted"]))
                written = [member.event_row(event)]
            elif event["event"] in ("quorum_vote", "quorum_role"):
                epoch, vote = event["epoch"], _vote_of(event)
                if vote == NO_NODE or (epoch, vote) in on_disk:
                    continue
                sentence = f"{member.node} voted in epoch {epoch} for node {vote}, but its disk did not hold that vote"
                yield anomaly("vote-not-on-disk", sentence, [*written, member.event_row(event)])
                return


class _Known(NamedTuple):
    """The newest epoch that a node has reported, and its vote in it; `NO_NODE` if it has reported none."""

    epoch: int
    vote: int
    row: Row


def _forgotten(member: QuorumMember) -> Iterator[Anomaly]:
    """E5."""
    reported: _Known | None = None
    replaced = member.disks_replaced
    for event in member.events_named(*TELL_OF_ELECTIONS):
        row, vote = member.event_row(event), _vote_of(event)
        if reported is not None and (fall := _fall(member.node, reported, row)) is not None:
            if not replaced or event["event"] != "quorum_restored":
                yield fall
                return
            reported, replaced = None, replaced - 1
        # An event without a vote does not revoke it: reading the disk shows whether the disk forgot the vote.
        if reported is None or event["epoch"] > reported.epoch or vote != NO_NODE:
            reported = _Known(event["epoch"], vote, row)
    state = member.replica.state
    if reported is not None and state is not None and member.at_rest:
        fall = _fall(member.node, reported, member.state_row(state))
        if fall is not None:
            yield fall


def _fall(node: str, reported: _Known, row: Row) -> Anomaly | None:
    """The anomaly of a node that reported, or had on disk, something older than it had reported before."""
    if row["epoch"] < reported.epoch:
        sentence = f"{node} knew epoch {reported.epoch}, but later ({row['op']}) only epoch {row['epoch']}"
    elif row["op"] in READ_FROM_DISK and row["epoch"] == reported.epoch and reported.vote != NO_NODE == row["voted"]:
        if row["leader"] != NO_NODE:
            return None
        sentence = (
            f"{node} had voted in epoch {reported.epoch} for node {reported.vote}, but later its disk ({row['op']}) "
            "held no vote in it"
        )
    else:
        return None
    return anomaly("election-state-regression", sentence, [reported.row, row])


# ---- Committed metadata.

HIGH_WATERMARK = "quorum_high_watermark"
SNAPSHOT = "quorum_snapshot"


def high_watermark_of(member: QuorumMember) -> int:
    """The highest offset below which a node has shown the log to be committed; -1 if it has shown none."""
    return max((event["offset"] for event in member.events_named(HIGH_WATERMARK)), default=member.replica.committed)


def check_logs(members: Sequence[QuorumMember]) -> ReplicaReport:
    """D1 to D4, over the nodes whose log could be read."""
    logs = [
        replace(member.replica.log, high_watermark=high_watermark_of(member))
        for member in members
        if member.replica.log is not None
    ]
    # A log may start later if a snapshot holds what was before; the log's reader reports whether one does.
    circumstances = Circumstances(deleted_to=INF, records="")
    return check_partition(logs, circumstances=circumstances) if logs else ReplicaReport()


def check_committed(members: Sequence[QuorumMember], quiet_from: int | None) -> list[Anomaly]:
    """M1 to M5; one anomaly for each rule, or rule and node. `quiet_from`: the time (ns, as of the events) after which
    nothing was done to the cluster until it was stopped cleanly; None if there was no such time."""
    return [
        *(fall for member in members for fall in _falling(member)),
        *_missing_from_later_leaders(members),
        *_lost(members),
        *_differing(members),
        *(gap for member in members for gap in _not_in_own_log(member)),
        *(_behind(members, quiet_from) if quiet_from is not None else ()),
    ]


def _falling(member: QuorumMember) -> Iterator[Anomaly]:
    """M1."""
    for process in member.trace.processes:
        previous_mark: Event | None = None
        for mark in (event for event in process if event["event"] == HIGH_WATERMARK):
            if previous_mark is not None and mark["offset"] < previous_mark["offset"]:
                sentence = (
                    f"the metadata high watermark of {member.node} fell from {previous_mark['offset']} "
                    f"to {mark['offset']}"
                )
                witness = [member.event_row(previous_mark), member.event_row(mark)]
                yield anomaly("metadata-high-watermark-regression", sentence, witness)
                return
            previous_mark = mark


class _Opening(NamedTuple):
    """An epoch and the offset at which its leader opened it."""

    epoch: int
    offset: int
    leader: int
    row: Row


def _openings(members: Sequence[QuorumMember]) -> Iterator[_Opening]:
    for member in members:
        for change in member.replica.leader_changes:
            yield _Opening(change.epoch, change.offset, change.leader, member.change_row(change))
        for event in member.events_named("quorum_leader_change"):
            yield _Opening(event["epoch"], event["offset"], event["leader"], member.event_row(event))


def _missing_from_later_leaders(members: Sequence[QuorumMember]) -> Iterator[Anomaly]:
    """M2: a leader needs a majority, and a voter of it held the committed records and rejects shorter logs."""
    marks = sorted(
        (
            (event["epoch"], event["offset"], member, event)
            for member in members
            for event in member.events_named(HIGH_WATERMARK)
        ),
        key=lambda mark: mark[:2],
    )
    at = 0
    highest: tuple[int, QuorumMember, Event] | None = None
    for opening in sorted(_openings(members), key=lambda term: term.epoch):
        while at < len(marks) and marks[at][0] < opening.epoch:
            _, offset, member, event = marks[at]
            if highest is None or offset > highest[0]:
                highest = offset, member, event
            at += 1
        if highest is not None and opening.offset < highest[0]:
            offset, member, event = highest
            sentence = (
                f"{member.node} knew in epoch {event['epoch']} that the metadata below offset {offset} was committed, "
                f"but node {opening.leader} opened epoch {opening.epoch} at offset {opening.offset}, without it"
            )
            yield anomaly("lost-committed-metadata", sentence, [member.event_row(event), opening.row])
            return


def _lost(members: Sequence[QuorumMember]) -> Iterator[Anomaly]:
    """M3, for the logs of stopped nodes that could be read up to their end."""
    voters = voters_of(members)
    marks = [(event["offset"], member, event) for member in members for event in member.events_named(HIGH_WATERMARK)]
    if not marks or not voters:
        return
    highest, witness, event = max(marks, key=lambda mark: mark[0])
    short = [
        member for member in members if member.replica.id in voters and member.at_rest and _ends_below(member, highest)
    ]
    if 2 * (len(voters) - len(short)) > len(voters):
        return
    sentence = (
        f"{witness.node} knew that the metadata below offset {highest} was committed, but the logs of "
        f"{', '.join(member.node for member in short)} end before it: no majority of {len(voters)} voters has it"
    )
    yield anomaly("lost-committed-metadata", sentence, [witness.event_row(event), *(m.end_row() for m in short)])


def _ends_below(member: QuorumMember, offset: int) -> bool:
    """Whether a node's log ends before `offset`; a damaged or empty log proves nothing."""
    log = member.replica.log
    return log is not None and log.is_whole and len(log.offset) > 0 and log.end < offset


def _differing(members: Sequence[QuorumMember]) -> Iterator[Anomaly]:
    """M4: against the committed part of each log, and against what others have applied."""
    digests: dict[int, tuple[int, Row]] = {}
    marked = set[int]().union(*map(_digested, members))
    for member in members:
        for offset, digest in _digests_in_log(member, marked).items():
            digests.setdefault(offset, (digest, {**member.end_row(), "offset": offset, "digest": digest}))
    reported: set[str] = set()
    for member in members:
        for mark in member.events_named(HIGH_WATERMARK):
            if mark["digest"] is None:
                continue  # behind a snapshot the node does not know the batches before it (`undigested`)
            digest, row = digests.setdefault(mark["offset"], (mark["digest"], member.event_row(mark)))
            if digest == mark["digest"] or member.node in reported:
                continue
            reported.add(member.node)
            sentence = (
                f"the metadata below offset {mark['offset']} that {member.node} has applied differs from what "
                f"{'the log' if row['op'] == 'log end' else 'a process'} of {row['node']} has there"
            )
            yield anomaly("applied-metadata-mismatch", sentence, [member.event_row(mark), row])


def _digested(member: QuorumMember) -> set[int]:
    """The offsets at which a node has reported a digest of its applied records."""
    return {event["offset"] for event in member.events_named(HIGH_WATERMARK) if event["digest"] is not None}


def _digests_in_log(member: QuorumMember, offsets: Iterable[int]) -> Mapping[int, int]:
    """The digests of the committed part of a node's log at some offsets."""
    limit = high_watermark_of(member)
    return member.replica.digests.at(offset for offset in offsets if offset <= limit)


def digests_compared(members: Sequence[QuorumMember]) -> int:
    """The number of nodes whose digest M4 compared with that of a log or of another node."""
    marks = [_digested(member) for member in members]
    nodes = Counter(offset for offsets in marks for offset in offsets)
    in_logs = {offset for member in members for offset in _digests_in_log(member, nodes)}
    return sum(any(offset in in_logs or nodes[offset] > 1 for offset in offsets) for offsets in marks)


def undigested(member: QuorumMember) -> Iterator[str]:
    """Where M4 cannot be decided: a process reported committed metadata without its digest, though it had not installed
    a snapshot of more than it had applied, from another node or from its disk. A snapshot that the process itself made
    keeps the digest."""
    for process in member.trace.processes:
        applied, knows = -1, True
        for event in process:
            if event["event"] == SNAPSHOT and event["offset"] > applied:
                knows = False
            if event["event"] != HIGH_WATERMARK:
                continue
            applied = event["offset"]
            if event["digest"] is None and knows:
                yield (
                    f"{member.node} reported that the metadata below offset {applied} is committed, without its "
                    f"digest, and no snapshot explains that (line {event['line']} of its trace)"
                )
                return


def _not_in_own_log(member: QuorumMember) -> Iterator[Anomaly]:
    """M4: a leader may have applied what only others had on disk then, but not after it was stopped cleanly."""
    last_process = member.trace.processes[-1] if member.trace.processes and member.at_rest else ()
    marks = [event for event in last_process if event["event"] == HIGH_WATERMARK]
    if not marks or not _ends_below(member, marks[-1]["offset"]):
        return
    row = member.end_row()
    sentence = (
        f"{member.node} has applied the metadata below {marks[-1]['offset']}, but its log ends at {row['offset']}"
    )
    yield anomaly("applied-metadata-mismatch", sentence, [member.event_row(marks[-1]), row])


def _behind(members: Sequence[QuorumMember], quiet_from: int) -> Iterator[Anomaly]:
    """M5."""
    earlier_marks = [
        (event["offset"], member, event)
        for member in members
        for event in member.events_named(HIGH_WATERMARK)
        if moment(event) <= quiet_from
    ]
    if not earlier_marks:
        return
    committed, witness, event = max(earlier_marks, key=lambda mark: mark[0])
    lagging: list[tuple[QuorumMember, int, Row]] = []
    for member in members:
        last_process = member.trace.processes[-1] if member.trace.processes else ()
        marks = [trace_event for trace_event in last_process if trace_event["event"] == HIGH_WATERMARK]
        reached = marks[-1]["offset"] if marks else 0
        if last_process and reached < committed:
            lagging.append((member, reached, member.event_row(marks[-1] if marks else last_process[-1])))
    if lagging:
        laggards = ", ".join(f"{member.node} has applied it up to {reached}" for member, reached, _ in lagging)
        sentence = (
            f"the metadata below offset {committed} was committed on {witness.node} before the cluster was left alone, "
            f"but in the end {laggards}"
        )
        yield anomaly("not-converged", sentence, [witness.event_row(event), *(row for _, _, row in lagging)])

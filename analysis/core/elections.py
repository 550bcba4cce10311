"""Checks the quorum's elections: one leader per epoch, elected by a majority whose votes are single and persistent.

The evidence is everything that names leaders and votes: the control records that open epochs, in the logs and, where
snapshots have replaced them, in the nodes' traces; the quorum-state files; and other trace events. No clock is used.

- E1 an epoch has at most one leader, across all sources;
- E1 an epoch has at most one leader in all sources;
- E2 a voter votes for at most one candidate in an epoch, across restarts (a leader has voted for itself);
- E4 a vote leaves a voter only when its disk holds it;
- E5 what a voter has reported about epochs and votes is never newer than what its disk holds later, and its epoch never
  falls.
  - E5 what a voter has reported of epochs and votes is never newer than what its disk holds later, and its epoch never
    decreases. A voter may forget a vote once it knows the epoch's leader, because it can then vote for no other. A
    fault that replaces the node's disk excuses one start with older state; the node's own statement about its disk
    excuses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from analysis.core.anomaly import Anomaly
from analysis.core.quorum import STATE_FILE, QuorumMember, Row, anomaly
from analysis.evidence.traces import Event
from analysis.replicafiles.kraft import NO_NODE

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

"""The oracles between a leader and its followers: counted ends, requested ISRs, and where followers start."""

from __future__ import annotations

from collections.abc import Iterable

from broker.replica.follower import PartitionFollower
from broker.replica.leader import IsrProposal, PartitionLeader
from simulator.oracles.findings import BAD_MARK, MISCOUNTED, NOT_A_MEMBER, UNMATCHED
from simulator.oracles.log_copy import CopiedBatch, CopiedLog
from simulator.oracles.log_rules import LogRules
from simulator.oracles.replica import ObservedReplica

Counts = tuple[tuple[int, int], ...]


def counts(role: PartitionLeader) -> Counts:
    """The ends of its followers that a leader counts, and the epochs of their processes."""
    followers = (role.follower(replica) for replica in role.replicas if replica != role.node_id)
    return tuple((follower.log_end_offset, follower.broker_epoch) for follower in followers)


def counted(rules: LogRules, leader: ObservedReplica, role: PartitionLeader, others: Iterable[ObservedReplica]) -> None:
    """A counted end came in a fetch of the leader's epoch (H3), from a log that equals the leader's up to there (H6).

    A follower that has moved to a newer epoch, or was replaced by another process, cannot be compared.
    """
    for other in others:
        node_id = other.machine.node_id
        if node_id not in role.replicas:
            continue
        state = role.follower(node_id)
        now = (state.log_end_offset, role.leader_epoch)
        if state.log_end_offset < 0 or leader.counted.get(node_id) == now:
            continue
        leader.counted[node_id] = now
        theirs = None if other.alive is None else other.alive.role
        same_process = other.machine.registered_in == state.broker_epoch
        if not same_process or not isinstance(theirs, PartitionFollower) or theirs.leader_epoch > role.leader_epoch:
            continue
        _not_below_start(rules, other)
        rules.checked(MISCOUNTED)
        how = f"{leader.name} counts {other.name} up to {state.log_end_offset} in epoch {role.leader_epoch}"
        of = {"node": leader.name, "epoch": role.leader_epoch, "counts": state.log_end_offset}
        if theirs.leader_epoch < role.leader_epoch:
            its = {"node": other.name, "epoch": theirs.leader_epoch, "end": other.copy.end}
            rules.report(MISCOUNTED, f"{how}, which is still in epoch {theirs.leader_epoch}", of, its)
            continue
        lacks = _lacks(rules, leader, other, state.log_end_offset)
        if lacks is not None:
            sentence = f"{how}, which lacks offset {lacks.base} of epoch {lacks.epoch}"
            rules.report(MISCOUNTED, sentence, of, {"node": other.name, "end": other.copy.end, **lacks.to_json()})


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
    rules: LogRules, follower: ObservedReplica, role: PartitionFollower, others: Iterable[ObservedReplica]
) -> None:
    """A follower that starts to fetch has no record that its leader lacks (H1, K101-7)."""
    for other in others:
        theirs = None if other.alive is None else other.alive.role
        if other.machine.node_id != role.leader_id or not isinstance(theirs, PartitionLeader) or other.alive is None:
            continue
        if theirs.leader_epoch != role.leader_epoch or not follower.copy.batches:
            continue
        rules.checked(UNMATCHED)
        rules.follow(other.machine, other.copy, other.alive.log)
        last = follower.copy.batches[-1]
        if last.next > other.alive.log.local_start_offset and not other.copy.holds(last):
            sentence = (
                f"{follower.name} follows {other.name} in epoch {role.leader_epoch} behind its offset {last.base} of "
                f"epoch {last.epoch}, which {other.name} has not"
            )
            rules.report(UNMATCHED, sentence, {"node": follower.name, **last.to_json()}, {"node": other.name})


def proposed(
    rules: LogRules,
    leader: ObservedReplica,
    role: PartitionLeader,
    proposal: IsrProposal,
    others: Iterable[ObservedReplica],
) -> None:
    """A broker proposed for an ISR has everything that is or may be committed: the leader's log as it was when its
    epoch started (H5)."""
    others = list(others)
    # A deposed leader's log may lack what a later leader has committed; the controller refuses its proposal.
    deposed = any(other.epoch > role.leader_epoch for other in others)
    for other in others:
        node_id = other.machine.node_id
        if node_id not in proposal.isr or node_id in role.isr:
            continue
        rules.checked(NOT_A_MEMBER)
        state = role.follower(node_id)
        began_at = leader.copy.end_before(role.leader_epoch)
        if state.log_end_offset < began_at:
            sentence = (
                f"{leader.name} asks for {other.name}, which it knows up to {state.log_end_offset}, in an epoch that "
                f"started at {began_at}"
            )
            rules.report(NOT_A_MEMBER, sentence, {"node": leader.name, "epoch": role.leader_epoch})
        if other.alive is None or other.machine.registered_in != state.broker_epoch:
            continue
        lacks = None if deposed else _lacks(rules, leader, other, rules.committed.end)
        if lacks is not None:
            sentence = f"{leader.name} asks for {other.name}, which lacks offset {lacks.base} of epoch {lacks.epoch}"
            rules.report(NOT_A_MEMBER, sentence, {"node": other.name, **lacks.to_json()})


def _lacks(rules: LogRules, leader: ObservedReplica, other: ObservedReplica, end: int) -> CopiedBatch | None:
    """The leader's last batch below `end`, if the other lacks it. Logs with a common batch are equal before it; another
    oracle checks that. Batches below either log's start were deleted, and are not served."""
    if any(it.alive is not None and end <= it.alive.log.local_start_offset for it in (leader, other)):
        return None
    if other.alive is None:
        return None
    rules.follow(other.machine, other.copy, other.alive.log)
    last = _last_below(leader.copy, end)
    return None if last is None or other.copy.holds(last) else last


def _last_below(copy: CopiedLog, end: int) -> CopiedBatch | None:
    batches = copy.between(copy.start, end)
    return batches[-1] if batches and batches[-1].next <= end else None

"""The oracle of supposed starts: where a follower would start whose next offset its leader does not have locally.

Few runs bring a follower behind each border of its leader's log (KIP-405, KIP-1023). Where it starts is a pure decision
of what the leader answers, and the oracle asks it at each of those borders: the log's start, the local start, and the
earliest offset that is not uploaded. A follower is a copy of its leader's log up to some offset. The questions change
nothing.
"""

from dataclasses import replace
from itertools import product
from typing import Final, NamedTuple

from broker.errors import ErrorCode
from broker.replica.follower import AskEpochEnd, PartitionFollower, Phase
from broker.replica.leader import PartitionLeader
from broker.replica.log_view import UNDEFINED
from broker.replica.partition import Partition
from broker.replica.queries import EARLIEST, EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD, epoch_end, list_offset
from broker.replica.tiered_start import (
    AskEarlierEpoch,
    AskOffset,
    Bootstrap,
    KeepFetching,
    LogPlace,
    RetryLater,
    StartAbove,
    StartAt,
    Step,
    next_step,
)
from simulator.oracles.findings import UNMATCHED
from simulator.oracles.hypothetical_requests import SUPPOSED_RECORDS, SupposedLog
from simulator.oracles.log_rules import LogRules
from simulator.oracles.replica import ObservedReplica

REMOTE: Final = "remote.storage.enable"
PATIENCE_MS: Final = 1
"""How long a supposed follower waits for a leader that does not know what is uploaded."""
MOST_QUESTIONS: Final = 6


class SupposedStart(NamedTuple):
    """A follower without the offset `log_end` of its leader. `enabled`: it may skip what is uploaded; `waited_ms`: for
    the leader to know what that is; `knows_start`: the leader's refusal had the start of its log."""

    log_end: int
    enabled: bool
    waited_ms: int
    knows_start: bool


def would_start(rules: LogRules, leader: ObservedReplica) -> None:
    """Ask the followers of a leader once for each state of the borders of its log."""
    partition = leader.alive
    if partition is None or not isinstance(partition.role, PartitionLeader) or partition.role.recovering:
        return
    role, log, pending = partition.role, partition.log, None
    if leader.machine.set_for(partition.topic).get(REMOTE) == "true":
        answer = list_offset(partition, EARLIEST_PENDING_UPLOAD, role.leader_epoch, by_replica=True)
        pending = answer.offset if answer.error is ErrorCode.NONE else None
    borders = (role, log.log_start_offset, log.local_start_offset, pending)
    if leader.borders == borders:
        return
    leader.borders = borders
    _would_restart(rules, leader, partition, role)
    if pending is not None:
        _would_start(rules, leader, partition, role, pending)


def _would_start(
    rules: LogRules, leader: ObservedReplica, partition: Partition, role: PartitionLeader, pending: int
) -> None:
    """A follower that does not lack its offset fetches (K1023-4). One without a record starts behind what is uploaded,
    if it may (K1023-6), and one with records at the leader's local start, or at the log's start if that has passed them
    (K1023-5, K1023-7). While the leader does not know what is uploaded, it waits for a time (K1023-8, K1023-9, H29).
    None starts below the log (K1023-10).

    `pending`: the earliest offset that is not uploaded; -1 if the leader does not know it."""
    log = partition.log
    start, local, end = log.log_start_offset, log.local_start_offset, log.log_end_offset
    ends = sorted({0, start - 1, start, local - 1, local, end} - {-1})
    for case in map(SupposedStart._make, product(ends, (True, False), (0, PATIENCE_MS), (True, False))):
        rules.checked(UNMATCHED)
        expected = _expected(case, partition, pending)
        actual = _started(case, partition, role)
        if actual is not None and actual != expected and not (type(actual) is type(expected) is RetryLater):
            sentence = (
                f"a follower of {leader.name} with a log up to {case.log_end}, which may "
                f"{'' if case.enabled else 'not '}skip what is uploaded, would do {actual}, not {expected}: the log of "
                f"its leader starts at {start}, locally at {local}, and uploads go on at {pending}"
            )
            rules.report(UNMATCHED, sentence, {"node": leader.name, "epoch": role.leader_epoch})
            return


def _expected(case: SupposedStart, partition: Partition, pending: int) -> Step:
    log = partition.log
    start, local = log.log_start_offset, log.local_start_offset
    if case.log_end >= local:
        return KeepFetching()
    place = start if case.log_end < start else local
    if case.enabled and case.log_end == 0:
        is_patient = pending < 0 and case.waited_ms < PATIENCE_MS
        if local > start and (is_patient or 0 <= pending < start):
            return RetryLater("")
        place = local if pending < start else pending
    if place <= start:
        return StartAt(start)
    return StartAbove(place, start, max(entry.epoch for entry in log.epochs.entries if entry.start_offset < place))


def _started(case: SupposedStart, partition: Partition, role: PartitionLeader) -> Step | None:
    """How the dialogue of a follower with its leader ends; None: the leader does not answer, or knows no epoch."""
    log, refusal = partition.log, ErrorCode.NONE
    if case.log_end < log.local_start_offset:
        is_below = case.log_end < log.log_start_offset
        refusal = ErrorCode.OFFSET_OUT_OF_RANGE if is_below else ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
    bootstrap = Bootstrap(
        refusal,
        case.log_end,
        enabled=case.enabled,
        log_start=log.log_start_offset if case.knows_start else UNDEFINED,
        waited_ms=case.waited_ms,
        patience_ms=PATIENCE_MS,
    )
    for _ in range(MOST_QUESTIONS):
        step = next_step(bootstrap)
        if isinstance(step, AskEarlierEpoch):
            answer = epoch_end(partition, role.leader_epoch, step.epoch, by_replica=True)
            if answer.error is not ErrorCode.NONE:
                return None
            bootstrap = replace(bootstrap, earlier=LogPlace(answer.end.end_offset, answer.end.epoch))
        elif isinstance(step, AskOffset):
            listed = list_offset(partition, step.timestamp, role.leader_epoch, by_replica=True)
            if listed.error is not ErrorCode.NONE or (listed.offset >= 0 and listed.leader_epoch < 0):
                return None
            place = LogPlace(listed.offset, listed.leader_epoch)
            if step.timestamp == EARLIEST:
                bootstrap = replace(bootstrap, log_start=place.offset)
            elif step.timestamp == EARLIEST_LOCAL:
                bootstrap = replace(bootstrap, local_start=place)
            else:
                bootstrap = replace(bootstrap, pending=place)
        else:
            return step
    return None


def _would_restart(rules: LogRules, leader: ObservedReplica, partition: Partition, role: PartitionLeader) -> None:
    """A follower drops its log, with its producers, if it may consist of records that the leader never had, and keeps
    it otherwise (H34). The dialogue about epochs compares nothing below the leader's start."""
    start, end = partition.log.log_start_offset, partition.log.log_end_offset
    entries = [entry for entry in partition.log.epochs.entries if entry.start_offset < end]
    if not entries or end - start < SUPPOSED_RECORDS:
        return
    first_epoch, cases = entries[0].epoch, []
    if (entries[1].start_offset if len(entries) > 1 else end) > start + 1:
        first_record = SupposedLog(((first_epoch, start),), start + 1)
        cases.append(("the first record of its leader", first_record, start + 1, False, False))
    if start > SUPPOSED_RECORDS:
        logs = {"no record": SupposedLog(((UNDEFINED, start),), start)}
        if first_epoch > 0:  # with a record of an epoch of its leader's, it has all of them before that
            older = ((first_epoch - 1, start - SUPPOSED_RECORDS),)
            logs["older records up to its leader's start"] = SupposedLog(older, start)
            cases += [
                ("older records", SupposedLog(older, start - 1), start, is_in_sync, True)
                for is_in_sync in (False, True)
            ]
        for text, log in logs.items():
            cases += [(text, log, start, is_in_sync, not is_in_sync) for is_in_sync in (False, True)]
    for text, log, leader_start, is_in_sync, must_restart in cases:
        rules.checked(UNMATCHED)
        restarts = _restarts(partition, role, log, leader_start, is_in_sync)
        if restarts is not None and restarts is not must_restart:
            sentence = (
                f"a follower of {leader.name} {'in' if is_in_sync else 'outside of'} the ISR with {text} would "
                f"{'drop' if restarts else 'keep'} its log: the leader's starts at {leader_start}"
            )
            rules.report(UNMATCHED, sentence, {"node": leader.name, "epoch": role.leader_epoch})
            return


def _restarts(
    partition: Partition, role: PartitionLeader, log: SupposedLog, leader_start: int, in_sync: bool
) -> bool | None:
    """Whether a follower drops its log before it fetches, or by the first answer; None: it is not answered now."""
    follower = PartitionFollower(
        leader_id=role.node_id,
        leader_epoch=role.leader_epoch,
        partition_epoch=role.partition_epoch,
        high_watermark=0,
        in_sync=in_sync,
    )
    step = follower.next_step(log)
    if isinstance(step, AskEpochEnd):
        answer = epoch_end(partition, role.leader_epoch, step.epoch, by_replica=True)
        if answer.error is not ErrorCode.NONE:
            return None
        step = follower.epoch_end_answered(log, *answer.end)
    if step.restart:
        return True
    if step.to_offset < log.log_end_offset:
        return None  # another question is about truncations
    follower.truncated(step, log)
    if follower.phase is not Phase.FETCHING:
        return None
    is_below = log.log_end_offset < leader_start
    last_step = follower.out_of_range(log, leader_start) if is_below else follower.in_range(log, leader_start)
    return last_step is not None and last_step.restart

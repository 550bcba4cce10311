"""Checks that metadata committed by the quorum stays, and that every node applied it and nothing else.

A *mark* is a high watermark that a node reported: everything below it is committed, as of the mark's epoch.

- M1 a process's high watermark does not fall;
- M2 what is committed in an epoch is in the log of each later leader: no later epoch starts below the mark;
- M3 what is committed is on the disks of a majority of the voters from then on;
- M4 what a node has applied, by its digest, is what the logs hold and what all others have applied (a process that
  started from a snapshot knows no digest); the log of a node that was stopped cleanly holds all that its last process
  has applied;
- M5 every node finally has applied what was committed before the cluster was left alone;
- D1 to D4 as for any log (`analysis.core.replicas`), with the highest mark of each node as its high watermark. For
  nodes without trace events, a snapshot's end is equivalent: a snapshot holds only committed records.

M1 to M4 follow from the protocol alone, for any failures and any clock errors. M5 needs the order of events, and is
checked only if no clock was set back meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from analysis.core.anomaly import Anomaly
from analysis.core.quorum import QuorumMember, Row, anomaly, voters_of
from analysis.core.replica_evidence import Circumstances, ReplicaReport
from analysis.core.replicas import check_partition
from analysis.evidence.run_directory import moment
from analysis.evidence.traces import Event
from history.record.schemas import INF

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
    for opening in sorted(_openings(members), key=lambda each: each.epoch):
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

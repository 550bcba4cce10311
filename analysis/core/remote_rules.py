"""Checks remote storage against its metadata and against the replicas' own files.

- R1 the store has every segment that the metadata declare complete: all its offsets, readable to the end;
- R2 a record in a complete segment equals the record with this offset and leader epoch in any replica's own files;
- R3 an object belongs to a segment that the metadata know and that is not deleted. A leader that was replaced may put
  objects of a copy that the next leader has given up, until a leader compares the store with the metadata again;
- R4 what a replica has removed from its own files is in complete segments of its lineage, unless a client asked to
  delete it: a leader deletes these segments at once, and its successor may know a lower start until its own files tell;
- R5 at all times log start <= local start <= high watermark <= log end, and log start - 1 <= last tiered offset < high
  watermark; a local start above the log start is at most last tiered offset + 1 (KIP-405: Lz >= Ly >= Lx and
  Ly >= Ry >= Rx);
- R6 a complete segment has only records of the log: without unclean elections no record in the store is ever truncated;
- R7 a follower starts its log again at or above the start of another replica's log (K1023-9, K1023-10);
- R8 a follower that had records starts its log again at or below the start of another replica's own files (K1023-6);
- R13 the replicas of the metadata topic have the same records, and a segment's states follow each other as KIP-405
  says. An event that comes too late has no effect: a leader that was replaced may finish a copy that the next leader
  has given up.

`remote_object_rules` has R9 to R12, and `remote_trace_rules` R14 and R15.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from analysis.core.anomaly import Anomaly
from analysis.evidence.run_directory import moment
from analysis.replicafiles.log import ReplicaLog
from analysis.replicafiles.remote_metadata import DELETE_FINISHED, TOPIC, DeclaredSegment, DeclaredSegments
from analysis.replicafiles.remote_segments import SegmentContent, StoredLog, lineage

INCOMPLETE = "remote-segment-incomplete"
DIFFERS = "remote-record-differs"
ORPHANED = "orphaned-object"
REMOVED = "removed-before-upload"
BOUNDS = "tiered-bounds-violated"
UNCOMMITTED = "uncommitted-record-in-store"
BELOW_LOG = "follower-starts-below-log"
DROPPED = "local-records-dropped"
METADATA = "remote-metadata-contradicts"

Reports = Sequence[Mapping[str, Any]]


def incomplete(remote: StoredLog) -> Iterator[Anomaly]:
    """R1."""
    for segment in remote.finished:
        content = remote.content(segment)
        reason = _what_lacks(segment, content)
        if reason:
            sentence = f"the metadata declare {segment_name(segment)} complete, but {reason}"
            yield Anomaly(INCOMPLETE, segment.topic, segment.partition, sentence, (segment_row(segment),), 1)


def _what_lacks(segment: DeclaredSegment, content: SegmentContent | None) -> str:
    """Why a store does not have a whole segment; empty if it has it."""
    if content is None:
        return "the store has no such object"
    if content.why:
        return f"its object cannot be read to its end: {content.why}"
    if content.end != segment.end + 1:
        return f"its object ends at {content.end - 1}"
    return ""


def differing(remote: StoredLog, logs: Sequence[ReplicaLog]) -> Iterator[Anomaly]:
    """R2. `logs`: the replicas; only what they have in their own files is compared."""
    for segment in remote.finished:
        content = remote.content(segment)
        for log in logs if content is not None else ():
            assert content is not None
            own_records = slice(int(np.searchsorted(log.offset, max(log.own_start, 0))), None)
            _, mine, theirs = np.intersect1d(
                log.offset[own_records], content.records.offset, assume_unique=True, return_indices=True
            )
            same_epoch = log.epoch[own_records][mine] == content.records.epoch[theirs]
            same = log.digest[own_records][mine] == content.records.digest[theirs]
            differences = np.flatnonzero(same_epoch & ~same)
            if len(differences):
                offset = int(log.offset[own_records][mine][differences[0]])
                sentence = (
                    f"{segment_name(segment)} holds another record at offset {offset} than the files of {log.node}, "
                    "in the same leader epoch"
                )
                witness = tuple(filter(None, (log.at(offset), segment_row(segment))))
                yield Anomaly(DIFFERS, segment.topic, segment.partition, sentence, witness, len(differences))


def orphaned(
    metadata: DeclaredSegments, objects: Mapping[str, Mapping[str, Path]], late: Collection[str] = ()
) -> Iterator[Anomaly]:
    """R3. `objects`: the files of segments' objects in the store, by segment id and suffix. `late`: the segments whose
    objects need not be removed yet."""
    for identity, files in sorted(objects.items()):
        path = next(iter(files.values()))
        segment = metadata.segments.get(identity)
        if segment is not None and (segment.state != DELETE_FINISHED or identity in late):
            continue
        reason = "the metadata have no such segment" if segment is None else "its deletion is finished"
        topic, partition = ("", -1) if segment is None else (segment.topic, segment.partition)
        sentence = f"the store has the object {path.name}, but {reason}"
        yield Anomaly(
            ORPHANED, topic, partition, sentence, ({"op": "object", "node": "store", "source": path.name},), 1
        )


def contradictory(metadata: DeclaredSegments) -> Iterator[Anomaly]:
    """R13."""
    contradictions = [*metadata.differing, *metadata.strange]
    if contradictions:
        row = {"op": "remote metadata", "node": "store", "topic": TOPIC}
        yield Anomaly(METADATA, TOPIC, -1, contradictions[0], (row,), len(contradictions))


def removed(logs: Iterable[ReplicaLog], remote: StoredLog, deleted_to: int = 0) -> Iterator[Anomaly]:
    """R4. Offsets that a complete segment claims are those of R1: here no segment claims them. `deleted_to`: clients
    asked to delete records of lower offsets; INF: the log deletes its oldest records by itself, and its start counts.
    """
    for log in logs:
        below = log.absent_remotely(deleted_to)
        unclaimed = [gap for gap in below if not _is_claimed(remote, *gap)]
        if not unclaimed:
            continue
        first, end = unclaimed[0]
        sentence = (
            f"the files of {log.node} start at {log.own_start}, but no complete remote segment of its lineage has the "
            f"offsets {first} to {end - 1} of {log.topic}-{log.partition}"
        )
        row = {"op": "log start", "node": log.node, "topic": log.topic, "partition": log.partition, "offset": first}
        count = sum(end - first for first, end in unclaimed)
        yield Anomaly(REMOVED, log.topic, log.partition, sentence, (row,), count)


def _is_claimed(remote: StoredLog, first: int, end: int) -> bool:
    return any(segment.start <= first and segment.end >= end - 1 for segment in remote.finished)


def uncommitted(remote: StoredLog, logs: Iterable[ReplicaLog]) -> Iterator[Anomaly]:
    """R6. `logs`: the replicas; the log is that of the last leader epoch. Nothing is decided below its start."""
    whole_logs = [(log.epochs, log) for log in logs if log.is_whole and log.epochs]
    if not whole_logs:
        return
    epochs, log = max(whole_logs, key=lambda candidate: (candidate[0][-1][0], candidate[1].end))
    for segment in remote.finished:
        content = remote.content(segment)
        if content is None:
            continue
        offset, epoch = content.records.offset, content.records.epoch
        is_uncommitted = (offset >= log.end) | (epoch != lineage(epochs, offset))
        indices = np.flatnonzero(is_uncommitted & (offset >= max(log.start, epochs[0][1])))
        if len(indices):
            first = int(indices[0])
            record = f"a record of leader epoch {epoch[first]} at offset {offset[first]}"
            sentence = (
                f"{segment_name(segment)} has {record}, which the log of {log.node} (up to {log.end}) does not have: "
                "the record was uploaded before it was committed"
            )
            yield Anomaly(
                UNCOMMITTED, segment.topic, segment.partition, sentence, (segment_row(segment),), len(indices)
            )


def out_of_bounds(
    node: str, events: Iterable[Mapping[str, Any]], other_reports: Sequence[Reports] = ()
) -> Iterator[Anomaly]:
    """R5, by the trace events `replica_starts` of a node. Earlier versions traced no high watermark and log end.
    `other_reports`: of all other nodes. Once the log of another replica starts above, segments below are removed, which
    a follower can learn before it learns of that start."""
    for event in events:
        if event.get("event") != "replica_starts":
            continue
        start, local, tiered = (event[f"{name}_offset"] for name in ("log_start", "local_start", "last_tiered"))
        mark, end = event.get("high_watermark"), event.get("log_end_offset")
        is_covered = start <= local and (local == start or local <= tiered + 1)
        is_committed = mark is None or end is None or max(local, tiered + 1) <= mark <= end
        if is_committed and (is_covered or (start <= local and _starts_above(event, other_reports))):
            continue
        topic, partition = event["topic"], event["partition"]
        sentence = (
            f"on {node} the log of {topic}-{partition} starts at {start}, its own files at {local}, and remote storage "
            f"has it up to {tiered}" + ("" if mark is None else f"; its high watermark is {mark}, and it ends at {end}")
        )
        row = {"op": "replica_starts", "node": node, "topic": topic, "partition": partition, "offset": local}
        yield Anomaly(BOUNDS, topic, partition, sentence, (row,), 1)


def _starts_above(event: Mapping[str, Any], other_reports: Sequence[Reports]) -> bool:
    """Whether the log of another replica started at this one's own files, or above, before a report of its borders."""
    return any(
        report.get("event") == "log_start_moved"
        and (report["topic"], report["partition"]) == (event["topic"], event["partition"])
        and report["log_start_offset"] >= event["local_start_offset"]
        and moment(report) <= moment(event)
        for reports in other_reports
        for report in reports
    )


def wrong_starts(node: str, events: Reports, other_reports: Sequence[Reports]) -> Iterator[Anomaly]:
    """R7 and R8, by the trace events of a node and of all other nodes, whose clocks must be right.

    A follower starts its log again with `truncated` (rule `leader-start`) at the leader's log start, or with
    `bootstrapped` above it. The leader is one of the other replicas: R7 takes the lowest log start and R8 the highest
    local start of all others at that time, so a rule that is broken is broken for every possible leader. A disk that
    hangs delays the new start: the leader may have stated it at any time since the follower had this leader.
    """
    roles = dict[tuple[str, int], Mapping[str, Any]]()
    for event in events:
        if event.get("event") == "partition_role":
            roles[event["topic"], event["partition"]] = event
        start = _restarted_at(event)
        if start is None:
            continue
        since = roles.get((event["topic"], event["partition"]), event)
        neighbours = [report for reports in other_reports for report in _between(reports, since, event)]
        if not neighbours:
            continue
        lowest = min(report["log_start_offset"] for report in neighbours)
        highest = max(report["local_start_offset"] for report in neighbours)
        if start < lowest:
            reason = f"the log of every other replica starts at {lowest} or above"
            yield _wrong_start(BELOW_LOG, node, event, start, reason)
        elif event["event"] == "bootstrapped" and event["from_offset"] > 0 and start > highest:
            reason = (
                f"it had records up to {event['from_offset']}, and its leader's own files start at {highest} or below"
            )
            yield _wrong_start(DROPPED, node, event, start, reason)


def _restarted_at(event: Mapping[str, Any]) -> int | None:
    """The offset at which a follower starts its log again; None for another event."""
    if event.get("event") == "bootstrapped":
        return int(event["local_start_offset"])
    if event.get("event") == "truncated" and event.get("rule") == "leader-start":
        return int(event["to_offset"])
    return None


def _between(reports: Reports, since: Mapping[str, Any], event: Mapping[str, Any]) -> Reports:
    """A node's reports `replica_starts` of a partition between two events, with the last one before and the first one
    after: the changes in between are not traced."""
    partition = (event["topic"], event["partition"])
    starts = [
        report
        for report in reports
        if report.get("event") == "replica_starts" and (report["topic"], report["partition"]) == partition
    ]
    first, last = (sum(moment(report) <= moment(limit) for report in starts) for limit in (since, event))
    return starts[max(first - 1, 0) : last + 1] if last else ()


def _wrong_start(kind: str, node: str, event: Mapping[str, Any], start: int, reason: str) -> Anomaly:
    topic, partition = event["topic"], event["partition"]
    sentence = f"{node} starts its log of {topic}-{partition} again at {start}, but {reason}"
    row = {"op": event["event"], "node": node, "topic": topic, "partition": partition, "offset": start}
    return Anomaly(kind, topic, partition, sentence, (row,), 1)


def segment_name(segment: DeclaredSegment) -> str:
    """A segment in a sentence."""
    return f"segment {segment.id} of {segment.topic}-{segment.partition} ({segment.start} to {segment.end})"


def segment_row(segment: DeclaredSegment) -> dict[str, Any]:
    """A segment in a witness."""
    place = {"op": "remote segment", "node": "store", "topic": segment.topic, "partition": segment.partition}
    return place | {"offset": segment.start, "source": segment.id}

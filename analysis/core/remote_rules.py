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

The objects of complete remote segments are checked against the metadata, their records, each other and the replicas:

- R9 the store has all objects of a complete segment, and each can be read;
- R10 size and largest timestamp in the metadata are those of the records, and the indexes point to batches of the
  segment;
- R11 the leader epochs in the metadata are those of the segment's records from the start of the log on; the object with
  the leader epochs has them and, below them, those of the log: its entries are in the epoch file of each replica whose
  lineage has the segment, and the reverse (K1023-11);
- R12 the object with the producers has the last batch of each producer in the segment, and otherwise exactly what the
  segment before has (K1023-11).

The traces of brokers are checked against the remote metadata and the rules that need them:

- R14 what a broker reported as committed to the remote metadata is there, with the same borders and size, and a segment
  that is complete was reported by a broker;
- R15 a broker removes an object only if the metadata have the deletion of its segment (K405-1);
- R5, R7 and R8 need a report of the borders of each replica's log. A trace without one proves nothing.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from analysis.core.anomaly import Anomaly
from analysis.evidence.run_directory import moment
from analysis.replicafiles import batches
from analysis.replicafiles.log import ReplicaLog
from analysis.replicafiles.remote_metadata import (
    COPY_FINISHED,
    DELETE_FINISHED,
    DELETE_STARTED,
    STATES,
    TOPIC,
    DeclaredSegment,
    DeclaredSegments,
    hex_id,
)
from analysis.replicafiles.remote_objects import EPOCHS, LOG, SNAPSHOT, ProducerBatch, SegmentObjects
from analysis.replicafiles.remote_segments import SegmentContent, StoredLog, lineage, object_id
from history.record.schemas import INF

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


# ---- Checks the objects of complete remote segments against the metadata, their records, each other and the
# replicas.

OBJECT_DIFFERS = "remote-object-differs"

Entries = Sequence[tuple[int, int]]


def wrong_objects(
    objects: Sequence[SegmentObjects], logs: Sequence[ReplicaLog], *, forgets_producers: bool, deleted_to: int = 0
) -> Iterator[Anomaly]:
    """R9 to R12, for the complete segments of a partition. `logs`: its replicas. `forgets_producers`: the service may
    forget a producer that still has records. `deleted_to`: records of lower offsets may have been deleted, INF without
    a bound."""
    whole_logs = [log for log in logs if log.is_whole and log.epochs]
    for segment_objects in objects:
        lacks = [
            f"the store has no object {suffix}" for suffix in segment_objects.missing if suffix != LOG
        ]  # R1 has the records
        yield from _anomaly(
            INCOMPLETE, segment_objects, "the metadata declare it complete, but ", [*lacks, *segment_objects.damaged]
        )
        latest_start = max([0 if deleted_to == INF else deleted_to, *(log.start for log in logs)])
        contradictions = [*segment_objects.contradicting, *_unlike_records(segment_objects, latest_start)]
        contradictions += _wrong_epochs(segment_objects, whole_logs, deleted_to)
        contradictions += _wrong_producers(segment_objects, objects, forgets_producers)
        yield from _anomaly(OBJECT_DIFFERS, segment_objects, "", contradictions)


def _anomaly(kind: str, objects: SegmentObjects, start: str, differences: Sequence[str]) -> Iterator[Anomaly]:
    if differences:
        segment = objects.segment
        sentence = f"{segment_name(segment)}: {start}{differences[0]}"
        yield Anomaly(kind, segment.topic, segment.partition, sentence, (segment_row(segment),), len(differences))


def _unlike_records(objects: SegmentObjects, latest_start: int) -> Iterator[str]:
    """R11 for the metadata. A log forgets the epochs below its start: if that is in the segment, the metadata begin
    there. `latest_start`: the log may have started at lower offsets."""
    segment, led = objects.segment, objects.led()
    if led and segment.epochs and segment.start < segment.epochs[0][1] <= min(latest_start, segment.end):
        led = entries_from(led, segment.epochs[0][1])
    if led not in ((), segment.epochs):
        yield f"{LOG} has {_told(led)}, the metadata {_told(segment.epochs)}"


def _wrong_epochs(objects: SegmentObjects, logs: Sequence[ReplicaLog], deleted_to: int) -> Iterator[str]:
    """R11. A deletion that was not answered may have moved the start of the leader that uploaded, and not that of its
    successor: the object then starts above the log, below the highest request."""
    segment, entries = objects.segment, objects.epochs
    name = EPOCHS[segment.encoding]
    if entries is None:
        return
    if list(entries) != sorted(set(entries)) or [at for _, at in entries] != sorted(at for _, at in entries):
        yield f"{name} has entries that do not rise: {_told(entries)}"
        return
    own_epochs = entries_from(entries, segment.start)
    if own_epochs != segment.epochs:
        yield f"{name} has {_told(own_epochs)} for its offsets, the metadata {_told(segment.epochs)}"
        return
    # Nodes write the start of the log with a delay: the latest one counts.
    requested_start = 0 if deleted_to == INF else deleted_to
    oldest = max([entries[0][1], requested_start, *(log.start for log in logs)])
    for log in logs:
        epochs = log.epochs or ()
        if segment.start < epochs[0][1] > oldest <= segment.end:
            yield f"{name} has {_told(entries)}, but the epoch file of {log.node} starts at {epochs[0][1]}"
            return
        first = max(entries[0][1], epochs[0][1])  # the oldest epoch moves with the start of the log
        if not _is_of_lineage(segment.epochs, segment.end, epochs):
            continue
        theirs = [entry for entry in epochs if first < entry[1] <= segment.end]
        ours = [entry for entry in entries if entry[1] > first]
        if ours != theirs:
            yield f"{name} has {_told(ours)}, but the epoch file of {log.node} {_told(theirs)}"
            return
        start = max(_first_present(log), requested_start)
        if entries[0][1] > start:
            yield f"{name} starts at {entries[0][1]}, but the log of {log.node} at {start}"
            return


def _first_present(log: ReplicaLog) -> int:
    """The first offset of a log that a file or a remote segment has. A replica that lost its disk may state an older
    start than it knows records of; that is of R4."""
    start = max(log.start, 0)
    for first, end in sorted(log.absent):
        if first <= start < end:
            start = end
    return start


def entries_from(entries: Entries, start: int) -> tuple[tuple[int, int], ...]:
    """The entries for the offsets from `start` on; the first one is moved to it if it is below."""
    preceding = [(epoch, start) for epoch, at in entries if at <= start][-1:]
    return (*preceding, *(entry for entry in entries if entry[1] > start))


def _is_of_lineage(epochs: Entries, end: int, log_epochs: Entries) -> bool:
    """Whether a log with `log_epochs` has the records of a segment with `epochs`, as far as it is known."""
    bounds = [at for _, at in epochs] + [end + 1]
    edges = [(epoch, at) for (epoch, first), stop in zip(epochs, bounds[1:], strict=True) for at in (first, stop - 1)]
    offsets = np.array([at for _, at in edges], np.int64)
    theirs = lineage(log_epochs, offsets)
    is_known = offsets >= log_epochs[0][1]
    return bool(is_known.any() and (theirs == np.array([epoch for epoch, _ in edges]))[is_known].all())


def _wrong_producers(objects: SegmentObjects, other_objects: Iterable[SegmentObjects], forgets: bool) -> Iterator[str]:
    """R12."""
    if objects.producers is None:
        return
    segment, written, latest = objects.segment, objects.written(), objects.producers.latest()
    for producer, batch in sorted(written.items()):
        if latest.get(producer) != batch:
            yield f"{SNAPSHOT} has {_batch(latest.get(producer))} of producer {producer}, the records {_batch(batch)}"
            return
    ends = set((objects.batches[:, batches.NEXT] - 1).tolist())
    for entry in objects.producers.batches:
        if entry.offset > segment.end or (entry.offset >= segment.start and entry.offset not in ends):
            yield f"{SNAPSHOT} has {_batch(entry)} of producer {entry.producer}, which the segment does not have"
            return
    carried = {producer: batch for producer, batch in latest.items() if producer not in written}
    earlier_batches = _before(objects, other_objects)
    if earlier_batches is None:
        return
    for producer in sorted({*carried, *earlier_batches} - written.keys()):
        mine, due = carried.get(producer), earlier_batches.get(producer)
        may_lack = forgets or producer <= objects.producers.forgotten_to
        if mine != due and not (mine is None and may_lack):
            yield f"{SNAPSHOT} has {_batch(mine)} of producer {producer}, the segment before {_batch(due)}"
            return


def _before(objects: SegmentObjects, other_objects: Iterable[SegmentObjects]) -> dict[int, ProducerBatch] | None:
    """The last batch of each producer below a segment, by the segment before; None if it is not known."""
    start = objects.segment.start
    if start == 0:
        return {}
    epoch = int(lineage(objects.epochs or (), np.array([start - 1], np.int64))[0])
    for other in other_objects:
        is_next = other.segment.end + 1 == start and other.segment.epochs[-1][0] == epoch
        if is_next and other.producers is not None:
            # A producer that the segment before may have forgotten may be known where the log was replayed.
            return other.producers.latest() if other.producers.forgotten_to < 0 else None
    return None


def _batch(batch: ProducerBatch | None) -> str:
    if batch is None:
        return "no batch"
    return f"the batch up to offset {batch.offset} (epoch {batch.epoch}, sequence {batch.sequence})"


def _told(entries: Entries) -> str:
    return ", ".join(f"epoch {epoch} from {start}" for epoch, start in entries) or "no epoch"


# ---- Holds the traces of brokers against the remote metadata and the rules that need them.

COMMITTED: Final = "remote_segment"
COMPLETION_UNKNOWN: Final = "remote_completion_unknown"
BORDERS: Final = "replica_starts"
FAILED: Final = "remote_upload_failed"
ORPHAN_REMOVED: Final = "remote_orphan_removed"
COMPARED: Final = "remote_store_compared"
UNASKED: Final = "object-removed-unasked"


def unlike_reported(metadata: DeclaredSegments, events: Mapping[str, Reports]) -> Iterator[str]:
    """R14, the metadata's side: sentences. `events`: those of each node."""
    for node, reports in sorted(events.items()):
        for report in reports:
            if report.get("event") != COMMITTED:
                continue
            segment = metadata.segments.get(hex_id(str(report["id"])))
            claim = f"{node} reported that {report['state']} of segment {report['id']} was committed"
            if segment is None:
                yield f"{claim}, and the remote metadata have no such segment"
                continue
            declared = {"base_offset": segment.start, "end_offset": segment.end, "size": segment.size}
            if unlike := {key for key, value in declared.items() if report[key] != value}:
                yield f"{claim}, and the remote metadata have another {', '.join(sorted(unlike))}"
            elif STATES.index(segment.state) < STATES.index(report["state"]):
                yield f"{claim}, and in the remote metadata it is in the state {segment.state}"


def unreported(
    metadata: DeclaredSegments, events: Mapping[str, Reports], names: Mapping[int, str], ended: Mapping[str, int]
) -> Iterator[str]:
    """R14, the traces' side: sentences. A report that the completion is unknown counts: it may be committed.
    `names`: of nodes, by number. `ended`: how many processes of a node were ended by faults; each of them may have
    committed one event that it could not report any more."""
    missing: dict[str, list[str]] = {}
    for identity, segment in sorted(metadata.segments.items()):
        node = names.get(segment.broker, f"node {segment.broker}")
        reported = {
            hex_id(str(event["id"]))
            for event in events.get(node, ())
            if event.get("event") == COMPLETION_UNKNOWN
            or (event.get("event") == COMMITTED and event["state"] == COPY_FINISHED)
        }
        if segment.state == COPY_FINISHED and identity not in reported:
            missing.setdefault(node, []).append(f"{identity} of {segment.topic}-{segment.partition}")
    for node, segments in sorted(missing.items()):
        if len(segments) > ended.get(node, 0):
            yield f"{node} never reported that it had completed the segment {segments[0]}"


def unasked(metadata: DeclaredSegments, node: str, events: Reports) -> Iterator[Anomaly]:
    """R15, by the objects that the events of a node name."""
    for event in events:
        if event.get("event") != ORPHAN_REMOVED:
            continue
        identity = object_id(event["name"])
        segment = None if identity is None else metadata.segments.get(identity)
        if segment is not None and segment.state in (DELETE_STARTED, DELETE_FINISHED):
            continue
        reason = "do not know its segment" if segment is None else f"have its segment in {segment.state}"
        topic, partition = event["topic"], event["partition"]
        sentence = f"{node} removed the object {event['name']}, but the metadata {reason}"
        row = {"op": event["event"], "node": node, "topic": topic, "partition": partition, "source": event["name"]}
        yield Anomaly(UNASKED, topic, partition, sentence, (row,), 1)


def late_objects(metadata: DeclaredSegments, events: Mapping[str, Reports], names: Mapping[int, str]) -> Iterator[str]:
    """R3: the deleted segments whose objects may have come after the last comparison of the store with the metadata.
    Another leader has given the copy up, and the uploader's copy ended, if ever, after that comparison had started.
    `names`: of nodes, by number."""
    for identity, segment in metadata.segments.items():
        uploader = names.get(segment.broker)
        if segment.state != DELETE_FINISHED or uploader is None:
            continue
        own_events = [
            event for event in events.get(uploader, ()) if "id" in event and hex_id(str(event["id"])) == identity
        ]
        if any(event.get("state") == DELETE_STARTED for event in own_events):
            continue  # the uploader itself has given it up, after its last object
        compared = (
            event["wall"] - event["seconds"] * 1e9
            for reports in events.values()
            for event in reports
            if event.get("event") == COMPARED
            and (event["topic"], event["partition"]) == (segment.topic, segment.partition)
        )
        ends = [event["wall"] for event in own_events if event["event"] in (COMPLETION_UNKNOWN, FAILED)]
        if not ends or max(compared, default=0.0) < max(ends):
            yield identity


def without_borders(replicas: Mapping[tuple[str, int], Iterable[str]], events: Mapping[str, Reports]) -> Iterator[str]:
    """Replicas whose nodes never reported the borders of their logs: sentences. `replicas`: the nodes of each
    partition."""
    for (topic, partition), nodes in sorted(replicas.items()):
        for node in nodes:
            if not any(
                (event.get("event"), event.get("topic"), event.get("partition")) == (BORDERS, topic, partition)
                for event in events.get(node, ())
            ):
                yield f"{node} never reported where its log of {topic}-{partition} starts: R5 and R7 cannot be decided"

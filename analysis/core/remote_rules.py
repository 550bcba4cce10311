"""Checks remote storage against its metadata and against the replicas' own files.

- R1 the store has every segment that the metadata declare complete: all its offsets, readable to the end;
- R2 a record in a complete segment equals the record with this offset and leader epoch in any replica's own files;
- R3 an object belongs to a segment that the metadata know and that is not deleted;
- R4 what a replica has removed from its own files is in complete segments of its lineage;
- R5 at all times log start <= local start <= last tiered offset + 1, as far as the local start is above the log start
  (KIP-405 calls this Lz >= Ly >= Lx and Ly >= Ry >= Rx).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from analysis.core.anomaly import Anomaly
from analysis.replicafiles.log import ReplicaLog
from analysis.replicafiles.remote_metadata import DELETE_FINISHED, DeclaredSegment, DeclaredSegments
from analysis.replicafiles.remote_segments import SegmentContent, StoredLog

INCOMPLETE = "remote-segment-incomplete"
DIFFERS = "remote-record-differs"
ORPHANED = "orphaned-object"
REMOVED = "removed-before-upload"
BOUNDS = "tiered-bounds-violated"


def incomplete(remote: StoredLog) -> Iterator[Anomaly]:
    """R1."""
    for segment in remote.finished:
        content = remote.content(segment)
        why = _what_lacks(segment, content)
        if why:
            sentence = f"the metadata declare {_name(segment)} complete, but {why}"
            yield Anomaly(INCOMPLETE, segment.topic, segment.partition, sentence, (_row(segment),), 1)


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
            own = slice(int(np.searchsorted(log.offset, max(log.own_start, 0))), None)
            _, mine, theirs = np.intersect1d(
                log.offset[own], content.records.offset, assume_unique=True, return_indices=True
            )
            same_epoch = log.epoch[own][mine] == content.records.epoch[theirs]
            same = log.digest[own][mine] == content.records.digest[theirs]
            wrong = np.flatnonzero(same_epoch & ~same)
            if len(wrong):
                offset = int(log.offset[own][mine][wrong[0]])
                sentence = (
                    f"{_name(segment)} holds another record at offset {offset} than the files of {log.node}, in the "
                    "same leader epoch"
                )
                witness = tuple(filter(None, (log.at(offset), _row(segment))))
                yield Anomaly(DIFFERS, segment.topic, segment.partition, sentence, witness, len(wrong))


def orphaned(metadata: DeclaredSegments, objects: Mapping[str, Path]) -> Iterator[Anomaly]:
    """R3. `objects`: the files of segments' records in the store, by segment id."""
    for identity, path in sorted(objects.items()):
        segment = metadata.segments.get(identity)
        if segment is not None and segment.state != DELETE_FINISHED:
            continue
        why = "the metadata have no such segment" if segment is None else "its deletion is finished"
        topic, partition = ("", -1) if segment is None else (segment.topic, segment.partition)
        sentence = f"the store has the object {path.name}, but {why}"
        yield Anomaly(
            ORPHANED, topic, partition, sentence, ({"op": "object", "node": "store", "source": path.name},), 1
        )


def removed(logs: Iterable[ReplicaLog], remote: StoredLog) -> Iterator[Anomaly]:
    """R4. Offsets that a complete segment claims are those of R1: here no segment claims them."""
    for log in logs:
        below = [(first, min(behind, log.own_start)) for first, behind in log.absent if first < log.own_start]
        gone = [each for each in below if not _is_claimed(remote, *each)]
        if not gone:
            continue
        first, behind = gone[0]
        sentence = (
            f"the files of {log.node} start at {log.own_start}, but no complete remote segment of its lineage has the "
            f"offsets {first} to {behind - 1} of {log.topic}-{log.partition}"
        )
        row = {"op": "log start", "node": log.node, "topic": log.topic, "partition": log.partition, "offset": first}
        count = sum(behind - first for first, behind in gone)
        yield Anomaly(REMOVED, log.topic, log.partition, sentence, (row,), count)


def _is_claimed(remote: StoredLog, first: int, behind: int) -> bool:
    return any(each.start <= first and each.end >= behind - 1 for each in remote.finished)


def out_of_bounds(node: str, events: Iterable[Mapping[str, Any]]) -> Iterator[Anomaly]:
    """R5, by the trace events `replica_starts` of a node."""
    for event in events:
        if event.get("event") != "replica_starts":
            continue
        start, local, tiered = (event[f"{name}_offset"] for name in ("log_start", "local_start", "last_tiered"))
        if start <= local and (local == start or local <= tiered + 1):
            continue
        topic, partition = event["topic"], event["partition"]
        sentence = (
            f"on {node} the log of {topic}-{partition} starts at {start}, its own files at {local}, and remote storage "
            f"has it up to {tiered}"
        )
        row = {"op": "replica_starts", "node": node, "topic": topic, "partition": partition, "offset": local}
        yield Anomaly(BOUNDS, topic, partition, sentence, (row,), 1)


def _name(segment: DeclaredSegment) -> str:
    return f"segment {segment.id} of {segment.topic}-{segment.partition} ({segment.start} to {segment.end})"


def _row(segment: DeclaredSegment) -> dict[str, Any]:
    where = {"op": "remote segment", "node": "store", "topic": segment.topic, "partition": segment.partition}
    return where | {"offset": segment.start, "source": segment.id}

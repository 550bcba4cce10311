"""Holds the traces of brokers against the remote metadata and the rules that need them.

- R14 what a broker reported as committed to the remote metadata is there, with the same borders and size, and a segment
  that is complete was reported by a broker;
- R15 a broker removes an object only if the metadata have the deletion of its segment (K405-1);
- R5, R7 and R8 need a report of the borders of each replica's log. A trace without one proves nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from analysis.core.anomaly import Anomaly
from analysis.replicafiles.remote_metadata import (
    COPY_FINISHED,
    DELETE_FINISHED,
    DELETE_STARTED,
    STATES,
    DeclaredSegments,
    hex_id,
)
from analysis.replicafiles.remote_segments import object_id

Reports = Sequence[Mapping[str, Any]]
COMMITTED: Final = "remote_segment"
COMPLETION_UNKNOWN: Final = "remote_completion_unknown"
BORDERS: Final = "replica_starts"
FAILED: Final = "remote_upload_failed"
REMOVED: Final = "remote_orphan_removed"
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
        if event.get("event") != REMOVED:
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

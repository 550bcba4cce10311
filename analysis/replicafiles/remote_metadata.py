"""Reads the metadata of remote segments (KIP-405) from the replicas of `__remote_log_metadata`.

Written from the formats' specification and independent of the broker under test. Each record is one event of a remote
segment: its start with all metadata, or a later state. Two encodings are known: Apache Kafka's binary messages, and the
JSON objects of Brownout's own broker. A record that is neither is a doubt, and so is a log that ends in damage.

The topic is a replicated log that keeps all records. The events of a partition of the topic are those of its replica
with the highest end among the nodes; replicas that differ from it are reported. So are committed records of earlier
dumps: a record below a high watermark does not change.
"""

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from analysis.replicafiles import batches
from analysis.replicafiles.checkpoints import HIGH_WATERMARKS, read_high_watermarks
from analysis.replicafiles.keyed_records import keyed_records
from analysis.replicafiles.log import ReplicaFileError
from history import strict_json
from history.kafka.flexible_messages import UUID_BYTES, FlexibleReader, text_id
from history.regular_files import read_bytes

TOPIC: Final = "__remote_log_metadata"
COPY_STARTED: Final = "COPY_STARTED"
COPY_FINISHED: Final = "COPY_FINISHED"
DELETE_STARTED: Final = "DELETE_STARTED"
DELETE_FINISHED: Final = "DELETE_FINISHED"
STATES: Final = (COPY_STARTED, COPY_FINISHED, DELETE_STARTED, DELETE_FINISHED)
"""By their number in Apache Kafka's messages."""
EDGES: Final[Mapping[str, frozenset[str]]] = {
    "": frozenset({COPY_STARTED}),
    COPY_STARTED: frozenset({COPY_FINISHED, DELETE_STARTED}),
    COPY_FINISHED: frozenset({DELETE_STARTED}),
    DELETE_STARTED: frozenset({DELETE_FINISHED}),
    DELETE_FINISHED: frozenset(),
}
"""The possible next states of a segment; empty: it is unknown."""

_SEGMENT, _UPDATE, _PARTITION_DELETE = 0, 1, 2  # the API keys of Apache Kafka's messages
_FRAME: Final = 1  # the version of the frame around each message
_BROWNOUT_FORMAT: Final = 2
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
# The encodings of events: JSON objects (docs/tiered.md), and Apache Kafka's messages.
BROWNOUT: Final = "brownout"
KAFKA: Final = "kafka"
BROWNOUT_OBJECTS: Final = (".log", ".index", ".epochs", ".snapshot")


@dataclass(frozen=True)
class DeclaredSegment:
    """A remote segment. `id`, `topic_id`: as text, 22 characters (base64 for URLs). `end`: the last offset. `epochs`:
    (epoch, first offset) of its records. `size`: bytes of its records in the store. `latest`: their largest timestamp,
    ms. `broker`: the node that copies it. `state`: one of `STATES`. `encoding`: of its metadata, `BROWNOUT` or
    `KAFKA`. `digests`: the size and the SHA-256 of each object, by suffix; None if the metadata have none."""

    id: str
    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    epochs: tuple[tuple[int, int], ...]
    size: int
    latest: int
    broker: int
    state: str
    encoding: str
    digests: Mapping[str, tuple[int, str]] | None = None


@dataclass(frozen=True)
class StateChange:
    """One event: a segment enters a state. `segment`: its metadata, in COPY_STARTED. `expected`: the event counts only
    in this state; empty: in every state with an edge to the new one. `digests`: those of its objects, in
    COPY_FINISHED."""

    id: str
    topic: str
    topic_id: str
    partition: int
    state: str
    segment: DeclaredSegment | None = None
    expected: str = ""
    digests: Mapping[str, tuple[int, str]] | None = None


@dataclass(frozen=True)
class DeclaredSegments:
    """The segments by id, in the state of their last valid event. `strange`: events for which a segment has no edge, as
    sentences; `differing`: replicas of the topic, also of earlier dumps, that have different records. `ends`: the end
    of each node's replica by partition of the topic. `doubts`: what could not be read."""

    segments: Mapping[str, DeclaredSegment]
    strange: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()
    ends: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()

    def of(self, topic: str, partition: int, topic_id: str = "") -> list[DeclaredSegment]:
        """The segments of a partition, by their first offset; with an id only those of this topic."""
        segments = [
            segment
            for segment in self.segments.values()
            if (segment.topic, segment.partition) == (topic, partition) and topic_id in ("", segment.topic_id)
        ]
        return sorted(segments, key=lambda segment: (segment.start, segment.id))


@dataclass(frozen=True)
class _Replica:
    """A node's replica of a partition of the topic: the partition's number, the replica's end, and its records by
    offset, each with its leader epoch."""

    node: str
    number: int
    end: int
    records: Mapping[int, tuple[int, bytes | None]]
    events: tuple[StateChange, ...]


def read_metadata(places: Mapping[str, Path], earlier: Mapping[str, Path] = MappingProxyType({})) -> DeclaredSegments:
    """The metadata from the nodes' collected data directories, by node. `earlier`: directories that were copied while
    the services ran, and whose committed records cannot have been lost since."""
    doubts: list[str] = []
    replicas: dict[int, list[_Replica]] = {}
    for node, data in places.items():
        for directory in sorted(data.glob(f"{TOPIC}-[0-9]*")):
            number = directory.name.removeprefix(f"{TOPIC}-")
            if not number.isdecimal():
                continue  # a replica that was set aside or is being deleted
            try:
                replica = _read_log(node, directory)
            except (ReplicaFileError, OSError) as error:
                doubts.append(f"the remote metadata on {node} cannot be read: {directory.name}: {error}")
            else:
                replicas.setdefault(int(number), []).append(replica)
    longest = [max(copies, key=lambda replica: replica.end) for _, copies in sorted(replicas.items())]
    segments, strange = _apply(event for replica in longest for event in replica.events)
    differing = [difference for number, copies in sorted(replicas.items()) for difference in _differing(number, copies)]
    for node, data in earlier.items():
        try:
            differing += _changed(node, data, {replica.number: replica for replica in longest})
        except (ReplicaFileError, OSError) as error:
            doubts.append(f"the earlier dump of the remote metadata on {node} cannot be read: {error}")
    ends = {number: {replica.node: replica.end for replica in copies} for number, copies in replicas.items()}
    return DeclaredSegments(segments, tuple(strange), tuple(differing), ends, tuple(doubts))


def _changed(node: str, data: Path, latest: Mapping[int, _Replica]) -> Iterator[str]:
    """The first committed record of each replica in an earlier dump that the longest replica of the end does not have.
    Raises ReplicaFileError and OSError for a replica that cannot be read up to its high watermark."""
    marks = read_high_watermarks(data / HIGH_WATERMARKS) or {}
    for (topic, number), mark in sorted(marks.items()):
        if topic != TOPIC or not mark:
            continue
        replica = _read_log(node, data / f"{TOPIC}-{number}", is_running=True)
        if replica.end < mark:
            raise ReplicaFileError(f"{TOPIC}-{number}: it ends at {replica.end}, and its high watermark is {mark}")
        end, records = (0, {}) if number not in latest else (latest[number].end, latest[number].records)
        offsets = sorted(at for at in {*records, *replica.records} if at < mark)
        unlike = [at for at in offsets if at >= end or replica.records.get(at) != records.get(at)]
        if unlike:
            yield (
                f"{TOPIC}-{number} had a committed record at offset {unlike[0]} on {node} in its earlier dump, and in "
                "the end another one or none"
            )


def _differing(number: int, replicas: Sequence[_Replica]) -> Iterator[str]:
    """The first offset at which a replica has another record than the longest one, for each replica."""
    longest = max(replicas, key=lambda replica: replica.end)
    for replica in replicas:
        offsets = sorted(at for at in {*longest.records, *replica.records} if at < min(longest.end, replica.end))
        unlike = [at for at in offsets if replica.records.get(at) != longest.records.get(at)]
        if unlike:
            yield f"{TOPIC}-{number} has another record at offset {unlike[0]} on {replica.node} than on {longest.node}"


def _apply(events: Iterator[StateChange]) -> tuple[dict[str, DeclaredSegment], list[str]]:
    """The segments after all events. A repeated event, and one without an edge, has no effect; the latter is reported,
    unless it may be the late end of a copy that another leader has given up."""
    segments: dict[str, DeclaredSegment] = {}
    strange: list[str] = []
    for event in events:
        segment = segments.get(event.id)
        state = "" if segment is None else segment.state
        if event.state == state or event.expected not in ("", state):
            continue
        if event.state == COPY_FINISHED and state in (DELETE_STARTED, DELETE_FINISHED):
            continue
        if event.state not in EDGES[state]:
            strange.append(
                f"segment {event.id} of {event.topic}-{event.partition}: {state or 'unknown'} to {event.state}"
            )
        elif event.segment is not None:
            segments[event.id] = event.segment
        elif segment is not None:
            segments[event.id] = replace(segment, state=event.state, digests=event.digests or segment.digests)
    return segments, strange


def _read_log(node: str, directory: Path, *, is_running: bool = False) -> _Replica:
    """A replica of the topic. Raises ReplicaFileError for a record that is not an event, and for a log that does not
    start at 0 or is damaged: its records are kept for ever. `is_running`: the service wrote to the last segment while
    it was copied, so the copy may end in a torn batch."""
    records: dict[int, tuple[int, bytes | None]] = {}
    events: list[StateChange] = []
    end = 0
    segments = sorted(directory.glob("[0-9]*.log"))
    if not segments or int(segments[0].stem):
        raise ReplicaFileError(f"it starts with {segments[0].name}" if segments else "it has no segment")
    for path in segments:
        data = read_bytes(path)
        scan = batches.scan(data, 0, end)
        gaps = batches.skipped(scan.table, end)
        is_read = scan.stop is None and scan.position == len(data)
        if not (is_read or (is_running and path == segments[-1])) or int(path.stem) != end or gaps:
            raise ReplicaFileError(f"{path.name}: {scan.stop.why if scan.stop else 'it does not continue the log'}")
        epochs = dict(zip(scan.table[:, batches.BASE].tolist(), scan.table[:, batches.EPOCH].tolist(), strict=True))
        epoch = -1
        for record in keyed_records(data, scan.table):
            epoch = epochs.get(record.offset, epoch)
            records[record.offset] = epoch, record.value
            events += [] if record.value is None else _events_of(record.value)
        end = scan.expected
    return _Replica(node, int(directory.name.removeprefix(f"{TOPIC}-")), end, records, tuple(events))


def _events_of(value: bytes) -> list[StateChange]:
    """The event of a record; none for the deletion of a partition, which its segments' events repeat. Raises
    ReplicaFileError."""
    try:
        if value.startswith(b"{"):
            return [_json_event(strict_json.decode(value))]
        return _kafka_event(value)
    except (ValueError, KeyError, TypeError, IndexError, struct.error) as error:
        raise ReplicaFileError(f"a record is not an event: {type(error).__name__}: {error}") from error


def _json_event(fields: Mapping[str, Any]) -> StateChange:
    if fields["format"] != _BROWNOUT_FORMAT or fields["state"] not in STATES:
        raise ValueError(f"format {fields['format']}, state {fields['state']}")
    partition = (str(fields["topic"]), str(fields["topic_id"]), int(fields["partition"]))
    identity = hex_id(str(fields["id"]))
    segment = None
    if fields["state"] == COPY_STARTED:
        epochs = tuple((int(epoch), int(start)) for epoch, start in fields["epochs"])
        start, end = int(fields["base_offset"]), int(fields["end_offset"])
        numbers = int(fields["size"]), int(fields["max_timestamp"]), int(fields["broker"])
        segment = DeclaredSegment(identity, *partition, start, end, epochs, *numbers, COPY_STARTED, BROWNOUT)
    digests = None
    if fields["state"] == COPY_FINISHED:
        digests = {suffix: _digest(fields["objects"][suffix]) for suffix in BROWNOUT_OBJECTS}
    return StateChange(identity, *partition, fields["state"], segment, str(fields.get("expected", "")), digests)


def _digest(fields: Mapping[str, Any]) -> tuple[int, str]:
    """The size and the SHA-256 of an object. Raises ValueError, KeyError or TypeError."""
    if _SHA256.fullmatch(fields["sha256"]) is None:
        raise ValueError(f"{fields['sha256']!r} is not a SHA-256")
    return int(fields["size"]), str(fields["sha256"])


def _kafka_event(value: bytes) -> list[StateChange]:
    reader = FlexibleReader(value)
    if (frame := reader.varint()) != _FRAME:
        raise ValueError(f"frame version {frame}")
    key, version = reader.varint(), reader.varint()
    if key == _PARTITION_DELETE:
        return []
    if key not in (_SEGMENT, _UPDATE) or version != 0:
        raise ValueError(f"message {key} of version {version}")
    identity, partition = _segment_id(reader)
    if key == _UPDATE:
        reader.number(">i")  # broker
        reader.number(">q")  # time of the event
        reader.compact_bytes()  # what a store's plugin adds
        return [StateChange(identity, *partition, STATES[reader.number(">b")])]
    start, end = reader.number(">q"), reader.number(">q")
    broker, latest, _ = (reader.number(form) for form in (">i", ">q", ">q"))  # the third: time of the event
    epochs = reader.array(lambda: reader.tagged(lambda: (reader.number(">i"), reader.number(">q"))))
    size = reader.number(">i")
    reader.compact_bytes()  # what a store's plugin adds
    state = STATES[reader.number(">b")]
    segment = DeclaredSegment(identity, *partition, start, end, tuple(epochs), size, latest, broker, state, KAFKA)
    return [StateChange(identity, *partition, state, segment)]


def _segment_id(reader: FlexibleReader) -> tuple[str, tuple[str, str, int]]:
    """The id of a segment, and its topic's name and id and partition."""

    def topic_id_partition() -> tuple[str, str, int]:
        return reader.text(), reader.uuid(), reader.number(">i")

    def entry() -> tuple[str, tuple[str, str, int]]:
        partition = reader.tagged(topic_id_partition)
        return reader.uuid(), partition

    return reader.tagged(entry)


def hex_id(text: str) -> str:
    """An id of 32 hexadecimal digits in the form of all ids here. Raises ValueError."""
    identity = bytes.fromhex(text)
    if len(identity) != UUID_BYTES:
        raise ValueError(f"{text!r} is not an id")
    return text_id(identity)

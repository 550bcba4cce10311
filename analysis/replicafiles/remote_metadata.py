"""Reads the metadata of remote segments (KIP-405) from the replicas of `__remote_log_metadata`.

Written from the formats' specification and independent of the broker under test. Each record is one event of a remote
segment: its start with all metadata, or a later state. Two encodings are known: Apache Kafka's binary messages, and the
JSON objects of Brownout's own broker. A record that is neither is a doubt, and so is a log that ends in damage.

The topic is a replicated log. The events of a partition of the topic are those of its replica with the highest end
among the nodes: the run has ended, and its replicas were equal or the shorter ones are prefixes.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from analysis.replicafiles import batches
from analysis.replicafiles.keyed_records import keyed_records
from analysis.replicafiles.log import ReplicaFileError
from history import strict_json
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
_UUID_BYTES: Final = 16
_BROWNOUT_FORMAT: Final = 2


@dataclass(frozen=True)
class DeclaredSegment:
    """A remote segment. `id`, `topic_id`: as text, 22 characters (base64 for URLs). `end`: the last offset. `epochs`:
    (epoch, first offset) of its records. `size`: bytes of its records in the store. `state`: one of `STATES`."""

    id: str
    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    epochs: tuple[tuple[int, int], ...]
    size: int
    state: str


@dataclass(frozen=True)
class StateChange:
    """One event: a segment enters a state. `segment`: its metadata, in COPY_STARTED. `expected`: the event counts only
    in this state; empty: in every state with an edge to the new one."""

    id: str
    topic: str
    topic_id: str
    partition: int
    state: str
    segment: DeclaredSegment | None = None
    expected: str = ""


@dataclass(frozen=True)
class DeclaredSegments:
    """The segments by id, in the state of their last valid event. `strange`: events for which a segment has no edge, as
    sentences. `doubts`: what could not be read."""

    segments: Mapping[str, DeclaredSegment]
    strange: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    def of(self, topic: str, partition: int, topic_id: str = "") -> list[DeclaredSegment]:
        """The segments of a partition, by their first offset; with an id only those of this topic."""
        found = [
            each
            for each in self.segments.values()
            if (each.topic, each.partition) == (topic, partition) and topic_id in ("", each.topic_id)
        ]
        return sorted(found, key=lambda each: (each.start, each.id))


def read_metadata(places: Mapping[str, Path]) -> DeclaredSegments:
    """The metadata from the nodes' collected data directories, by node."""
    doubts: list[str] = []
    logs: dict[int, tuple[int, list[StateChange]]] = {}
    for node, data in places.items():
        for directory in sorted(data.glob(f"{TOPIC}-[0-9]*")):
            number = directory.name.removeprefix(f"{TOPIC}-")
            if not number.isdecimal():
                continue  # a replica that was set aside or is being deleted
            try:
                end, events = _read_log(directory)
            except (ReplicaFileError, OSError) as error:
                doubts.append(f"the remote metadata on {node} cannot be read: {directory.name}: {error}")
                continue
            if end > logs.get(int(number), (-1, []))[0]:
                logs[int(number)] = end, events
    segments, strange = _apply(event for _, events in logs.values() for event in events)
    return DeclaredSegments(segments, tuple(strange), tuple(doubts))


def _apply(events: Iterator[StateChange]) -> tuple[dict[str, DeclaredSegment], list[str]]:
    """The segments after all events. A repeated event, and one without an edge, has no effect; the latter is
    reported."""
    segments: dict[str, DeclaredSegment] = {}
    strange: list[str] = []
    for event in events:
        known = segments.get(event.id)
        before = "" if known is None else known.state
        if event.state == before or event.expected not in ("", before):
            continue
        if event.state not in EDGES[before]:
            strange.append(
                f"segment {event.id} of {event.topic}-{event.partition}: {before or 'unknown'} to {event.state}"
            )
        elif event.segment is not None:
            segments[event.id] = event.segment
        elif known is not None:
            segments[event.id] = replace(known, state=event.state)
    return segments, strange


def _read_log(directory: Path) -> tuple[int, list[StateChange]]:
    """The end of a replica of the topic and its events. Raises ReplicaFileError for a record that is not an event."""
    events: list[StateChange] = []
    end = 0
    for path in sorted(directory.glob("[0-9]*.log")):
        data = read_bytes(path)
        found = batches.scan(data, 0, int(path.stem), compacted=True)
        for record in keyed_records(data, found.table):
            events += [] if record.value is None else _events_of(record.value)
        end = found.expected
        if found.stop is not None or found.position < len(data):
            break
    return end, events


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
    where = (str(fields["topic"]), str(fields["topic_id"]), int(fields["partition"]))
    identity = _hex_id(str(fields["id"]))
    segment = None
    if fields["state"] == COPY_STARTED:
        epochs = tuple((int(epoch), int(start)) for epoch, start in fields["epochs"])
        start, end = int(fields["base_offset"]), int(fields["end_offset"])
        segment = DeclaredSegment(identity, *where, start, end, epochs, int(fields["size"]), COPY_STARTED)
    return StateChange(identity, *where, fields["state"], segment, str(fields.get("expected", "")))


def _kafka_event(value: bytes) -> list[StateChange]:
    reader = _Reader(value)
    if (frame := reader.varint()) != _FRAME:
        raise ValueError(f"frame version {frame}")
    key, version = reader.varint(), reader.varint()
    if key == _PARTITION_DELETE:
        return []
    if key not in (_SEGMENT, _UPDATE) or version != 0:
        raise ValueError(f"message {key} of version {version}")
    identity, where = reader.segment_id()
    if key == _UPDATE:
        reader.number(">i")  # broker
        reader.number(">q")  # time of the event
        reader.custom_metadata()
        return [StateChange(identity, *where, STATES[reader.number(">b")])]
    start, end = reader.number(">q"), reader.number(">q")
    for form in (">i", ">q", ">q"):  # broker, largest timestamp, time of the event
        reader.number(form)
    epochs = reader.array(lambda: reader.tagged(lambda: (reader.number(">i"), reader.number(">q"))))
    size = reader.number(">i")
    reader.custom_metadata()
    state = STATES[reader.number(">b")]
    segment = DeclaredSegment(identity, *where, start, end, tuple(epochs), size, state)
    return [StateChange(identity, *where, state, segment)]


class _Reader:
    """Reads the fields of a flexible message in sequence."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def take(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._data):
            raise ValueError(f"{size} bytes at {self._at} are not there")
        self._at += size
        return self._data[self._at - size : self._at]

    def custom_metadata(self) -> None:
        """What a store's plugin adds; not used."""
        self.take(max(self.varint() - 1, 0))

    def uuid(self) -> str:
        return _text_id(self.take(_UUID_BYTES))

    def tagged(self, read: Callable[[], Any]) -> Any:
        """A structure, with its tagged fields, which are skipped."""
        value = read()
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())
        return value

    def array(self, read: Callable[[], Any]) -> list[Any]:
        return [read() for _ in range(self.varint() - 1)]

    def segment_id(self) -> tuple[str, tuple[str, str, int]]:
        """The id of a segment, and its topic's name and id and partition."""

        def topic_id_partition() -> tuple[str, str, int]:
            name = self.take(self.varint() - 1).decode()
            return name, self.uuid(), self.number(">i")

        def entry() -> tuple[str, tuple[str, str, int]]:
            where = self.tagged(topic_id_partition)
            return self.uuid(), where

        found: tuple[str, tuple[str, str, int]] = self.tagged(entry)
        return found


def _text_id(identity: bytes) -> str:
    return base64.urlsafe_b64encode(identity).decode().rstrip("=")


def _hex_id(text: str) -> str:
    """An id of 32 hexadecimal digits in the form of all ids here. Raises ValueError."""
    identity = bytes.fromhex(text)
    if len(identity) != _UUID_BYTES:
        raise ValueError(f"{text!r} is not an id")
    return _text_id(identity)

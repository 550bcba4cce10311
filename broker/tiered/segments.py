"""A remote segment: its metadata, its states, its events in `__remote_log_metadata`, and its objects in the store.

States. Only these edges exist; an event for another edge has no effect, and so has a repeated event:

    (unknown) -> COPY_STARTED -> COPY_FINISHED -> DELETE_STARTED -> DELETE_FINISHED
                      +------------------------------^

An event may name the state that it expects (`expected`). A leader that gives up a copy expects COPY_STARTED: if the
COPY_FINISHED of that copy is in the log before, although its answer was lost, brokers may have deleted local records
because of it, and the segment must stay. The order of the events in the log decides.

COPY_STARTED is committed before the first byte is written to the store, so every object that this cluster has put
belongs to a segment that the metadata know. COPY_FINISHED is committed after all objects are complete, and states the
size and the SHA-256 of each. A segment is readable, and proves that its records are in the store, only in
COPY_FINISHED. DELETE_FINISHED is committed after all objects are gone; the segment is unknown afterwards.

Objects. The names of a segment's objects contain its id, a random UUID that is never used again, so no object is ever
overwritten:

    <cluster id>/<topic>-<topic id>/<partition>/<base offset, 20 digits>-<segment id, 32 hex digits><suffix>

    .log       whole record batches with the offsets `base_offset` to `end_offset`, as they are in the replica's log
    .index     the sparse index of the .log object and the checksums of its blocks: `remote_index.py`
    .epochs    the leader epochs of the replica's log from its start to the segment's end, in the format of the file
               `leader-epoch-checkpoint`: version, count, one `epoch start_offset` a line
    .snapshot  the state of the log's producers at the segment's end: `broker.producers.snapshot_format`

Events are the values of records of `__remote_log_metadata`: JSON objects with the fields of `SegmentEvent.encode`.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from broker.log.epochs import EpochEntry
from broker.protocol.uuids import id_text, parse_id
from broker.tiered.object_digests import ObjectDigest

FORMAT: Final = 2
LOG, INDEX, EPOCHS, SNAPSHOT = ".log", ".index", ".epochs", ".snapshot"
SUFFIXES: Final = (LOG, INDEX, EPOCHS, SNAPSHOT)
"""All objects of a segment, in the order in which they are written. The others are removed before `.log`."""
_SHA256: Final = re.compile("[0-9a-f]{64}")


class SegmentState(Enum):
    """The state of a remote segment."""

    COPY_STARTED = "COPY_STARTED"
    COPY_FINISHED = "COPY_FINISHED"
    DELETE_STARTED = "DELETE_STARTED"
    DELETE_FINISHED = "DELETE_FINISHED"


EDGES: Final[Mapping[SegmentState | None, frozenset[SegmentState]]] = {
    None: frozenset({SegmentState.COPY_STARTED}),
    SegmentState.COPY_STARTED: frozenset({SegmentState.COPY_FINISHED, SegmentState.DELETE_STARTED}),
    SegmentState.COPY_FINISHED: frozenset({SegmentState.DELETE_STARTED}),
    SegmentState.DELETE_STARTED: frozenset({SegmentState.DELETE_FINISHED}),
    SegmentState.DELETE_FINISHED: frozenset(),
}
"""The possible next states of each state; None: the segment is unknown."""


@dataclass(frozen=True)
class RemotePartition:
    """A partition whose log has remote segments. The topic's id identifies it; the name is for readers."""

    topic: str
    topic_id: bytes
    index: int

    @property
    def key(self) -> tuple[bytes, int]:
        return (self.topic_id, self.index)

    def prefix(self, cluster_id: str) -> str:
        """The start of the names of all objects of the partition, with the final `/`."""
        return f"{cluster_id}/{self.topic}-{id_text(self.topic_id)}/{self.index}/"


@dataclass(frozen=True)
class TieredSegment:
    """The metadata of a remote segment.

    `end_offset` is the last offset. `epochs`: each leader epoch of the segment's records and its first offset here; the
    first entry starts at `base_offset`. `max_timestamp` in ms, -1: none. `size`: bytes of the `.log` object. `broker`,
    `leader_epoch`: the leader that copies it. `objects`: a digest for each of `SUFFIXES`, from COPY_FINISHED on.
    """

    id: str
    partition: RemotePartition
    base_offset: int
    end_offset: int
    epochs: tuple[EpochEntry, ...]
    max_timestamp: int
    size: int
    broker: int
    leader_epoch: int
    state: SegmentState = SegmentState.COPY_STARTED
    objects: tuple[ObjectDigest, ...] = ()

    def __post_init__(self) -> None:
        starts = [entry.start_offset for entry in self.epochs]
        rising = all(one < other for one, other in zip(self.epochs, self.epochs[1:], strict=False))
        if not 0 <= self.base_offset <= self.end_offset:
            raise ValueError(f"segment {self.id}: offsets {self.base_offset} to {self.end_offset}")
        if not starts or starts[0] != self.base_offset or starts[-1] > self.end_offset or not rising:
            raise ValueError(f"segment {self.id}: epochs {self.epochs} of {self.base_offset} to {self.end_offset}")
        if starts != sorted(set(starts)):
            raise ValueError(f"segment {self.id}: the start offsets of {self.epochs} do not rise")

    @property
    def next_offset(self) -> int:
        """The offset after the last one."""
        return self.end_offset + 1

    @property
    def is_readable(self) -> bool:
        """Whether the store has the whole segment."""
        return self.state is SegmentState.COPY_FINISHED

    def stretch_of(self, epoch: int) -> tuple[int, int] | None:
        """The first offset of an epoch's records in the segment and the offset after the last; None without any."""
        for entry, following in zip(self.epochs, (*self.epochs[1:], None), strict=True):
            if entry.epoch == epoch:
                return entry.start_offset, self.next_offset if following is None else following.start_offset
        return None

    def object_name(self, cluster_id: str, suffix: str) -> str:
        """The name of one of the segment's objects."""
        return f"{self.partition.prefix(cluster_id)}{self.base_offset:020d}-{self.id}{suffix}"

    def digest(self, suffix: str) -> ObjectDigest:
        """What the metadata state of one of the objects of a segment whose copy is finished."""
        return self.objects[SUFFIXES.index(suffix)]

    def object_names(self, cluster_id: str) -> list[str]:
        """The names of all of the segment's objects, in the order of `SUFFIXES`."""
        return [self.object_name(cluster_id, suffix) for suffix in SUFFIXES]


def segment_id_of(name: str) -> str | None:
    """The id in an object's name; None for a name that no segment has."""
    stem, _, last = name.rpartition("/")
    number, dash, rest = last.partition("-")
    identifier, dot, suffix = rest.partition(".")
    fits = stem and dash and dot and f".{suffix}" in SUFFIXES and number.isdecimal() and len(identifier) == 32
    return identifier if fits else None


class MetadataFormatError(ValueError):
    """A record of `__remote_log_metadata` is not an event that this version can read."""


@dataclass(frozen=True)
class SegmentEvent:
    """A change of state of a remote segment. Only COPY_STARTED has the `segment`, only COPY_FINISHED the `objects`.
    `expected`: the event has an effect only in this state; None: in every state with an edge to the new one."""

    partition: RemotePartition
    id: str
    state: SegmentState
    segment: TieredSegment | None = None
    expected: SegmentState | None = None
    objects: tuple[ObjectDigest, ...] = ()

    @classmethod
    def started(cls, segment: TieredSegment) -> "SegmentEvent":
        """COPY_STARTED, the first event of a segment."""
        segment = replace(segment, state=SegmentState.COPY_STARTED, objects=())
        return cls(segment.partition, segment.id, SegmentState.COPY_STARTED, segment)

    @classmethod
    def to(cls, state: SegmentState, segment: TieredSegment, *, expected: SegmentState | None = None) -> "SegmentEvent":
        """A later event of a segment."""
        objects = segment.objects if state is SegmentState.COPY_FINISHED else ()
        return cls(segment.partition, segment.id, state, expected=expected, objects=objects)

    def encode(self) -> bytes:
        """The value of the event's record."""
        return json.dumps(self.to_fields(), separators=(",", ":")).encode()

    def to_fields(self) -> dict[str, Any]:
        """The fields of the record."""
        fields: dict[str, Any] = {
            "format": FORMAT,
            "state": self.state.value,
            "id": self.id,
            "topic": self.partition.topic,
            "topic_id": id_text(self.partition.topic_id),
            "partition": self.partition.index,
        }
        if self.expected is not None:
            fields["expected"] = self.expected.value
        if self.objects:
            fields["objects"] = fields_of(self.objects)
        if self.segment is not None:
            fields |= {
                "base_offset": self.segment.base_offset,
                "end_offset": self.segment.end_offset,
                "epochs": [list(entry) for entry in self.segment.epochs],
                "max_timestamp": self.segment.max_timestamp,
                "size": self.segment.size,
                "broker": self.segment.broker,
                "leader_epoch": self.segment.leader_epoch,
            }
        return fields

    @classmethod
    def decode(cls, value: bytes) -> "SegmentEvent":
        """The event of a record's value. Raises `MetadataFormatError`."""
        try:
            return cls.from_fields(json.loads(value))
        except (ValueError, KeyError, TypeError) as error:
            raise MetadataFormatError(f"{value[:200]!r}: {type(error).__name__}: {error}") from error

    @classmethod
    def from_fields(cls, fields: Any) -> "SegmentEvent":
        """The event with these fields. Raises `ValueError`, `KeyError` or `TypeError`."""
        if fields["format"] != FORMAT:
            raise ValueError(f"format {fields['format']} is unknown; expected {FORMAT}")
        state = SegmentState(fields["state"])
        partition = RemotePartition(fields["topic"], parse_id(fields["topic_id"]), int(fields["partition"]))
        segment = None
        if state is SegmentState.COPY_STARTED:
            segment = TieredSegment(
                id=fields["id"],
                partition=partition,
                base_offset=int(fields["base_offset"]),
                end_offset=int(fields["end_offset"]),
                epochs=tuple(EpochEntry(int(epoch), int(start)) for epoch, start in fields["epochs"]),
                max_timestamp=int(fields["max_timestamp"]),
                size=int(fields["size"]),
                broker=int(fields["broker"]),
                leader_epoch=int(fields["leader_epoch"]),
            )
        expected = SegmentState(fields["expected"]) if "expected" in fields else None
        objects = digests_of(fields["objects"]) if state is SegmentState.COPY_FINISHED else ()
        return cls(partition, fields["id"], state, segment, expected, objects)


def fields_of(objects: Iterable[ObjectDigest]) -> dict[str, dict[str, Any]]:
    """Digests as the field `objects` of an event: size and SHA-256 by suffix."""
    return {digest.suffix: {"size": digest.size, "sha256": digest.sha256} for digest in objects}


def digests_of(objects: Any) -> tuple[ObjectDigest, ...]:
    """The digests of the field `objects`. Raises `ValueError`, `KeyError` or `TypeError` if one is not there."""
    if sorted(objects) != sorted(SUFFIXES):
        raise ValueError(f"digests of {sorted(objects)}; expected {sorted(SUFFIXES)}")
    digests = tuple(
        ObjectDigest(suffix, int(objects[suffix]["size"]), str(objects[suffix]["sha256"])) for suffix in SUFFIXES
    )
    if any(digest.size < 0 or _SHA256.fullmatch(digest.sha256) is None for digest in digests):
        raise ValueError(f"digests {objects}")
    return digests

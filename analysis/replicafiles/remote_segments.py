"""Reads the remote segments of a partition, and what they add below the start of a replica's own files.

A replica's log consists of its own segments and, below them, the remote segments of its lineage: those in the state
COPY_FINISHED whose records have, at each offset, the leader epoch that the replica's epoch file gives that offset
(KAFKA-15241: an offset alone does not identify a record). Segments may overlap, and a segment may leave the lineage in
its middle; from there on another one must continue. Offsets that no such segment has are absent.
"""

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from analysis.replicafiles.log import I64, LogColumns
from analysis.replicafiles.remote_metadata import COPY_FINISHED, DeclaredSegment
from analysis.replicafiles.remote_objects import LOG

_OBJECT: Final = re.compile(r"[0-9]+-([0-9a-f]{32}|[A-Za-z0-9_-]{22})(\.[a-z_]+)")


@dataclass(frozen=True)
class SegmentContent:
    """The records of a remote segment's object, up to where it cannot be read further. `start`, `end`: its offsets
    (first, after the last). `why`: why reading stopped before its end, empty if it was read whole."""

    records: LogColumns
    start: int
    end: int
    opaque: tuple[tuple[int, int], ...] = ()
    gaps: tuple[tuple[int, int], ...] = ()
    formats: frozenset[int] = frozenset()
    why: str = ""


ReadObject = Callable[[Path, int], SegmentContent]
"""Reads the object at a path, whose first offset is given."""


@dataclass
class StoredLog:
    """The remote segments of one partition, and the files of their objects by segment id and suffix. `keeps`: each
    segment's records are read once, and stay in memory."""

    segments: Sequence[DeclaredSegment]
    objects: Mapping[str, Mapping[str, Path]]
    read: ReadObject
    keeps: bool = True
    _contents: dict[str, SegmentContent | None] = field(default_factory=dict)

    def content(self, segment: DeclaredSegment) -> SegmentContent | None:
        """The records of a segment; None if the store has no such object."""
        if segment.id in self._contents:
            return self._contents[segment.id]
        path = self.file(segment.id)
        content = None if path is None else self.read(path, segment.start)
        if self.keeps:
            self._contents[segment.id] = content
        return content

    def file(self, identity: str) -> Path | None:
        """The file of a segment's records; None if the store has no such object."""
        return self.objects.get(identity, {}).get(LOG)

    def records(self, identity: str, first: int, end: int) -> LogColumns:
        """The records of a segment in a range of offsets."""
        (segment,) = (segment for segment in self.segments if segment.id == identity)
        content = self.content(segment)
        assert content is not None
        offset = content.records.offset
        return content.records.take((offset >= first) & (offset < end))

    @property
    def finished(self) -> list[DeclaredSegment]:
        """The segments that the metadata declare complete."""
        return [segment for segment in self.segments if segment.state == COPY_FINISHED]


@dataclass
class Covered:
    """What remote segments hold of a range of a replica's log, in the form of `ReplicaLog`. `spans`: the records, as
    of `ReplicaLog.prefix`."""

    spans: list[tuple[str, int, int]] = field(default_factory=list)
    opaque: list[tuple[int, int]] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    absent: list[tuple[int, int]] = field(default_factory=list)
    formats: set[int] = field(default_factory=set)


def objects_in(store: Path) -> dict[str, dict[str, Path]]:
    """The files of segments' objects below a directory, by segment id (22 characters of base64 for URLs) and suffix."""
    objects: dict[str, dict[str, Path]] = {}
    for path in sorted(store.rglob("*")):
        name = _OBJECT.fullmatch(path.name)
        if name is not None and path.is_file():
            objects.setdefault(_id_of(name[1]), {})[name[2]] = path
    return objects


def object_id(name: str) -> str | None:
    """The id of the segment that an object's name states; None for another name."""
    match = _OBJECT.fullmatch(name.rpartition("/")[2])
    return None if match is None else _id_of(match[1])


def _id_of(text: str) -> str:
    return text if len(text) == 22 else base64.urlsafe_b64encode(bytes.fromhex(text)).decode().rstrip("=")


def cover(remote: StoredLog, epochs: Sequence[tuple[int, int]], start: int, end: int) -> Covered:
    """The records from `start` up to `end` of the lineage that these epochs (epoch, start offset) describe. The lineage
    is not known below the first epoch, which may start in the middle of a segment."""
    covered, at = Covered(), start
    while at < end:
        reaches = [(_reach(remote, segment, epochs, at, end), segment.id) for segment in remote.finished]
        reached, identity = max(reaches, key=lambda candidate: _how_far(candidate[0]), default=(None, ""))
        if reached is None or reached[0] <= at:
            starts = [segment.start for segment in remote.finished] + [first for _, first in epochs[:1]]
            next_start = min([start for start in starts if start > at] + [end])
            covered.absent.append((at, next_start))
            at = next_start
            continue
        upto, content = reached
        covered.spans.append((identity, at, upto))
        covered.opaque += _within(content.opaque, at, upto)
        covered.gaps += _within(content.gaps, at, upto)
        covered.formats |= content.formats
        at = upto
    return covered


def _how_far(reached: tuple[int, SegmentContent] | None) -> int:
    return -1 if reached is None else reached[0]


def _reach(
    remote: StoredLog, segment: DeclaredSegment, epochs: Sequence[tuple[int, int]], at: int, end: int
) -> tuple[int, SegmentContent] | None:
    """Up to which offset a segment holds the lineage from `at` on, and its content; None if it does not hold `at`."""
    if not segment.start <= at <= segment.end:
        return None
    content = remote.content(segment)
    if content is None:
        return None
    upto = min(content.end, segment.end + 1, end)
    inside = (content.records.offset >= at) & (content.records.offset < upto)
    offset, epoch = content.records.offset[inside], content.records.epoch[inside]
    strays = np.flatnonzero(epoch != lineage(epochs, offset))
    upto = int(offset[strays[0]]) if len(strays) else upto
    return (upto, content) if upto > at else None


def lineage(epochs: Sequence[tuple[int, int]], offset: I64) -> I64:
    """The leader epoch of each offset by an epoch file; -2 before its first entry."""
    starts = np.array([start for _, start in epochs], np.int64)
    epochs_from = np.array([-2, *(epoch for epoch, _ in epochs)], np.int64)
    return epochs_from[np.searchsorted(starts, offset, side="right")]


def _within(ranges: Sequence[tuple[int, int]], first: int, end: int) -> list[tuple[int, int]]:
    clipped = [(max(start, first), min(stop, end)) for start, stop in ranges]
    return [(start, stop) for start, stop in clipped if start < stop]

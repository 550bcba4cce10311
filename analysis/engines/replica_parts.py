"""The parts of replicas' logs: tasks that decode whole segment files, and the logs that their results make.

What a task returns is the content of its segments without the records, which are in a table.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from analysis.core.explain import Key
from analysis.engines.replica_tables import RecordFile, overlapping, read_piece, write_piece
from analysis.replicafiles import kafka
from analysis.replicafiles.kafka import SegmentContents
from analysis.replicafiles.log import ReplicaLog, joined, no_records, no_sequences
from analysis.replicafiles.remote_segments import ReadObject, SegmentContent, StoredLog

PART_BYTES: Final = 32 << 20
"""Segment files that one task decodes have this many bytes at most, unless there is only one."""

BYTES_PER_ROW: Final = 64
"""About how many bytes of a segment are one record, for the weights of tasks."""


@dataclass(frozen=True)
class SegmentsTask:
    """Consecutive segments of a node's log: those with the numbers `first` .. `behind` - 1 of all. `table`: the file
    for their records; `place`: the log's number in its plan."""

    place: int
    node: str
    segments: tuple[str, ...]
    first: int
    behind: int
    compacted: bool
    table: str
    weight: int

    def decode(self) -> "LogPart":
        segments = [Path(path) for path in self.segments]
        content = kafka.read_segments(segments, self.first, self.behind, compacted=self.compacted)
        piece = write_piece(Path(self.table), self.node, joined(content.pieces))
        return LogPart(self.place, content.folded(), piece)


@dataclass(frozen=True)
class ObjectTask:
    """The object of a remote segment, whose first offset is `start`. `table`: the file for its records."""

    path: str
    start: int
    read: ReadObject
    table: str
    weight: int

    def decode(self) -> "StoredPart":
        content = self.read(Path(self.path), self.start)
        piece = write_piece(Path(self.table), "store", content.records)
        return StoredPart(self.path, replace(content, records=no_records()), piece)


def decode(task: SegmentsTask | ObjectTask) -> "LogPart | StoredPart":
    """Read files, write their records to a table, and return the rest."""
    return task.decode()


@dataclass(frozen=True)
class LogPart:
    """Some segments of a log: the log's number in its plan, their content without records, and these."""

    place: int
    content: SegmentContents
    piece: RecordFile


@dataclass(frozen=True)
class StoredPart:
    """The object of a remote segment: its content without records, and these."""

    path: str
    content: SegmentContent
    piece: RecordFile


@dataclass(frozen=True)
class StoredParts:
    """Reads the contents of decoded objects, with the offsets and leader epochs of their records."""

    parts: Mapping[str, StoredPart]

    def __call__(self, path: Path, _start: int) -> SegmentContent:
        part = self.parts[str(path)]
        records = read_piece(part.piece, part.content.start, part.content.end, ("epoch",))
        return replace(part.content, records=records)


@dataclass(frozen=True)
class LaidOut:
    """One replica's log, or an earlier dump of it: its description without records, and the pieces that hold them."""

    log: ReplicaLog
    pieces: tuple[RecordFile, ...]

    def between(self, start: int, stop: int) -> "LaidOut":
        """The same for the task of a range, which does not need all of it."""
        return LaidOut(replace(self.log, sequences=no_sequences()), overlapping(self.pieces, start, stop))


@dataclass(frozen=True)
class LogTask:
    """A replica, or an earlier dump of it, in the data directory `data`, and its parts in their order."""

    node: str
    key: Key
    data: str
    parts: tuple[LogPart, ...]
    remote: StoredLog | None
    stored: Mapping[str, StoredPart]
    weight: int = 1

    def lay_out(self) -> LaidOut:
        remote = None if self.remote is None else replace(self.remote, read=StoredParts(self.stored), keeps=False)
        contents = [part.content for part in self.parts]
        log, used_parts = kafka.assemble(self.node, self.key, Path(self.data), contents, remote=remote)
        pieces = [part.piece for part in self.parts[:used_parts]]
        if remote is not None:
            remote_pieces = [
                replace(self.stored[str(remote.file(identity))].piece, first=first, behind=end)
                for identity, first, end in log.prefix
            ]
            pieces = [*remote_pieces, *pieces]
        return LaidOut(log, tuple(replace(piece, first=max(piece.first, log.start)) for piece in pieces))


def segment_tasks(
    place: int, node: str, key: Key, data: Path, tables: Path, *, compacted: bool, most: int = PART_BYTES
) -> Iterator[SegmentsTask]:
    """The tasks that decode a replica; `most`: bytes of one task, unless it has only one file."""
    segments = kafka.segments_of(key, data)
    names, sizes = tuple(map(str, segments)), [path.stat().st_size for path in segments]
    first = 0
    while first < len(segments):
        end, size = first + 1, sizes[first]
        while end < len(segments) and size + sizes[end] <= most:
            size += sizes[end]
            end += 1
        table = str(tables / f"{node}-{segments[first].stem}.parquet")
        yield SegmentsTask(place, node, names, first, end, compacted, table, size // BYTES_PER_ROW + 1)
        first = end


def object_tasks(remote: StoredLog | None, tables: Path) -> Iterator[ObjectTask]:
    """The tasks that decode the objects of complete remote segments."""
    for segment in [] if remote is None else remote.finished:
        assert remote is not None
        path = remote.file(segment.id)
        if path is not None:
            weight = path.stat().st_size // BYTES_PER_ROW + 1
            yield ObjectTask(str(path), segment.start, remote.read, str(tables / f"{path.stem}.parquet"), weight)

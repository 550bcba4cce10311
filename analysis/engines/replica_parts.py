"""The parts of replicas' logs: tasks that decode whole segment files, and the logs that their results make.

What a task returns is the content of its segments without the records, which are in a table.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.core.explain import Key
from analysis.replicafiles import kafka
from analysis.replicafiles.kafka import SegmentContents
from analysis.replicafiles.log import LogColumns, ReplicaLog, joined, no_records, no_sequences
from analysis.replicafiles.remote_segments import ReadObject, SegmentContent, StoredLog
from history.record.schemas import INF
from history.regular_files import require_regular
from history.topic_folders import folder_of

# ---- The records of replicas as tables: one row per record, in files that hold a range of a log's offsets each.

REPLICAS: Final = "replicas"
EPOCHS: Final = "epochs"
SCRATCH: Final = ("earlier_replicas", "remote_records")
"""The tables below a run's `tables/`: the records of the replicas and the entries of their epoch files; and, while they
are checked, the records of earlier dumps and of remote segments."""

RECORDS: Final = pa.schema(
    [
        pa.field("node", pa.dictionary(pa.int32(), pa.string())),
        pa.field("offset", pa.int64()),
        pa.field("epoch", pa.int64()),
        pa.field("value", pa.int64()),
        pa.field("digest", pa.uint64()),
        pa.field("size", pa.int64()),
        pa.field("exact", pa.bool_()),
        pa.field("key", pa.uint64()),
    ]
)
ENTRIES: Final = pa.schema([("node", pa.string()), ("epoch", pa.int64()), ("start_offset", pa.int64())])
GROUP_ROWS: Final = 1 << 17
"""Rows per row group, so that little beside a range is read."""

ALL: Final = LogColumns._fields


@dataclass(frozen=True)
class RecordFile:
    """A file of records of one log; only those with the offsets `first` .. `behind` - 1 count. `rows` is the
    number of records in the file, `low` and `high` are their lowest and highest offset (0 and -1 without any)."""

    path: str
    rows: int
    low: int
    high: int
    first: int = 0
    behind: int = INF

    @property
    def reach(self) -> tuple[int, int]:
        """The lowest and the highest offset that it may have."""
        return max(self.low, self.first), min(self.high, self.behind - 1)


def write_piece(path: Path, node: str, records: LogColumns) -> RecordFile:
    """Write the records of a part of a log, in their order."""
    path.parent.mkdir(parents=True, exist_ok=True)
    nodes = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(records.offset), np.int32)), pa.array([node]))
    table = pa.Table.from_arrays([nodes, *map(pa.array, records)], schema=RECORDS)
    pq.write_table(table, path, compression="zstd", row_group_size=GROUP_ROWS)
    rows = len(records.offset)
    return (
        RecordFile(str(path), rows, int(records.offset[0]), int(records.offset[-1]))
        if rows
        else RecordFile(str(path), 0, 0, -1)
    )


def read_piece(piece: RecordFile, start: int, stop: int, names: Sequence[str] = ALL) -> LogColumns:
    """The records of a piece in a range of offsets; columns that are not named are empty."""
    first, end = max(start, piece.first), min(stop, piece.behind)
    with pq.ParquetFile(require_regular(piece.path)) as file:
        numbers = [number for number in range(file.num_row_groups) if _overlaps(file, number, first, end)]
        columns = list(dict.fromkeys(("offset", *names)))
        table = file.read_row_groups(numbers, columns=columns, use_threads=False)
    arrays = {name: table[name].to_numpy() for name in columns}
    inside = slice(*np.searchsorted(arrays["offset"], (first, end)).tolist())
    return LogColumns(*(arrays[name][inside] if name in arrays else _EMPTY[name] for name in ALL))


_EMPTY: Final = {field.name: np.empty(0, field.type.to_pandas_dtype()) for field in RECORDS if field.name in ALL}


def _overlaps(file: pq.ParquetFile, number: int, first: int, end: int) -> bool:
    group = file.metadata.row_group(number)
    stated = group.column(RECORDS.get_field_index("offset")).statistics
    return bool(stated.min < end and stated.max >= first)


def read_range(pieces: Sequence[RecordFile], start: int, stop: int, names: Sequence[str] = ALL) -> LogColumns:
    """The records of a log in a range of offsets."""
    return joined([read_piece(piece, start, stop, names) for piece in overlapping(pieces, start, stop)])


def overlapping(pieces: Iterable[RecordFile], start: int, stop: int) -> tuple[RecordFile, ...]:
    """The pieces that have records in a range of offsets."""
    return tuple(piece for piece in pieces if start <= piece.reach[1] and piece.reach[0] < stop)


def cuts(pieces: Sequence[RecordFile], span: int) -> Iterator[int]:
    """Where ranges of about `span` records may start. Pieces with few records for their offsets are not cut."""
    for piece in pieces:
        low, high = piece.reach
        if low <= high:
            yield low // span * span
            if high - low < 4 * piece.rows + span:
                yield from range((low // span + 1) * span, high + 1, span)


def write_epochs(tables: Path, key: Key, logs: Sequence[ReplicaLog]) -> None:
    """Write the entries of the epoch files of a partition's replicas."""
    folder = folder_of(tables / EPOCHS, *key)
    folder.mkdir(parents=True, exist_ok=True)
    entries = [{"node": log.node, "epoch": e, "start_offset": s} for log in logs for e, s in log.epochs or ()]
    pq.write_table(pa.Table.from_pylist(entries, ENTRIES), folder / "epochs.parquet", compression="zstd")


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

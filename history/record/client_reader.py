"""Reads clients' records, their streams and announcements, and decides whether they are complete."""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, TypeVar

import pyarrow as pa

from history.checksummed_lines import Lines
from history.record.announcements import Announcements, AnnouncementsTask, RecordHeader, read_announcements
from history.record.arrow_stream import segment_path
from history.record.operation_tables import IndexedGroup, record_name, write_operations
from history.record.pieces import PieceRead, PieceTask, read_piece
from history.record.shapes import BLOCKS, Shape
from history.record.validation import written_values
from history.regular_files import remove
from history.seconds import SecondCounts
from history.value_runs import ValueRuns

T = TypeVar("T")
R = TypeVar("R")

INVOKED_FOLDER: Final = "invoked"
"""Below `tables/`, during the reading of clients only."""


@dataclass
class ClientRecording:
    """One recording of a client, a stream with its announcements: completed rows, and rows for announced operations
    that were never completed. `defects`: why it is incomplete, as sentences that name the file. `torn`: the files whose
    tail was lost. `closed`: the client's last announcement has its number of operations; `understood`: no announcement
    before the last existing one is damaged or missing. `believed`: the number of completed operations of each kind;
    `last_process`: the highest number of a process that has any.

    `completed` has no rows if they are only in the tables. `used`: the values that operations write, unfinished ones
    included. `groups`: the index of the tables. `seconds`: the share of the table of seconds.
    """

    completed: pa.Table
    left: pa.Table
    defects: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    closed: bool = False
    understood: bool = True
    process: int | None = None
    producer: int | None = None
    believed: Counter[str] = field(default_factory=Counter)
    last_process: int = -1
    used: ValueRuns = field(default_factory=ValueRuns)
    groups: list[IndexedGroup] = field(default_factory=list)
    seconds: list[SecondCounts] = field(default_factory=list)


class PieceMap(Protocol):
    """Applies a function to tasks and returns the results in the order of the tasks."""

    def __call__(self, function: Callable[[T], R], tasks: Sequence[T], /) -> Iterable[R]: ...


@dataclass(frozen=True)
class StreamRecord:
    """The files of a writer: the segment 0 of its stream, and the numbers of the existing segments."""

    stream: Path
    segments: Sequence[int] = (0,)


def read_recordings(
    shape: Shape,
    records: Sequence[StreamRecord],
    *,
    tables: Path | None = None,
    keeps: bool = True,
    each: PieceMap = map,
) -> list[ClientRecording]:
    """Reads several records: first their announcements, then each segment as a task of its own. All segments of a
    record may be missing if its announcements exist.

    Writes the rows to `tables`, if given; the caller writes the index. Without `keeps`, the parts have no rows. Raises
    OSError for what it writes."""
    with _scratch(tables) as scratch:
        tasks = [
            AnnouncementsTask(shape, record.stream.with_suffix(shape.announced), scratch / f"{number}.parquet")
            for number, record in enumerate(records)
        ]
        read_each: PieceMap = map if shape.announces == BLOCKS else each  # blocks are few
        announced = read_each(read_announcements, tasks)
        recordings = [_Recording(shape, *pair) for pair in zip(records, announced, strict=True)]
        pieces = iter(each(read_piece, [task for recording in recordings for task in recording.tasks(tables, keeps)]))
        return [recording.part_of([next(pieces) for _ in recording.numbers], tables) for recording in recordings]


@contextlib.contextmanager
def _scratch(tables: Path | None) -> Iterator[Path]:
    """A directory for tables that only this reading needs; one that was left by a killed process is replaced."""
    if tables is None:
        with tempfile.TemporaryDirectory() as temporary:
            yield Path(temporary)
        return
    folder = tables / INVOKED_FOLDER
    remove(folder)
    try:
        yield folder
    finally:
        remove(folder)


class _Recording:
    """A record with its announcements, with which its segments are read."""

    def __init__(self, shape: Shape, record: StreamRecord, announced: Announcements) -> None:
        self._shape = shape
        self._stream = record.stream
        self._announced = announced
        self._missing = _missing(record.stream, record.segments)
        self.numbers = [0, *(number for number in record.segments if number)]

    def tasks(self, tables: Path | None, keeps: bool) -> Iterator[PieceTask]:
        """One for each segment."""
        record = record_name(self._stream.stem)
        for number in self.numbers:
            path = segment_path(self._stream, number)
            yield PieceTask(self._shape, path, number, record, self._announced, tables, keeps)

    def part_of(self, pieces: Sequence[PieceRead], tables: Path | None) -> ClientRecording:
        """The record, from what reading its segments has found. Writes the table of unfinished operations."""
        shape, stream, announced = self._shape, self._stream, self._announced
        part = ClientRecording(shape.columns.empty_table(), shape.columns.empty_table())
        path = stream.with_suffix(shape.announced)
        header = _take_lines(announced, path, part)
        paths = [segment_path(stream, number) for number in self.numbers]
        part.torn[:0] = [str(path) for path, piece in zip(paths, pieces, strict=True) if piece.is_torn]
        part.defects[:0] = [
            *self._missing,
            *(f"{path.name}: {defect}" for path, piece in zip(paths, pieces, strict=True) for defect in piece.defects),
        ]
        part.believed = sum((piece.believed for piece in pieces), Counter[str]())
        part.last_process = max(piece.last_process for piece in pieces)
        part.completed = _joined([part.completed, *(rows for piece in pieces for rows in piece.rows)])
        part.groups = [group for piece in pieces for group in piece.groups]
        part.seconds = [seconds for piece in pieces for seconds in piece.seconds]
        part.used = ValueRuns.union(piece.used for piece in pieces)
        if ValueRuns.union(piece.ids for piece in pieces).repeated:
            part.defects.append(f"{stream.name}: an id is that of several rows")
        if ValueRuns.union(piece.written for piece in pieces).repeated:
            part.defects.append(f"{stream.name}: it wrote a value twice")
        recorded = sum((piece.recorded for piece in pieces), Counter[str]())
        _require_counts(part, announced.lines, recorded, path, stream)
        done = ValueRuns.union(piece.done for piece in pieces)
        problems = [f"{count} of its lines {problem}" for problem, count in announced.damaged.items()]
        if reused := announced.reused(done):
            problems.append(f"it gives back {reused} values that were used")
        part.defects += [f"{path.name}: {problem}" for problem in problems]
        part.understood = part.understood and not problems and not any(piece.misplaced for piece in pieces)
        if header is not None:
            part.left = announced.left_open(header, done)
        self._add_left(part, tables)
        return part

    def _add_left(self, part: ClientRecording, tables: Path | None) -> None:
        """Adds what the tables of all records need of unfinished operations, and checks that the index has all
        operations of this record."""
        part.used = ValueRuns.union([part.used, ValueRuns.of(written_values(part.left, self._shape.written))])
        part.seconds.append(SecondCounts.of(part.left, self._shape))
        if tables is None:
            return
        name = record_name(self._stream.stem, "unfinished")
        part.groups += write_operations(self._shape, part.left, tables, name)
        indexed, count = sum(group.rows for group in part.groups), part.believed.total() + part.left.num_rows
        if indexed != count:
            part.defects.append(f"{self._stream.name}: it has {count} operations, but its tables have {indexed}")


def _joined(rows: Sequence[pa.Table]) -> pa.Table:
    """All rows in one chunk."""
    return pa.concat_tables(rows).unify_dictionaries().combine_chunks()


def _missing(first_path: Path, segments: Sequence[int]) -> list[str]:
    """The missing segments before existing ones, as defects. Only the last one of several in a row. Segment 0 is
    always read, so its absence is a defect already."""
    missing_numbers = {number - 1 for number in segments if number > 1} - set(segments)
    return [f"{segment_path(first_path, number).name} is missing" for number in sorted(missing_numbers)]


def _take_lines(announced: Announcements, path: Path, part: ClientRecording) -> RecordHeader | None:
    """Adds to a record what is wrong with the lines of its announcements, and whose it is. Returns the header."""
    lines, header = announced.lines, announced.header
    if lines.torn:
        part.torn.append(str(path))
        part.defects.append(f"{path.name} was torn: its tail is lost")
    part.defects += [f"{path.name}: {defect}" for defect in lines.defects]
    part.understood = not lines.defects and header is not None
    if header is not None:
        part.process, part.producer = header.process, header.producer
    elif not part.defects:
        part.defects.append(f"{path.name}: its first line does not say whose record it is")
    return header


def _require_counts(part: ClientRecording, lines: Lines, counts: Counter[str], announced: Path, stream: Path) -> None:
    """Checks that the numbers of operations equal those that the client stated when it closed its record."""
    closing = [line["closed"] for _, line in lines.contents if "closed" in line]
    last_line = lines.contents[-1][1] if lines.contents else {}
    part.closed = len(closing) == 1 and _is_counts(last_line.get("closed"))
    if not part.closed:
        part.defects.append(f"{announced.name}: it has no end mark, its client did not close it")
        return
    if counts != {name: count for name, count in closing[0].items() if count}:
        part.defects.append(
            f"{stream.name}: it has {_told(counts)}, but its client recorded {_told(closing[0])} (fewer or more rows)"
        )


def _is_counts(counts: object) -> bool:
    return isinstance(counts, dict) and all(type(count) is int and count >= 0 for count in counts.values())


def _told(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "nothing"

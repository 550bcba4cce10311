"""Reads clients' records, their streams and announcements, and decides whether they are complete.

Theory of operation. A segment of a client's operations is read, validated and written to the tables by one task, in
bounded memory. The task has all that its segment's rows are validated against: the client's name and numbers, and what
it announced. It works on `Shape.piece_rows` rows at a time, writes those that are believed, and returns numbers, runs
of values, defects and the index of the rows that it wrote. So the segments of all clients are independent tasks with
small results. From these follows whether a client's record is complete.
"""

import contextlib
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from history.checksummed_lines import Lines
from history.record.announcements import Announcements, AnnouncementsTask, RecordHeader, read_announcements
from history.record.arrow_stream import BatchReader, segment_path
from history.record.operation_tables import IndexedGroup, record_name, write_operations
from history.record.schemas import NAMES
from history.record.shapes import BLOCKS, Shape
from history.record.validation import RowErrors, error_sentences, valid_part, written_values
from history.record.values import PRODUCERS
from history.regular_files import remove
from history.seconds import SecondCounts
from history.value_runs import ValueRuns
from installation.counted import counted

NO_PRODUCER: Final = -1


class RowOrigin:
    """Counts the rows and the written values of other clients. `header`: the client's own announcement; without one,
    nothing is checked."""

    def __init__(self, header: RecordHeader | None) -> None:
        self._header = header
        self._clients = 0
        self._processes = 0
        self._values = 0

    def take(self, rows: pa.Table, written: npt.NDArray[np.int64]) -> None:
        """Check rows and the values that they write."""
        header = self._header
        if header is None:
            return
        clients = pc.unique(rows["client"].cast(pa.string())).to_pylist() if rows.num_rows else []
        self._clients += len(set(clients) - {header.client})
        self._processes += int((rows["process"].to_numpy() != header.process).sum())
        producer = NO_PRODUCER if header.producer is None else header.producer
        self._values += int(((written >> 32 & (PRODUCERS - 1)) != producer).sum())

    def defects(self) -> Iterator[str]:
        """What was found, as sentences."""
        if self._header is not None and self._clients:
            yield f"it has operations of another client than {self._header.client}"
        if self._header is not None and self._processes:
            yield f"it has operations of another process than number {self._header.process}"
        if self._values:
            yield f"it has {counted(self._values, 'value')} of another producer"


@dataclass(frozen=True)
class PieceTask:
    """A segment to read. `announced`: the announcements of its client. `tables`: where to write, None: nowhere.
    `record`: how the names of its files start. `keeps`: whether the result has the rows."""

    shape: Shape
    path: Path
    segment: int
    record: str
    announced: Announcements
    tables: Path | None = None
    keeps: bool = True


@dataclass
class PieceRead:
    """The content of a segment. `recorded`: its valid and invalid rows by kind; `believed`: those that are valid and,
    if they write, as announced. `ids`: of valid rows, if they have one; `written`: the values of valid rows; `used`: of
    believed ones; `done`: what believed rows complete of the announcements. `misplaced`: some rows are not as
    announced, so the announcements or the rows are damaged. `last_process`: the highest number of a process in believed
    rows, -1 without any."""

    recorded: Counter[str] = field(default_factory=Counter)
    believed: Counter[str] = field(default_factory=Counter)
    ids: ValueRuns = field(default_factory=ValueRuns)
    written: ValueRuns = field(default_factory=ValueRuns)
    used: ValueRuns = field(default_factory=ValueRuns)
    done: ValueRuns = field(default_factory=ValueRuns)
    defects: list[str] = field(default_factory=list)
    is_torn: bool = False
    misplaced: bool = False
    last_process: int = -1
    rows: list[pa.Table] = field(default_factory=list)
    groups: list[IndexedGroup] = field(default_factory=list)
    seconds: list[SecondCounts] = field(default_factory=list)


def read_piece(task: PieceTask) -> PieceRead:
    """Reads a segment. All damage is a defect in the result. Raises OSError when its tables cannot be written."""
    return _Piece(task).read()


class _Piece:
    """A segment during reading."""

    def __init__(self, task: PieceTask) -> None:
        self._task = task
        self._found = PieceRead()
        self._invalid: RowErrors = {}
        self._runs: dict[str, list[ValueRuns]] = {name: [] for name in ("ids", "written", "used", "done")}
        self._problems: Counter[tuple[str, str]] = Counter()
        self._origin = RowOrigin(task.announced.header)

    def read(self) -> PieceRead:
        task, shape, reading = self._task, self._task.shape, self._found
        try:
            reader = BatchReader(task.path, shape.columns, task.segment, earlier=shape.earlier)
        except OSError as error:
            reading.defects.append(f"it cannot be read ({error.strerror})")
            return reading
        rows_before = 0
        for number, rows in enumerate(in_pieces(reader.batches(), shape)):
            self._take(shape.current(rows), number, rows_before)
            rows_before += rows.num_rows
        reading.is_torn = reader.is_torn
        reading.defects += [*reader.defects, *error_sentences(self._invalid), *self._origin.defects()]
        for (noun, problem), count in self._problems.items():
            reading.defects.append(f"it has {counted(count, noun)} {problem}")
        reading.misplaced = bool(self._problems)
        for name, runs in self._runs.items():
            setattr(reading, name, ValueRuns.union(runs))
        reading.seconds = [SecondCounts.union(reading.seconds)]
        return reading

    def _take(self, rows: pa.Table, number: int, rows_before: int) -> None:
        """`rows_before`: the number of rows of the segment before these."""
        task, shape, reading = self._task, self._task.shape, self._found
        reading.recorded += kinds_of(rows)
        rows = valid_part(rows, shape.invalid, self._invalid, rows_before)
        values = written_values(rows, shape.written)
        self._origin.take(rows, values)
        written = ValueRuns.of(values)
        self._runs["written"].append(written)
        if "id" in rows.column_names:
            self._runs["ids"].append(ValueRuns.of(rows["id"].to_numpy()))
        agreement = task.announced.compare(rows)
        self._problems += agreement.problems
        self._runs["done"].append(agreement.done)
        if not agreement.is_announced.all():
            rows = rows.filter(pa.array(agreement.is_announced))
            written = ValueRuns.of(written_values(rows, shape.written))
        self._runs["used"].append(written)
        reading.believed += kinds_of(rows)
        reading.last_process = max(reading.last_process, int(rows["process"].to_numpy().max(initial=-1)))
        reading.seconds.append(SecondCounts.of(rows, shape))
        if task.keeps:
            reading.rows.append(rows)
        if task.tables is not None:
            name = f"{task.record}-{task.segment}" + (f".{number}" if number else "")
            reading.groups += write_operations(shape, rows, task.tables, name)


def in_pieces(batches: Iterable[pa.RecordBatch], shape: Shape) -> Iterator[pa.Table]:
    """Tables of the batches in order, each with at least as many rows or bytes as the shape states but the last one, in
    one chunk."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= shape.piece_rows or size >= shape.piece_bytes:
            yield _table(waiting)
            rows = size = 0
    if waiting:
        yield _table(waiting)


def _table(waiting: list[pa.RecordBatch]) -> pa.Table:
    table = pa.Table.from_batches(waiting).unify_dictionaries()
    waiting.clear()
    return table.combine_chunks()


def kinds_of(rows: pa.Table) -> Counter[str]:
    """The number of operations of each kind."""
    entries: Sequence[Any] = pc.value_counts(rows["f"]).to_pylist()
    return Counter({NAMES.get(entry["values"], "unknown"): entry["counts"] for entry in entries})


# ---- A client's record.

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

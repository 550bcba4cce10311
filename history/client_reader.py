"""Reads one client's record, its stream and its announcements, and decides whether it is complete."""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from history.announcements import AnnouncedBlock, RecordHeader, UnusedValues, converted
from history.arrow_stream import segment_path
from history.checksummed_lines import Lines, read_lines
from history.errors import UNFINISHED
from history.log_pieces import AnnouncedValues, PieceRead, PieceTask, read_piece
from history.operation_tables import IndexedGroup, record_name, write_operations
from history.register_announcements import Announcements, AnnouncementsTask, read_announcements
from history.register_pieces import (
    PIECE_ROWS,
    RegisterPieceRead,
    RegisterPieceTask,
    is_as_announced,
    read_register_piece,
)
from history.regular_files import remove
from history.schemas import (
    ACKS_ALL,
    APPEND,
    INF,
    INFO,
    OPERATIONS,
    PHASE_MAIN,
    REGISTERS,
    RESERVATIONS,
)
from history.seconds import SecondCounts
from history.shapes import LOG, REGISTER, Shape
from history.validation import written_values
from history.value_runs import ValueRuns
from history.values import SESSION_SHIFT

T = TypeVar("T")
R = TypeVar("R")

INVOKED_FOLDER: Final = "invoked"
"""Below `tables/`, during the reading of clients of registers only."""


@dataclass
class ClientRecording:
    """One recording of a client, a stream with its announcements: completed rows, and rows for announced operations
    that were never completed. `defects`: why it is incomplete, as sentences that name the file. `torn`: the files whose
    tail was lost. `closed`: the client's last announcement has its number of operations; `understood`: no announcement
    before the last existing one is damaged or missing. `believed`: the number of completed operations of each kind;
    `last_process`: the highest number of a process that has any.

    `completed` has no rows if they are only in the tables. `used`: the values that operations write, unfinished ones
    included. `groups`: the index of the tables.
    `seconds`: the share of the table of seconds.
    """

    completed: pa.Table
    left: pa.Table
    reservations: pa.Table = field(default_factory=RESERVATIONS.empty_table)
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


def read_log_clients(
    records: Sequence[StreamRecord], *, tables: Path | None = None, keeps: bool = True, each: PieceMap = map
) -> list[ClientRecording]:
    """Reads several records, each segment as a task of its own. All segments of a record may be missing if its
    announcements exist.

    Writes the rows to `tables`, if given; the caller writes the index. Without `keeps`, the parts have no rows. Raises
    OSError for what it writes."""
    announcements = [_Announcements(record) for record in records]
    tasks = [task for recording in announcements for task in recording.tasks(tables, keeps)]
    pieces = iter(each(read_piece, tasks))
    return [recording.part_of([next(pieces) for _ in recording.numbers], tables) for recording in announcements]


class _Announcements:
    """The announcements of a log client's record, with which its segments are read."""

    def __init__(self, record: StreamRecord) -> None:
        self._stream = record.stream
        self._part = ClientRecording(OPERATIONS.empty_table(), OPERATIONS.empty_table())
        self.numbers = [0, *(number for number in record.segments if number)]
        self._missing = _missing(record.stream, record.segments)
        self._reserved = record.stream.with_suffix(LOG.announced)
        self._lines = _lines_of(self._reserved, self._part)
        self._who = _header(self._lines, self._reserved, self._part)
        blocks, damaged_count = converted((line for _, line in self._lines.contents if "first" in line), AnnouncedBlock)
        if damaged_count:
            self._part.understood = False
            self._part.defects.append(f"{self._reserved.name}: {damaged_count} of its lines announce no values")
        self._blocks, self._announced = blocks, AnnouncedValues.of(blocks)

    def tasks(self, tables: Path | None, keeps: bool) -> Iterator[PieceTask]:
        """One for each segment."""
        record = record_name(self._stream.stem)
        for number in self.numbers:
            path = segment_path(self._stream, number)
            yield PieceTask(path, number, record, self._who, self._announced, tables, keeps)

    def part_of(self, pieces: Sequence[PieceRead], tables: Path | None) -> ClientRecording:
        """The record, from what reading its segments has found. Writes the table of unfinished operations."""
        part, stream = self._part, self._stream
        of_segments = [*self._missing]
        for number, piece in zip(self.numbers, pieces, strict=True):
            path = segment_path(stream, number)
            of_segments += [f"{path.name}: {defect}" for defect in piece.defects]
            part.torn[:0] = [str(path)] if piece.is_torn else []
        part.defects[:0] = of_segments
        part.understood = part.understood and not any(piece.misplaced for piece in pieces)
        part.believed = sum((piece.believed for piece in pieces), Counter[str]())
        part.last_process = max(piece.last_process for piece in pieces)
        part.groups = [group for piece in pieces for group in piece.groups]
        part.seconds = [piece.seconds for piece in pieces if piece.seconds is not None]
        part.completed = _joined([OPERATIONS.empty_table(), *(rows for piece in pieces for rows in piece.rows)])
        if ValueRuns.union(piece.written for piece in pieces).repeated:
            part.defects.append(f"{stream.name}: it wrote a value twice")
        recorded = sum((piece.recorded for piece in pieces), Counter[str]())
        _require_counts(part, self._lines, recorded, self._reserved, stream)
        part.used = ValueRuns.union(piece.used for piece in pieces)
        unused, damaged_count = converted((line for _, line in self._lines.contents if "unused" in line), UnusedValues)
        if self._who is not None:
            part.reservations, part.left = _unfinished(self._who, self._blocks, unused, part.used)
        _require_unused(part, unused, damaged_count, self._reserved)
        _add_unfinished(LOG, part, stream, tables)
        return part


def read_register_clients(
    records: Sequence[StreamRecord],
    *,
    tables: Path | None = None,
    keeps: bool = True,
    each: PieceMap = map,
    piece_rows: int = PIECE_ROWS,
) -> list[ClientRecording]:
    """Reads several records as `read_log_clients` does: first their announcements, then each segment as a task of its
    own. `piece_rows`: the operations that a task has in memory at once."""
    with _scratch(tables) as scratch:
        tasks = [
            AnnouncementsTask(record.stream.with_suffix(REGISTER.announced), scratch / f"{number}.parquet")
            for number, record in enumerate(records)
        ]
        announced = list(each(read_announcements, tasks))
        recordings = [_Register(*pair) for pair in zip(records, announced, strict=True)]
        pieces = iter(
            each(read_register_piece, [task for part in recordings for task in part.tasks(tables, keeps, piece_rows)])
        )
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


class _Register:
    """A record of registers with its announcements, with which its segments are read."""

    def __init__(self, record: StreamRecord, announced: Announcements) -> None:
        self._stream = record.stream
        self._announced = announced
        self._missing = _missing(record.stream, record.segments)
        self.numbers = [0, *(number for number in record.segments if number)]

    def tasks(self, tables: Path | None, keeps: bool, piece_rows: int) -> Iterator[RegisterPieceTask]:
        """One for each segment."""
        record = record_name(self._stream.stem)
        for number in self.numbers:
            path = segment_path(self._stream, number)
            yield RegisterPieceTask(path, number, record, self._announced, tables, keeps, piece_rows)

    def part_of(self, pieces: Sequence[RegisterPieceRead], tables: Path | None) -> ClientRecording:
        """The record, from what reading its segments has found. Writes the table of unfinished operations."""
        part = ClientRecording(REGISTERS.empty_table(), REGISTERS.empty_table())
        announced, stream, invoked = self._announced, self._stream, self._stream.with_suffix(REGISTER.announced)
        paths = [segment_path(stream, number) for number in self.numbers]
        by_path = list(zip(paths, pieces, strict=True))
        part.torn = [str(path) for path, piece in by_path if piece.is_torn]
        part.defects = [*self._missing, *(f"{path.name}: {lost}" for path, piece in by_path for lost in piece.lost)]
        _take_lines(announced.lines, invoked, part)
        part.defects += [f"{path.name}: {defect}" for path, piece in by_path for defect in piece.defects]
        _header(announced.lines, invoked, part)
        if ValueRuns.union(piece.ids for piece in pieces).repeated:
            part.defects.append(f"{stream.name}: an id is that of several rows")
        if ValueRuns.union(piece.written for piece in pieces).repeated:
            part.defects.append(f"{stream.name}: it wrote a value twice")
        recorded = sum((piece.recorded for piece in pieces), Counter[str]())
        _require_counts(part, announced.lines, recorded, invoked, stream)
        for count, problem in ((announced.wrong, "are not invocations"), (announced.again, "invoke an id again")):
            if count:
                part.understood = False
                part.defects.append(f"{invoked.name}: {count} of its lines {problem}")
        part.understood = part.understood and all(map(is_as_announced, pieces))
        part.believed = sum((piece.believed for piece in pieces), Counter[str]())
        part.last_process = max(piece.last_process for piece in pieces)
        part.completed = _joined([REGISTERS.empty_table(), *(rows for piece in pieces for rows in piece.rows)])
        if announced.header is not None:
            part.left = announced.unfinished(announced.header, ValueRuns.union(piece.done for piece in pieces))
        part.used = ValueRuns.union(piece.used for piece in pieces)
        part.seconds = [piece.seconds for piece in pieces if piece.seconds is not None]
        part.groups = [group for piece in pieces for group in piece.groups]
        _add_unfinished(REGISTER, part, self._stream, tables)
        return part


def _add_unfinished(shape: Shape, part: ClientRecording, stream: Path, tables: Path | None) -> None:
    """Adds to a record what the tables of all records need of its unfinished operations, and checks that the index has
    all its operations."""
    part.used = ValueRuns.union([part.used, ValueRuns.of(written_values(part.left, shape.written))])
    part.seconds.append(SecondCounts.of(part.left, shape))
    if tables is None:
        return
    part.groups += write_operations(shape, part.left, tables, record_name(stream.stem, "unfinished"))
    indexed, count = sum(group.rows for group in part.groups), part.believed.total() + part.left.num_rows
    if indexed != count:
        part.defects.append(f"{stream.name}: it has {count} operations, but its tables have {indexed}")


def _joined(rows: Sequence[pa.Table]) -> pa.Table:
    """All rows in one chunk."""
    return pa.concat_tables(rows).unify_dictionaries().combine_chunks()


def _missing(first_path: Path, segments: Sequence[int]) -> list[str]:
    """The missing segments before existing ones, as defects. Only the last one of several in a row. Segment 0 is
    always read, so its absence is a defect already."""
    missing_numbers = {number - 1 for number in segments if number > 1} - set(segments)
    return [f"{segment_path(first_path, number).name} is missing" for number in sorted(missing_numbers)]


def _lines_of(path: Path, part: ClientRecording) -> Lines:
    try:
        lines = read_lines(path)
    except OSError as error:
        lines = Lines(defects=(f"it cannot be read ({error.strerror})",))
    _take_lines(lines, path, part)
    return lines


def _take_lines(lines: Lines, path: Path, part: ClientRecording) -> None:
    """Adds to a record what is wrong with the lines of its announcements."""
    if lines.torn:
        part.torn.append(str(path))
        part.defects.append(f"{path.name} was torn: its tail is lost")
    part.defects += [f"{path.name}: {defect}" for defect in lines.defects]
    part.understood = not lines.defects


def _header(lines: Lines, path: Path, part: ClientRecording) -> RecordHeader | None:
    """The first line, which names the client."""
    headers, _ = converted((line for _, line in lines.contents[:1]), RecordHeader)
    if not headers:
        part.understood = False
        if not part.defects:
            part.defects.append(f"{path.name}: its first line does not say whose record it is")
        return None
    part.process, part.producer = headers[0].process, headers[0].producer
    return headers[0]


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


def _unfinished(
    header: RecordHeader, blocks: list[AnnouncedBlock], unused: list[UnusedValues], used: ValueRuns
) -> tuple[pa.Table, pa.Table]:
    """The blocks a client announced, and an info append for each announced value that has no completion."""
    if not blocks:
        return RESERVATIONS.empty_table(), OPERATIONS.empty_table()
    names = ("topic", "partition", "first", "count", "t")
    columns: dict[str, Any] = {name: [getattr(block, name) for block in blocks] for name in names}
    columns |= {"client": [header.client] * len(blocks), "process": [header.process] * len(blocks)}
    done = [(first, last) for first, last in zip(used.first.tolist(), used.last.tolist(), strict=True)]
    done += [(block_rest.unused, block_rest.unused + block_rest.count - 1) for block_rest in unused]
    bounds = np.array(done, np.int64).reshape(-1, 2)
    covered = ValueRuns.union([ValueRuns(bounds[:, 0], bounds[:, 1])])
    block, values = _uncovered(blocks, covered)
    return pa.table(columns, RESERVATIONS), _info_appends(header, blocks, block, values)


def _uncovered(
    blocks: list[AnnouncedBlock], covered: ValueRuns
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, np.dtype[np.int64]]]:
    """The values of the blocks that are not covered, in order, each with the number of its block."""
    columns = [np.empty((2, 0), np.int64)]
    for number, announced_block in enumerate(blocks):
        if covered.within(announced_block.first, announced_block.count) < announced_block.count:
            values = np.arange(announced_block.first, announced_block.first + announced_block.count)
            missing_values = values[covered.missing(values)]
            columns.append(np.stack((np.full(len(missing_values), number), missing_values)))
    block, values = np.concatenate(columns, axis=1)
    return block, values


def _info_appends(
    header: RecordHeader, blocks: list[AnnouncedBlock], block: np.ndarray[Any, Any], values: np.ndarray[Any, Any]
) -> pa.Table:
    n = len(values)
    nothing = pa.ListArray.from_arrays(pa.array(np.zeros(n + 1, np.int32)), pa.array([], pa.int64()))
    topics = [blocks[i].topic for i in block]
    columns: dict[str, Any] = {
        "process": np.full(n, header.process, np.int32),
        "session": (values >> SESSION_SHIFT).astype(np.int32),
        "client": [header.client] * n,
        "f": np.full(n, APPEND, np.int8),
        "topic": topics,
        "partition": np.array([announced_block.partition for announced_block in blocks], np.int32)[block],
        "type": np.full(n, INFO, np.int8),
        "inv": np.array([announced_block.t for announced_block in blocks], np.int64)[block],
        "ret": np.full(n, INF, np.int64),
        "offset": np.full(n, -1, np.int64),
        "hi": np.full(n, -1, np.int64),
        "lo": np.full(n, -1, np.int64),
        "value": values,
        "offsets": nothing,
        "values": nothing,
        "acks": np.full(n, ACKS_ALL, np.int8),
        "phase": [PHASE_MAIN] * n,
        "error": [UNFINISHED] * n,
    }
    return pa.table({field.name: pa.array(columns[field.name]).cast(field.type) for field in OPERATIONS}, OPERATIONS)


def _require_unused(part: ClientRecording, unused: list[UnusedValues], damaged_count: int, reserved: Path) -> None:
    """Checks that the values which the client gave back were not used. `damaged_count`: the number of damaged lines."""
    reused_count = sum(part.used.within(block_rest.unused, block_rest.count) for block_rest in unused)
    if reused_count or damaged_count:
        part.understood = False
        part.defects.append(f"{reserved.name}: it gives back {reused_count} values that were used, or none that can be")

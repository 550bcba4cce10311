"""Reads a segment of a client's operations, validates it and writes its tables: one task, in bounded memory.

Theory of operation. A task has all that its segment's rows are validated against: the client's name and numbers, and
what it announced. It works on `Shape.piece_rows` rows at a time, writes those that are believed, and returns numbers,
runs of values, defects and the index of the rows that it wrote. So the segments of all clients are independent tasks
with small results. From these, `history/record/client_reader.py` decides whether a client's record is complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from history.record.announcements import Announcements
from history.record.arrow_stream import BatchReader
from history.record.operation_tables import IndexedGroup, write_operations
from history.record.row_origin import RowOrigin
from history.record.schemas import NAMES
from history.record.shapes import Shape
from history.record.validation import RowErrors, error_sentences, valid_part, written_values
from history.seconds import SecondCounts
from history.value_runs import ValueRuns
from installation.counted import counted


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
        for number, rows in enumerate(in_pieces(reader.batches(), shape.piece_rows)):
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


def in_pieces(batches: Iterable[pa.RecordBatch], piece_rows: int) -> Iterator[pa.Table]:
    """Tables of the batches in order, each with at least `piece_rows` rows but the last one, in one chunk."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= piece_rows:
            yield _table(waiting)
            rows = 0
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

"""The announcements of a client of registers as a table: one task reads them all, others look up those that they need.

Theory of operation. A client announces each write and compare-and-set on a line of one file, with ascending ids, and
completes them in another order, in the segments of its stream. So the file of announcements is read once, line by line,
and written as a table whose row groups have ranges of ids. The task of a segment reads the row groups that may have its
ids. An announcement is identified by its position in the file, so the completed ones are a few runs of positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from history.announcements import Invocation, RecordHeader, converted
from history.checksummed_lines import LineReader, Lines
from history.errors import UNFINISHED
from history.regular_files import require_regular
from history.schemas import CAS, INF, INFO, REGISTERS
from history.value_runs import ValueRuns

GROUP_ROWS: Final = 1 << 14
"""The most announcements that are objects of Python at once."""

ANNOUNCED: Final = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("f", pa.int8(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("value", pa.int64()),
        pa.field("expected", pa.int64()),
        pa.field("inv", pa.int64(), nullable=False),
        pa.field("phase", pa.string(), nullable=False),
    ]
)
"""One row per announcement, with the fields of `Invocation`."""


@dataclass(frozen=True)
class AnnouncementsTask:
    """The file of a client's announcements, and where to write their table."""

    path: Path
    table: Path


@dataclass(frozen=True)
class AnnouncedGroup:
    """A row group of the table: the position of its first announcement, their number, and their ids' range."""

    first: int
    rows: int
    lowest: int
    highest: int


@dataclass(frozen=True)
class Announcements:
    """What was read from a client's announcements. `lines`: the file's other lines. `header`: the client's.
    `wrong`: the number of invalid announcements. `again`: the number of announcements whose id has an earlier one.
    `groups`: the row groups of `table`; without row groups, the table does not exist."""

    table: Path
    lines: Lines
    header: RecordHeader | None = None
    wrong: int = 0
    again: int = 0
    groups: tuple[AnnouncedGroup, ...] = ()

    def of_ids(self, ids: npt.NDArray[np.int64]) -> tuple[pa.Table, npt.NDArray[np.int64]]:
        """The announcements in the row groups that may have these ids, ordered by id, and their positions."""
        ordered = np.sort(ids)
        numbers = [
            group_number
            for group_number, group in enumerate(self.groups)
            if np.searchsorted(ordered, group.lowest) < np.searchsorted(ordered, group.highest, side="right")
        ]
        if not numbers:
            return ANNOUNCED.empty_table(), np.empty(0, np.int64)
        rows = self._read(numbers)
        positions = [
            np.arange(self.groups[number].first, self.groups[number].first + self.groups[number].rows)
            for number in numbers
        ]
        order = np.argsort(rows["id"].to_numpy(), kind="stable")
        return rows.take(order).combine_chunks(), np.concatenate(positions)[order]

    def unfinished(self, header: RecordHeader, done: ValueRuns) -> pa.Table:
        """The operations whose announcements are not at the positions `done`, as operations that may have happened."""
        tables = [REGISTERS.empty_table()]
        for number, group in enumerate(self.groups):
            if done.within(group.first, group.rows) < group.rows:
                missing = done.missing(np.arange(group.first, group.first + group.rows))
                tables.append(_open(header, self._read([number]).filter(pa.array(missing))))
        return pa.concat_tables(tables).unify_dictionaries().combine_chunks()

    def _read(self, groups: Sequence[int]) -> pa.Table:
        with pq.ParquetFile(require_regular(self.table)) as file:
            return file.read_row_groups(list(groups), use_threads=False)


def read_announcements(task: AnnouncementsTask) -> Announcements:
    """Reads the announcements and writes their table: one task, in bounded memory. Damage is in the result. Raises
    OSError for what it writes."""
    reader = LineReader(task.path)
    other_lines: list[tuple[int, dict[str, Any]]] = []
    last_line: tuple[int, dict[str, Any]] | None = None
    table = _Table(task.table)
    for last_line in _until_error(reader):
        if not other_lines or "id" not in last_line[1]:
            other_lines.append(last_line)
        if "id" in last_line[1]:
            table.add(last_line[1])
    table.close()
    if last_line is not None and other_lines[-1] is not last_line:
        other_lines.append(last_line)
    header, _ = converted((line for _, line in other_lines[:1]), RecordHeader)
    lines = Lines(tuple(other_lines), reader.is_torn, tuple(reader.defects))
    return Announcements(
        task.table, lines, header[0] if header else None, table.wrong, table.again(), tuple(table.groups)
    )


def _until_error(reader: LineReader) -> Iterator[tuple[int, dict[str, Any]]]:
    """The lines of a file; that it cannot be read further is a defect."""
    try:
        yield from reader.contents()
    except OSError as error:
        reader.defects.append(f"it cannot be read ({error.strerror})")


class _Table:
    """The table of announcements while it is written."""

    def __init__(self, path: Path) -> None:
        self.groups: list[AnnouncedGroup] = []
        self.wrong = 0
        self._path = path
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[Invocation] = []
        self._count = 0
        self._highest = -1
        self._is_ordered = True

    def add(self, line: dict[str, Any]) -> None:
        invocations, damaged_count = converted([line], Invocation)
        announced = [entry for entry in invocations if entry.is_announced and _is_text(entry.key + entry.phase)]
        self.wrong += damaged_count + len(invocations) - len(announced)
        for entry in announced:
            self._is_ordered = self._is_ordered and entry.id > self._highest
            self._highest = max(self._highest, entry.id)
            self._waiting.append(entry)
        if len(self._waiting) >= GROUP_ROWS:
            self._flush()

    def close(self) -> None:
        self._flush()
        if self._writer is not None:
            self._writer.close()

    def again(self) -> int:
        """How many announcements have the id of an earlier one; for a closed table."""
        if self._is_ordered:
            return 0
        ids = pq.read_table(require_regular(self._path), columns=["id"])["id"].to_numpy()
        return len(ids) - len(np.unique(ids))

    def _flush(self) -> None:
        if not self._waiting:
            return
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._path, ANNOUNCED, compression="zstd", compression_level=1)
        rows = pa.Table.from_pylist([msgspec.structs.asdict(entry) for entry in self._waiting], ANNOUNCED)
        self._writer.write_table(rows, row_group_size=len(self._waiting))
        ids = [entry.id for entry in self._waiting]
        self.groups.append(AnnouncedGroup(self._count, len(ids), min(ids), max(ids)))
        self._count += len(ids)
        self._waiting = []


def _is_text(text: str) -> bool:
    """Whether it can be stored: JSON can have halves of characters."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def compared(
    rows: pa.Table, announced: pa.Table
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """For each operation whether its id was announced, and whether it equals the announcement; and the place of the
    announcement in `announced`, which is ordered by id."""
    ids, numbers = announced["id"].to_numpy(), rows["id"].to_numpy()
    if not len(ids):
        nothing = np.zeros(len(numbers), np.bool_)
        return nothing, nothing, np.zeros(len(numbers), np.int64)
    at = np.minimum(np.searchsorted(ids, numbers), len(ids) - 1)
    is_there = ids[at] == numbers
    stated = announced.take(pa.array(at))
    value = pc.if_else(pc.equal(rows["f"], CAS), rows["new"], rows["value"])
    pairs = [(rows[name], stated[name]) for name in ("f", "key", "expected", "inv", "phase")]
    is_same = is_there.copy()
    for column, stated_column in [*pairs, (value, stated["value"])]:
        is_same &= _equal(column, stated_column)
    return is_there, is_same, at


def _equal(actual: pa.ChunkedArray, stated: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Where the values are equal, or both null."""
    if pa.types.is_dictionary(actual.type):
        actual = actual.cast(pa.string())
    same = pc.or_(pc.fill_null(pc.equal(actual, stated), False), pc.and_(pc.is_null(actual), pc.is_null(stated)))
    return np.asarray(same.to_numpy(), np.bool_)


def _open(header: RecordHeader, announced: pa.Table) -> pa.Table:
    """Announced operations without completion, with the schema `REGISTERS`."""
    n = announced.num_rows
    is_cas = pc.equal(announced["f"], CAS)
    nothing = pa.nulls(n, pa.int64())
    columns: dict[str, Any] = {
        **{name: announced[name] for name in ("id", "f", "key", "inv", "expected", "phase")},
        "process": np.full(n, header.process, np.int32),
        "client": [header.client] * n,
        "type": np.full(n, INFO, np.int8),
        "ret": np.full(n, INF, np.int64),
        "value": pc.if_else(is_cas, nothing, announced["value"]),
        "new": pc.if_else(is_cas, announced["value"], nothing),
        "error": [UNFINISHED] * n,
        "endpoint": [""] * n,
    }
    return pa.table({field.name: columns[field.name] for field in REGISTERS}).cast(REGISTERS)

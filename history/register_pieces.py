"""Reads a segment of a client's operations on registers, validates it and writes its tables: one task, in bounded
memory. It works as `history/log_pieces.py`; what operations are validated against are the client's announcements
(`history/register_announcements.py`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa

from history.arrow_stream import BatchReader
from history.log_pieces import in_pieces, kinds_of, last_process_of
from history.operation_tables import IndexedGroup, write_operations
from history.register_announcements import Announcements, compared
from history.registers import with_endpoints
from history.row_origin import RowOrigin
from history.schemas import READ, REGISTERS, REGISTERS_WITHOUT_ENDPOINTS
from history.seconds import SecondCounts
from history.shapes import REGISTER
from history.validation import RowErrors, error_sentences, valid_registers, written_values
from history.value_runs import ValueRuns
from installation.counted import counted

PIECE_ROWS: Final = 1 << 17
"""The operations that a task has in memory at once."""


@dataclass(frozen=True)
class RegisterPieceTask:
    """A segment to read. `announced`: the announcements of its client. `tables`: where to write, None: nowhere.
    `record`: how the names of its files start. `keeps`: whether the result has the rows. `piece_rows`: how many
    operations are in memory at once."""

    path: Path
    segment: int
    record: str
    announced: Announcements
    tables: Path | None = None
    keeps: bool = True
    piece_rows: int = PIECE_ROWS


@dataclass
class RegisterPieceRead:
    """The content of a segment. `recorded`: its valid and invalid rows by kind; `believed`: those that are valid and,
    if they write, equal to their announcement. `ids`: of valid rows; `written`: the values of valid rows, `used`: of
    believed ones; `done`: the positions of the announcements that believed rows complete. `lost`: why rows are missing,
    `defects`: what the existing ones lack, as sentences. `numbers`: counts of rows that are not as announced."""

    recorded: Counter[str] = field(default_factory=Counter)
    believed: Counter[str] = field(default_factory=Counter)
    ids: ValueRuns = field(default_factory=ValueRuns)
    written: ValueRuns = field(default_factory=ValueRuns)
    used: ValueRuns = field(default_factory=ValueRuns)
    done: ValueRuns = field(default_factory=ValueRuns)
    lost: list[str] = field(default_factory=list)
    defects: list[str] = field(default_factory=list)
    numbers: Counter[str] = field(default_factory=Counter)
    is_torn: bool = False
    last_process: int = -1
    rows: list[pa.Table] = field(default_factory=list)
    groups: list[IndexedGroup] = field(default_factory=list)
    seconds: SecondCounts | None = None


def read_register_piece(task: RegisterPieceTask) -> RegisterPieceRead:
    """Reads a segment. All damage is a defect in the result. Raises OSError when its tables cannot be written."""
    return _Piece(task).read()


class _Piece:
    """A segment during reading."""

    def __init__(self, task: RegisterPieceTask) -> None:
        self._task = task
        self._found = RegisterPieceRead()
        self._invalid: RowErrors = {}
        self._runs: dict[str, list[ValueRuns]] = {name: [] for name in ("ids", "written", "used", "done")}
        self._seconds: list[SecondCounts] = []
        self._origin = RowOrigin(task.announced.header)

    def read(self) -> RegisterPieceRead:
        task, reading = self._task, self._found
        try:
            reader = BatchReader(task.path, REGISTERS, task.segment, earlier=REGISTERS_WITHOUT_ENDPOINTS)
        except OSError as error:
            reading.lost.append(f"it cannot be read ({error.strerror})")
            return reading
        rows_before = 0
        for number, rows in enumerate(in_pieces(reader.batches(), task.piece_rows)):
            self._take(with_endpoints(rows), number, rows_before)
            rows_before += rows.num_rows
        reading.is_torn = reader.is_torn
        reading.lost += reader.defects
        reading.defects += [*error_sentences(self._invalid), *self._complaints()]
        for name, runs in self._runs.items():
            setattr(reading, name, ValueRuns.union(runs))
        reading.seconds = SecondCounts.union(self._seconds)
        return reading

    def _take(self, rows: pa.Table, number: int, rows_before: int) -> None:
        """`rows_before`: the number of rows of the segment before these."""
        task, reading = self._task, self._found
        reading.recorded += kinds_of(rows)
        rows = valid_registers(rows, self._invalid, rows_before)
        written = written_values(rows, REGISTER.written)
        self._origin.take(rows, written)
        self._runs["ids"].append(ValueRuns.of(rows["id"].to_numpy()))
        self._runs["written"].append(ValueRuns.of(written))
        rows = self._believed(rows)
        self._runs["used"].append(ValueRuns.of(written_values(rows, REGISTER.written)))
        reading.believed += kinds_of(rows)
        reading.last_process = max(reading.last_process, last_process_of(rows))
        self._seconds.append(SecondCounts.of(rows, REGISTER))
        if task.keeps:
            reading.rows.append(rows)
        if task.tables is not None:
            name = f"{task.record}-{task.segment}" + (f".{number}" if number else "")
            reading.groups += write_operations(REGISTER, rows, task.tables, name)

    def _believed(self, rows: pa.Table) -> pa.Table:
        """The reads, and the writes and compare-and-sets that equal their announcement. Otherwise the row or the
        announcements are damaged: the announced operation stays open, and it is unknown what else may have been
        sent."""
        announced, positions = self._task.announced.of_ids(rows["id"].to_numpy())
        is_there, is_same, at = compared(rows, announced)
        is_never = ~is_there & (rows["f"].to_numpy() != READ)
        self._found.numbers["never"] += int(is_never.sum())
        self._found.numbers["otherwise"] += int((is_there & ~is_same).sum())
        self._runs["done"].append(ValueRuns.of(positions[at[is_same]]))
        believed = ~is_never & ~(is_there & ~is_same)
        return rows if believed.all() else rows.filter(pa.array(believed))

    def _complaints(self) -> Iterator[str]:
        yield from self._origin.defects()
        numbers = self._found.numbers
        if numbers["never"]:
            yield f"it has {counted(numbers['never'], 'operation')} without announcement"
        if numbers["otherwise"]:
            yield f"it has {counted(numbers['otherwise'], 'operation')} with a different announcement"


def is_as_announced(piece: RegisterPieceRead) -> bool:
    """Whether each writing row equals its announcement."""
    return not (piece.numbers["never"] or piece.numbers["otherwise"])

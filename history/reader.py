"""Reads a run's record, complete or not.

A run that was killed reads like any other: torn tails are dropped, and every value that a producer announced without
completing it becomes an append that may have happened. Missing or damaged parts are reported as defects of the part,
and everything else is read.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from history.client_reader import PieceMap
from history.errors import HistoryError
from history.journal import ASSIGNMENT, FILE_NAME, REASSIGNED
from history.journal_reader import read_journal
from history.operation_tables import IndexedGroup, read_index, read_operations, read_parts, remove_tables, write_index
from history.records import ClientRecord, read_clients
from history.register_tables import (
    KeyGroup,
    read_register_index,
    read_register_parts,
    read_registers,
    remove_registers,
    write_register_index,
)
from history.schemas import OPERATIONS, REGISTERS, RESERVATIONS
from history.seconds import SecondCounts, write_seconds
from history.service_events import FatalLine, ServiceExit, fatal_lines, service_exits
from history.timeline import FaultSpan, RunClock, RunPhase, fault_spans, phases_of
from history.value_runs import ValueRuns

PART_ROWS: Final = 1 << 20


@dataclass(frozen=True)
class History:
    """A run's record.

    `recorded`: the operations on logs, with the schema `history.schemas.OPERATIONS`, or the directory of the tables
    that have them; `recorded_registers`: the same of the operations on registers, with `REGISTERS`. `unfinished` rows
    of both are info operations for what was announced and never completed. `written`: the values that operations on
    registers write. `torn` names the files whose tail was lost. `journal` has the valid lines, `journal_defects` the
    errors of the others; `records` has for each client whether its record is complete.
    """

    recorded: pa.Table | Path
    reservations: pa.Table
    journal: list[dict[str, Any]]
    unfinished: int = 0
    torn: list[str] = field(default_factory=list)
    recorded_registers: pa.Table | Path = field(default_factory=REGISTERS.empty_table)
    written: ValueRuns = field(default_factory=ValueRuns)
    journal_defects: tuple[str, ...] = ()
    records: tuple[ClientRecord, ...] = ()

    @cached_property
    def operations(self) -> pa.Table:
        """All operations on logs. Raises TablesError if they are read from tables that have changed."""
        return read_operations(self.recorded) if isinstance(self.recorded, Path) else self.recorded

    @property
    def size(self) -> int:
        """The number of operations on logs. Raises as `operations`."""
        return sum(group.rows for group in self._index) if self._index is not None else self.operations.num_rows

    @property
    def places(self) -> set[tuple[str, int]]:
        """Topic and partition of the logs that have operations. Raises as `operations`."""
        if self._index is not None:
            return {(group.topic, group.partition) for group in self._index}
        rows = self.operations.group_by(["topic", "partition"], use_threads=False).aggregate([]).to_pylist()
        return {(row["topic"], row["partition"]) for row in rows}

    def parts(self, *columns: str) -> Iterator[pa.Table]:
        """These columns of all operations on logs, in parts of at most 2^20 rows: a large run is not in memory at once.
        No part is empty. Raises as `operations`."""
        if isinstance(self.recorded, Path) and self._index is not None:
            yield from read_parts(self.recorded, self._index, columns)
            return
        rows = self.operations.select(columns)
        yield from (rows.slice(start, PART_ROWS) for start in range(0, rows.num_rows, PART_ROWS))

    @cached_property
    def registers(self) -> pa.Table:
        """All operations on registers. Raises as `operations`."""
        source = self.recorded_registers
        return read_registers(source) if isinstance(source, Path) else source

    @property
    def register_size(self) -> int:
        """The number of operations on registers. Raises as `operations`."""
        return sum(group.rows for group in self._keys) if self._keys is not None else self.registers.num_rows

    def register_parts(self, *columns: str) -> Iterator[pa.Table]:
        """These columns of all operations on registers, part by part as `parts`. Raises as `operations`."""
        if isinstance(self.recorded_registers, Path) and self._keys is not None:
            yield from read_register_parts(self.recorded_registers, self._keys, columns)
            return
        rows = self.registers.select(columns)
        yield from (rows.slice(start, PART_ROWS) for start in range(0, rows.num_rows, PART_ROWS))

    @cached_property
    def _keys(self) -> list[KeyGroup] | None:
        source = self.recorded_registers
        return read_register_index(source) if isinstance(source, Path) else None

    @cached_property
    def _index(self) -> list[IndexedGroup] | None:
        return read_index(self.recorded) if isinstance(self.recorded, Path) else None

    @property
    def defects(self) -> Iterator[str]:
        """Why the record is incomplete, as sentences; empty if it is complete."""
        yield from self.journal_defects
        for record in self.records:
            yield from record.defects

    @property
    def assignment(self) -> tuple[tuple[int, ...], ...] | None:
        """Each partition's replicas by node number, as decided when the topic was created; None if that is not
        recorded."""
        for line in self.journal:
            if line["event"] == ASSIGNMENT:
                return tuple(tuple(ids) for ids in line["replicas"])
        return None

    @property
    def reassigned(self) -> dict[int, tuple[int, ...]]:
        """The replicas, by node number, of the partitions that the run gave other replicas; the last ones count."""
        lines = (line for line in self.journal if line["event"] == REASSIGNED)
        return {line["partition"]: tuple(line["replicas"]) for line in lines}

    @cached_property
    def clock(self) -> RunClock:
        """The run's zero, by its journal; of a run without one, the first operation."""
        clock = RunClock.of_journal(self.journal)
        if clock != RunClock():
            return clock
        parts = itertools.chain(self.parts("inv"), self.register_parts("inv"))
        return RunClock(min((int(part["inv"].to_numpy().min()) for part in parts), default=0))

    @cached_property
    def faults(self) -> tuple[FaultSpan, ...]:
        """The faults in the order of their invocations."""
        return fault_spans(self.journal, self.clock)

    @property
    def phases(self) -> tuple[RunPhase, ...]:
        """The phases of the run in order."""
        return phases_of(self.journal)

    @property
    def phase_names(self) -> tuple[str, ...]:
        return tuple(phase.name for phase in self.phases)

    @property
    def service_exits(self) -> list[ServiceExit]:
        """The exits of the system's processes that the run did not cause."""
        return service_exits(self.journal)

    @property
    def fatal_lines(self) -> list[FatalLine]:
        """The lines that the system's processes logged and that the system declares fatal."""
        return fatal_lines(self.journal)

    def may_have_written(self, value: int) -> bool:
        """Whether an unrecorded value may have been written, by a client whose record is incomplete. A read of such a
        value proves nothing."""
        return bool(self.journal_defects) or any(record.may_have_written(value) for record in self.records)


MOST_BYTES_KEPT: Final = 16 << 20
"""The most bytes of clients' streams whose rows stay in memory: about a million operations."""


BYTES_PER_OPERATION: Final = 13
"""Of a client's stream, as `python -m benchmarks.ingest` records it."""


def read_run(run: Path | str, *, tables: Path | None = None, each: PieceMap = map) -> History:
    """Reads `<run>/history/`. Raises HistoryError when there is no such directory; all other damage is a defect in the
    result.

    With `tables`, writes the operations there, with their indexes and the table of seconds, in place of older ones; the
    operations of a large run are then read from there when they are first used. `each` maps the reading of a segment of
    a log's record to the segments, and that of a record of registers to the records, for instance in several
    processes."""
    directory = Path(run) / "history"
    if not directory.is_dir():
        raise HistoryError(f"{directory} does not exist: {run} is not a run, or it stopped before its first operation")
    read = read_journal(directory / FILE_NAME)
    journal = list(read.lines)
    keeps = tables is None or _bytes_of(directory / "operations") <= MOST_BYTES_KEPT
    if tables is not None:
        remove_tables(tables)
        remove_registers(tables)
    clients = read_clients(directory / "operations", journal, tables=tables, keeps=keeps, each=each)
    if tables is not None:
        write_index(clients.groups, tables)
        write_register_index(clients.key_groups, tables)
        write_seconds(SecondCounts.union(clients.seconds), tables)
    # Completed rows first, so that the unfinished ones are the table's tail.
    operations = _whole([*clients.operations, *clients.left_operations], OPERATIONS) if keeps else None
    registers = _whole([*clients.registers, *clients.left_registers], REGISTERS) if keeps else None
    return History(
        recorded=tables if operations is None and tables is not None else operations,
        reservations=pa.concat_tables([*clients.reservations, RESERVATIONS.empty_table()]),
        journal=journal,
        unfinished=sum(table.num_rows for table in (*clients.left_operations, *clients.left_registers)),
        torn=[*clients.torn, *([str(directory / FILE_NAME)] if read.is_torn else [])],
        recorded_registers=tables if registers is None and tables is not None else registers,
        written=ValueRuns.union(clients.written),
        journal_defects=read.defects,
        records=tuple(clients.records),
    )


def _bytes_of(directory: Path) -> int:
    return sum(path.lstat().st_size for path in directory.glob("*"))


def estimated_operations(run: Path) -> int:
    """About how many operations the clients of a run recorded, by the size of their files."""
    return _bytes_of(run / "history" / "operations") // BYTES_PER_OPERATION


def _whole(tables: list[pa.Table], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables([*tables, schema.empty_table()]).unify_dictionaries().combine_chunks()

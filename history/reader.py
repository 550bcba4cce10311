"""Reads a run's record, complete or not.

A run that was killed reads like any other: torn tails are dropped, and every value that a producer announced without
completing it becomes an append that may have happened. Missing or damaged parts are reported as defects of the part,
and everything else is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from history.errors import HistoryError
from history.journal.reader import read_journal
from history.journal.service_events import FatalLine, ServiceExit, fatal_lines, service_exits
from history.journal.timeline import FaultSpan, RunClock, RunPhase, fault_spans, phases_of
from history.journal.writer import ASSIGNMENT, FILE_NAME, REASSIGNED
from history.record.client_reader import PieceMap
from history.record.operation_tables import remove_tables, write_index
from history.record.operations import Operations
from history.record.records import ClientRecord, Clients, read_clients
from history.record.shapes import LOG, REGISTER, SHAPES, Shape
from history.seconds import SecondCounts, write_seconds
from history.value_runs import ValueRuns


@dataclass(frozen=True)
class History:
    """A run's record.

    `recorded`: the operations of each shape. `unfinished` of them are info operations for what was announced and never
    completed. `written`: the values that operations on registers write. `torn` names the files whose tail was lost.
    `journal` has the valid lines, `journal_defects` the errors of the others; `records` has for each client whether its
    record is complete.
    """

    recorded: tuple[Operations, ...]
    journal: list[dict[str, Any]]
    unfinished: int = 0
    torn: list[str] = field(default_factory=list)
    written: ValueRuns = field(default_factory=ValueRuns)
    journal_defects: tuple[str, ...] = ()
    records: tuple[ClientRecord, ...] = ()

    def of(self, shape: Shape) -> Operations:
        """The operations of a shape."""
        nothing = Operations(shape, shape.columns.empty_table())
        return next((operations for operations in self.recorded if operations.shape is shape), nothing)

    @property
    def logs(self) -> Operations:
        return self.of(LOG)

    @property
    def registers(self) -> Operations:
        return self.of(REGISTER)

    @property
    def size(self) -> int:
        """The number of all operations. Raises TablesError as `Operations`."""
        return sum(operations.size for operations in self.recorded)

    def parts(self, *columns: str) -> Iterator[pa.Table]:
        """These common columns of the operations of all shapes, part by part. Raises TablesError as `Operations`."""
        for operations in self.recorded:
            yield from operations.parts(*columns)

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
        return RunClock(min((int(part["inv"].to_numpy().min()) for part in self.parts("inv")), default=0))

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
    """Reads `<run>/history/`. Raises HistoryError if the directory is missing; all other damage is a defect in the
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
    shapes = SHAPES.values()
    if tables is not None:
        for shape in shapes:
            remove_tables(shape, tables)
    clients = read_clients(directory / "operations", journal, tables=tables, keeps=keeps, each=each)
    if tables is not None:
        for shape in shapes:
            if clients.groups[shape] or not shape.is_optional:
                write_index(shape, clients.groups[shape], tables)
        write_seconds(SecondCounts.union(clients.seconds), tables)
    return History(
        recorded=tuple(Operations(shape, _rows(shape, clients) if keeps or not tables else tables) for shape in shapes),
        journal=journal,
        unfinished=sum(rows.num_rows for shape in shapes for rows in clients.left[shape]),
        torn=[*clients.torn, *([str(directory / FILE_NAME)] if read.is_torn else [])],
        written=ValueRuns.union(clients.written[REGISTER]),
        journal_defects=read.defects,
        records=tuple(clients.records),
    )


def _rows(shape: Shape, clients: Clients) -> pa.Table:
    """Completed rows first, so that the unfinished ones are the table's tail."""
    rows = [*clients.completed[shape], *clients.left[shape], shape.columns.empty_table()]
    return pa.concat_tables(rows).unify_dictionaries().combine_chunks()


def _bytes_of(directory: Path) -> int:
    return sum(path.lstat().st_size for path in directory.glob("*"))


def estimated_operations(run: Path) -> int:
    """About how many operations the clients of a run recorded, by the size of their files."""
    return _bytes_of(run / "history" / "operations") // BYTES_PER_OPERATION

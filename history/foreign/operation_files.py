"""Writes the operations of a foreign history while it is read, so that no process holds all of them.

    operations.parquet   the operations in the order of the file
    tables/              the same, as an analysis of a run writes them: by partition, or ordered by key, with an index

A part of at least `PART_ROWS` operations is a row group of the first file and a piece of the tables.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from history.foreign.history import INITIAL_PROCESS, ForeignHistory
from history.record.operation_tables import IndexedGroup, write_index, write_operations
from history.record.schemas import MISMATCH, OK
from history.record.shapes import Shape

OPERATIONS_FILE: Final = "operations.parquet"
TABLES: Final = "tables"
PART_ROWS: Final = 1 << 17


class OperationFiles:
    """The files of one history of the given shape, below a directory."""

    def __init__(self, directory: Path, shape: Shape) -> None:
        self.rows = 0
        self._directory = directory
        self._shape = shape
        self._writer = pq.ParquetWriter(directory / OPERATIONS_FILE, shape.columns, compression="zstd")
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._parts = 0
        self._groups: list[IndexedGroup] = []
        self._start: int | None = None
        self._is_answered = False

    def add(self, rows: pa.Table) -> None:
        """Takes operations with the columns of the shape."""
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        if self._waiting_rows >= PART_ROWS:
            self._write()

    def history(
        self, names: Mapping[int, str], not_judged: Sequence[str], doubts: Sequence[str] = ()
    ) -> ForeignHistory:
        """The history of all operations that were added. Ends the files."""
        if self._waiting_rows:
            self._write()
        self._writer.close()
        write_index(self._shape, self._groups, self._directory / TABLES)
        described = tuple(not_judged), tuple(doubts)
        return ForeignHistory(
            self._shape.name, self._directory, self.rows, self._start or 0, self._is_answered, names, *described
        )

    def _write(self) -> None:
        rows = pa.concat_tables(self._waiting).unify_dictionaries().combine_chunks()
        self._waiting, self._waiting_rows = [], 0
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        self._groups += write_operations(self._shape, rows, self._directory / TABLES, f"history-{self._parts:06d}")
        self._parts += 1
        self.rows += rows.num_rows
        earliest = int(pc.min(rows["inv"]).as_py())
        self._start = earliest if self._start is None else min(self._start, earliest)
        has_shown = pc.or_kleene(pc.equal(rows["type"], OK), pc.equal(rows["error"], MISMATCH))
        is_answer = pc.and_(has_shown, pc.not_equal(rows["process"], INITIAL_PROCESS))
        self._is_answered |= bool(pc.any(is_answer).as_py())

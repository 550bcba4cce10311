"""The operations of a shape, in memory or in tables, read part by part: a large run is not in memory at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from history.operation_tables import PART_ROWS, IndexedGroup, TablesError, read_index, read_parts
from history.shapes import Shape


@dataclass(frozen=True)
class Operations:
    """The operations of a shape. `source`: rows with its columns, or the directory of the tables that have them. Each
    method raises TablesError if the tables are damaged or missing."""

    shape: Shape
    source: pa.Table | Path

    @cached_property
    def rows(self) -> pa.Table:
        """All operations, with the columns of the shape."""
        if not isinstance(self.source, Path):
            return self.source
        columns = self.shape.columns
        parts = [part.cast(columns) for part in self.parts(*columns.names)]
        return pa.concat_tables([columns.empty_table(), *parts]).unify_dictionaries().combine_chunks()

    @property
    def is_whole(self) -> bool:
        """Whether the tables are as their index states."""
        try:
            return self.index is not None
        except TablesError:
            return False

    @property
    def size(self) -> int:
        """The number of operations."""
        return sum(group.rows for group in self.index) if isinstance(self.source, Path) else self.source.num_rows

    @property
    def keys(self) -> set[tuple[Any, ...]]:
        """The values of the shape's key columns that occur."""
        if isinstance(self.source, Path):
            return {group.key for group in self.index}
        names = self.shape.key.names
        rows = self.source.group_by(names, use_threads=False).aggregate([]).to_pylist()
        return {tuple(row[name] for name in names) for row in rows}

    def parts(self, *columns: str) -> Iterator[pa.Table]:
        """These columns of all operations, in parts of at most 2^17 rows. No part is empty."""
        if isinstance(self.source, Path):
            yield from read_parts(self.shape, self.source, self.index, columns)
            return
        rows = self.source.select(columns)
        yield from (rows.slice(start, PART_ROWS) for start in range(0, rows.num_rows, PART_ROWS))

    @cached_property
    def index(self) -> list[IndexedGroup]:
        """The row groups of the tables; none of operations in memory."""
        return read_index(self.shape, self.source) if isinstance(self.source, Path) else []

"""The operations of a shape, in memory or in tables, read part by part: a large run is not in memory at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from history.record.operation_tables import PART_ROWS, IndexedGroup, TablesError, read_index, read_parts
from history.record.shapes import SHAPES, Shape


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


SHAPE: Final = "shape"


def _of_all_shapes() -> pa.Schema:
    """The columns of all shapes; texts are not repeated by codes, so that every program reads them."""
    types = {column.name: column.type for shape in SHAPES.values() for column in shape.stored}
    texts = {name: pa.string() if pa.types.is_dictionary(kind) else kind for name, kind in types.items()}
    return pa.schema([(SHAPE, pa.string()), *texts.items()])


OF_ALL_SHAPES: Final = _of_all_shapes()
"""One row for each operation, of the shape that `shape` names. The columns of other shapes are null."""


def parts_of_all_shapes(tables: Path, columns: Sequence[str]) -> Iterator[pa.Table]:
    """These columns of `OF_ALL_SHAPES`, of all operations in tables. Raises TablesError if they are damaged or
    missing."""
    for shape in SHAPES.values():
        # A part without columns would have no rows.
        stored = dict.fromkeys(["type", *(name for name in columns if name in shape.stored.names)])
        for part in Operations(shape, tables).parts(*stored):
            yield _with_all_columns(part, shape, columns)


def _with_all_columns(part: pa.Table, shape: Shape, columns: Sequence[str]) -> pa.Table:
    schema = pa.schema([OF_ALL_SHAPES.field(name) for name in columns])
    arrays = [
        part[column.name].cast(column.type)
        if column.name in part.column_names
        else pa.repeat(pa.scalar(shape.name if column.name == SHAPE else None, column.type), part.num_rows)
        for column in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def files_of_all_shapes(tables: Path) -> dict[Path, Shape]:
    """The files with operations, each with the shape of its rows. Raises TablesError if the tables are damaged or
    missing."""
    return {tables / group.path: shape for shape in SHAPES.values() for group in Operations(shape, tables).index}

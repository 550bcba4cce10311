"""The operations of a run as Parquet: for each shape a file for each key and piece of a record, and an index.

    <run>/tables/operations/topic=<topic>/partition=<partition>/<client>-<session>-<segment>.parquet
    <run>/tables/index.parquet
    <run>/tables/registers/<client>-<session>-<segment>.parquet
    <run>/tables/registers.parquet
    <run>/tables/calls/<client>-<session>-<segment>.parquet
    <run>/tables/calls.parquet

Theory of operation. A piece of a record is a segment of a client's stream, or a part of it. Nothing is moved between
pieces, so each piece is a task of its own in bounded memory. The index has for each row group the range of the places
that its rows speak of: offsets of a log, or keys. So a reader of some places reads only the row groups that may speak
of them. What differs between shapes is declared in `history/record/shapes.py`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from history.record.shapes import Shape
from history.regular_files import remove, require_regular

PART_ROWS: Final = 1 << 17
"""What readers of all operations have in memory at once."""


class TablesError(ValueError):
    """The tables of a run are not what its analysis wrote; the message names the file and what is wrong."""


@dataclass(frozen=True)
class IndexedGroup:
    """A row group of a file. `key`: the values of the shape's key columns; `path`: below `tables/`; `lowest`,
    `highest`: the places that its rows speak of."""

    key: tuple[Any, ...]
    path: str
    row_group: int
    rows: int
    lowest: Any
    highest: Any


def index_schema(shape: Shape) -> pa.Schema:
    """One row per row group: the columns of the key, then the other fields of `IndexedGroup`."""
    types = {"path": pa.string(), "row_group": pa.int64(), "rows": pa.int64()}
    types |= {"lowest": shape.place, "highest": shape.place}
    return pa.schema([*shape.key, *(pa.field(name, kind, nullable=False) for name, kind in types.items())])


def record_name(record: str, part: str = "") -> str:
    """How file names start that belong to a client's record, or to a `part` of it that is not a stream.

    Characters that file names or URLs treat specially are replaced, among them "+", so no two records share a name."""
    return quote(record, safe="") + (f"+{part}" if part else "")


def table_files(shape: Shape, tables: Path) -> list[Path]:
    """The files with operations of the shape, in the order of their names."""
    return sorted((tables / shape.folder).glob("/".join([*(f"{name}=*" for name in shape.key.names), "*.parquet"])))


def has_tables(shape: Shape, tables: Path) -> bool:
    """Whether there is an index or a file of the shape."""
    return (tables / shape.index).exists() or bool(table_files(shape, tables))


def remove_tables(shape: Shape, tables: Path) -> None:
    """Remove the operations of the shape and their index, whatever has their names."""
    remove(tables / shape.folder)
    remove(tables / shape.index)


def write_operations(shape: Shape, rows: pa.Table, tables: Path, piece: str) -> list[IndexedGroup]:
    """Write a piece of a record, with the shape's columns, to files `<piece>.parquet`; none without rows."""
    groups: list[IndexedGroup] = []
    for key, rows_of_key in by_key(shape, rows):
        folder = _folder(shape, tables, key)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{piece}.parquet"
        ordered = _ordered(shape, rows_of_key)
        rising = {column.partition(".")[0] for column in shape.rising}
        writer = pq.ParquetWriter(
            path,
            shape.stored,
            compression="zstd",
            compression_level=1,
            use_dictionary=[name for name in shape.stored.names if name not in rising],
            column_encoding=dict.fromkeys(shape.rising, "DELTA_BINARY_PACKED"),
        )
        with writer:
            for number, (start, stop) in enumerate(pairwise(_bounds(shape, ordered))):
                part = ordered.slice(start, stop - start)
                writer.write_table(part, row_group_size=part.num_rows)
                name = path.relative_to(tables).as_posix()
                groups.append(IndexedGroup(key, name, number, part.num_rows, *shape.reach(part)))
    return groups


def _folder(shape: Shape, tables: Path, key: Sequence[Any]) -> Path:
    names = (f"{name}={quote(str(value), safe='')}" for name, value in zip(shape.key.names, key, strict=True))
    return tables.joinpath(shape.folder, *names)


def _ordered(shape: Shape, rows: pa.Table) -> pa.Table:
    rows = rows.cast(shape.stored).unify_dictionaries()
    return (
        rows.sort_by([(name, "ascending") for name in shape.sorted_by]) if shape.sorted_by else rows
    ).combine_chunks()


def _bounds(shape: Shape, rows: pa.Table) -> list[int]:
    """Where row groups start, and where the last one ends: in a sorted file at the first end of a value behind
    `least_rows` rows, and after `most_rows` rows at the latest."""
    bounds, ends = [0], np.array([rows.num_rows], np.int64)
    if shape.sorted_by:
        values = pc.run_end_encode(rows[shape.sorted_by[0]].combine_chunks())
        ends = np.asarray(values.run_ends.to_numpy(zero_copy_only=False), np.int64)
    while bounds[-1] < rows.num_rows:
        at = int(np.searchsorted(ends, bounds[-1] + shape.least_rows))
        bounds.append(min(int(ends[min(at, len(ends) - 1)]), bounds[-1] + shape.most_rows))
    return bounds


def write_index(shape: Shape, groups: Iterable[IndexedGroup], tables: Path) -> None:
    """Write the index, ordered by key, file and row group."""
    schema = index_schema(shape)
    ordered = sorted(groups, key=lambda group: (group.key, group.path, group.row_group))
    rows = [(*group.key, group.path, group.row_group, group.rows, group.lowest, group.highest) for group in ordered]
    tables.mkdir(parents=True, exist_ok=True)
    content = pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)
    pq.write_table(content, tables / shape.index)


def read_index(shape: Shape, tables: Path) -> list[IndexedGroup]:
    """The row groups of the index in its order. Raises TablesError when it is missing, torn or not an index, and when
    it disagrees with the files: each must exist and have the index's row groups and rows, and no other file may exist.
    A row group with a lowest place above its highest one would be in no task."""
    if shape.is_optional and not has_tables(shape, tables):
        return []
    schema = index_schema(shape)
    file = _opened(tables, shape.index)
    if not set(schema) <= set(file.schema_arrow):  # earlier versions wrote more columns
        raise _other_columns(shape.index)
    try:
        columns = [column.to_pylist() for column in file.read(columns=schema.names).select(schema.names).columns]
    except (OSError, ValueError, pa.ArrowException) as error:  # ValueError: a text that is not UTF-8
        raise _damaged(shape.index, error) from error
    groups: list[IndexedGroup] = []
    by_path: dict[str, list[IndexedGroup]] = {}
    width = len(shape.key)
    for row in zip(*columns, strict=True):
        group = IndexedGroup(row[:width], *row[width:])
        if group.lowest > group.highest and (group.lowest, group.highest) != shape.nowhere:
            raise TablesError(f"tables/{shape.index} has no range of places for {group.path}")
        groups.append(group)
        by_path.setdefault(group.path, []).append(group)
    names = {path.relative_to(tables).as_posix() for path in table_files(shape, tables)}
    for name in sorted(names | by_path.keys()):
        if name not in by_path:
            raise TablesError(f"tables/{name} is not in tables/{shape.index}")
        _require_row_groups(shape, tables, name, by_path[name])
    return groups


def _require_row_groups(shape: Shape, tables: Path, name: str, groups: Sequence[IndexedGroup]) -> None:
    """Checks that a file has the row groups that the index states, and that it is in the folder of their key."""
    metadata = open_table(tables, name, shape.stored).metadata
    row_counts = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    if [(group.row_group, group.rows) for group in groups] != list(enumerate(row_counts)):
        raise TablesError(
            f"tables/{name} has row groups of {row_counts} rows, but tables/{shape.index} says "
            f"{[group.rows for group in groups]}: "
            "one of them is not of this analysis"
        )
    if name.rpartition("/")[0] != _folder(shape, Path(), groups[0].key).as_posix():
        key = "-".join(map(str, groups[0].key))
        raise TablesError(f"tables/{shape.index} has tables/{name} as a file of {key}")


def read_parts(
    shape: Shape, tables: Path, groups: Iterable[IndexedGroup], columns: Sequence[str]
) -> Iterator[pa.Table]:
    """These columns of the row groups in order, in parts of at most PART_ROWS rows, or of one row group. Raises
    TablesError for a file that cannot be read."""
    for path, of_file in groupby(groups, key=lambda group: group.path):
        with open_table(tables, path, shape.stored) as file:
            for numbers in _joined(of_file):
                try:
                    part = file.read_row_groups(numbers, columns=list(columns), use_threads=False)
                except (OSError, pa.ArrowException) as error:
                    raise _damaged(path, error) from error
                yield part.select(columns).combine_chunks()


def _joined(groups: Iterable[IndexedGroup]) -> Iterator[list[int]]:
    """The numbers of consecutive row groups, in lists of at most PART_ROWS rows or of one row group."""
    numbers: list[int] = []
    rows = 0
    for group in groups:
        if numbers and rows + group.rows > PART_ROWS:
            yield numbers
            numbers, rows = [], 0
        numbers.append(group.row_group)
        rows += group.rows
    if numbers:
        yield numbers


def by_key(shape: Shape, rows: pa.Table) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """The rows of each key in their order. The columns of the key must have integers of at least 0, or entries of a
    dictionary."""
    if not rows.num_rows:
        return
    rows = rows.unify_dictionaries().combine_chunks()
    code = np.zeros(rows.num_rows, np.int64)
    for name in shape.key.names:
        numbers = _numbers(rows[name].chunk(0))
        code = code * (int(numbers.max()) + 1) + numbers
    if (code == code[0]).all():
        yield _key_of(shape, rows), rows
        return
    order = np.argsort(code, kind="stable")
    ordered, code = rows.take(pa.array(order)).combine_chunks(), code[order]
    bounds = np.flatnonzero(np.concatenate(([True], code[1:] != code[:-1], [True])))
    for start, stop in pairwise(bounds.tolist()):
        part = ordered.slice(start, stop - start)
        yield _key_of(shape, part), part


def _numbers(column: pa.Array) -> npt.NDArray[np.int64]:
    numbers = column.indices if pa.types.is_dictionary(column.type) else column
    return np.asarray(numbers.to_numpy(), np.int64)


def _key_of(shape: Shape, rows: pa.Table) -> tuple[Any, ...]:
    return tuple(rows[name][0].as_py() for name in shape.key.names)


def open_table(tables: Path, name: str, schema: pa.Schema) -> Any:
    """An open Parquet file of `tables` that has this schema. Raises TablesError."""
    file = _opened(tables, name)
    if not file.schema_arrow.equals(schema):
        raise _other_columns(name)
    return file


def _opened(tables: Path, name: str) -> Any:
    try:
        return pq.ParquetFile(require_regular(tables / name))
    except FileNotFoundError as error:
        raise TablesError(f"tables/{name} is missing") from error
    except (OSError, ValueError, pa.ArrowException) as error:  # ValueError: a path with a character of code 0
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error).splitlines()[0]
        raise TablesError(f"tables/{name} cannot be read as Parquet: {reason}") from error


def _other_columns(name: str) -> TablesError:
    return TablesError(f"tables/{name} has other columns than this version writes: it is of another program or version")


def _damaged(name: str, error: Exception) -> TablesError:
    return TablesError(f"tables/{name} is damaged: {str(error).splitlines()[0]}")

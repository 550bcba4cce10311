"""The operations on registers as Parquet: a file for each piece of a record, and an index of the row groups.

    <run>/tables/registers/<piece>.parquet
    <run>/tables/registers.parquet

Theory of operation. A check of a key needs all operations on the key, and no operation on another one. So a file is
ordered by key, and a row group ends where a key ends, unless the row group would be too small or too large. The index
has the lowest and the highest key of each row group: a reader of some keys reads only the row groups that may have
them. Keys are compared by their UTF-8 bytes, as Arrow and Python compare texts. Every file has the schema
`history.REGISTERS`, with the texts of keys in place of codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from history.operation_tables import TablesError, open_table, read_rows, require_row_groups
from history.regular_files import remove
from history.schemas import REGISTERS

REGISTERS_FOLDER: Final = "registers"
REGISTER_INDEX_FILE: Final = "registers.parquet"
LEAST_ROWS: Final = 1 << 10
"""A row group has at least these rows, but the last one of a file."""
MOST_ROWS: Final = 1 << 16
PART_ROWS: Final = 1 << 17
"""What readers of all operations have in memory at once."""

STORED: Final = REGISTERS.set(REGISTERS.get_field_index("key"), pa.field("key", pa.string(), nullable=False))
"""The schema of the files."""


@dataclass(frozen=True)
class KeyGroup:
    """A row group of a file of operations on registers. `path`: below `tables/`; `lowest`, `highest`: its keys."""

    path: str
    row_group: int
    rows: int
    lowest: str
    highest: str


REGISTER_INDEX: Final = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("row_group", pa.int64(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("lowest", pa.string(), nullable=False),
        pa.field("highest", pa.string(), nullable=False),
    ]
)
"""One row per row group, with the fields of `KeyGroup`."""


def remove_registers(tables: Path) -> None:
    """Remove the operations on registers and their index, whatever has their names."""
    remove(tables / REGISTERS_FOLDER)
    remove(tables / REGISTER_INDEX_FILE)


def write_registers(
    rows: pa.Table, tables: Path, piece: str, *, least_rows: int = LEAST_ROWS, most_rows: int = MOST_ROWS
) -> list[KeyGroup]:
    """Write a piece of a record, of the schema `history.REGISTERS`, to `<piece>.parquet`, ordered by key and
    invocation. Writes no file without rows."""
    if not rows.num_rows:
        return []
    folder = tables / REGISTERS_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{piece}.parquet"
    ordered = (
        rows.cast(STORED)
        .unify_dictionaries()
        .sort_by([(name, "ascending") for name in ("key", "inv", "id")])
        .combine_chunks()
    )
    bounds = _bounds(ordered["key"], least_rows, most_rows)
    groups: list[KeyGroup] = []
    with pq.ParquetWriter(path, STORED, compression="zstd", compression_level=1) as writer:
        for number, (start, stop) in enumerate(pairwise(bounds)):
            writer.write_table(ordered.slice(start, stop - start), row_group_size=stop - start)
            keys = (ordered["key"][at].as_py() for at in (start, stop - 1))
            groups.append(KeyGroup(path.relative_to(tables).as_posix(), number, stop - start, *keys))
    return groups


def _bounds(keys: pa.ChunkedArray, least_rows: int, most_rows: int) -> list[int]:
    """Where row groups start, and where the last one ends: at the first end of a key behind `least_rows` rows, and
    after `most_rows` rows at the latest."""
    ends: npt.NDArray[np.int64] = np.asarray(
        pc.run_end_encode(keys.combine_chunks()).run_ends.to_numpy(zero_copy_only=False), np.int64
    )
    bounds = [0]
    while bounds[-1] < len(keys):
        at = int(np.searchsorted(ends, bounds[-1] + least_rows))
        bounds.append(min(int(ends[min(at, len(ends) - 1)]), bounds[-1] + most_rows))
    return bounds


def read_registers(tables: Path) -> pa.Table:
    """All operations on registers, with the schema `history.REGISTERS`. Raises TablesError as `read_register_index`."""
    groups = read_register_index(tables)
    parts = [part.cast(REGISTERS) for part in read_register_parts(tables, groups, STORED.names)]
    return pa.concat_tables([REGISTERS.empty_table(), *parts]).unify_dictionaries().combine_chunks()


def read_register_parts(tables: Path, groups: Iterable[KeyGroup], columns: Sequence[str]) -> Iterator[pa.Table]:
    """These columns of the row groups in order, in parts of at most PART_ROWS rows, or of one row group. Raises
    TablesError for a file that cannot be read."""
    for path, of_file in groupby(groups, key=lambda group: group.path):
        with open_table(tables, path, STORED) as file:
            for numbers in _joined(of_file):
                try:
                    part = file.read_row_groups(numbers, columns=list(columns), use_threads=False)
                except (OSError, pa.ArrowException) as error:
                    raise TablesError(f"tables/{path} is damaged: {str(error).splitlines()[0]}") from error
                yield part.select(columns).combine_chunks()


def _joined(groups: Iterable[KeyGroup]) -> Iterator[list[int]]:
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


def write_register_index(groups: Iterable[KeyGroup], tables: Path) -> None:
    """Write `tables/registers.parquet`, ordered by file and row group."""
    ordered = sorted(groups, key=lambda group: (group.path, group.row_group))
    tables.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        pa.Table.from_pylist([asdict(group) for group in ordered], REGISTER_INDEX), tables / REGISTER_INDEX_FILE
    )


def read_register_index(tables: Path) -> list[KeyGroup]:
    """The row groups of `tables/registers.parquet` in its order; none of a run without registers. Raises TablesError
    when it is missing, torn or not an index, and when it disagrees with the files: each must exist and have the index's
    row groups and rows, and no other file may exist. A row group with a lowest key above its highest one would be in no
    task."""
    file_names = {path.relative_to(tables).as_posix() for path in (tables / REGISTERS_FOLDER).glob("*.parquet")}
    if not file_names and not (tables / REGISTER_INDEX_FILE).exists():
        return []
    index = open_table(tables, REGISTER_INDEX_FILE, REGISTER_INDEX)
    groups = [KeyGroup(*row) for row in read_rows(index, REGISTER_INDEX_FILE)]
    of_file: dict[str, list[KeyGroup]] = {}
    for group in groups:
        if group.lowest > group.highest:
            raise TablesError(f"tables/{REGISTER_INDEX_FILE} has no range of keys for {group.path}")
        of_file.setdefault(group.path, []).append(group)
    for name in sorted(file_names | of_file.keys()):
        if name not in of_file:
            raise TablesError(f"tables/{name} is not in tables/{REGISTER_INDEX_FILE}")
        stated = [(group.row_group, group.rows) for group in of_file[name]]
        require_row_groups(tables, name, STORED, REGISTER_INDEX_FILE, stated)
    return groups

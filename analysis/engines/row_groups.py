"""The row groups of a run's operations on logs: which offsets they reach, and their rows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from analysis.core.explain import Key
from analysis.core.offset_ranges import RowGroup
from analysis.core.rows import DamagedError
from history.record.operation_tables import TablesError, has_tables, read_index
from history.record.schemas import APPEND, OPERATIONS
from history.record.shapes import LOG
from history.regular_files import require_regular

CHECKED: Final = pa.schema([column for column in OPERATIONS if column.name != "client"])
"""The columns that the log check reads."""


def row_groups_of(tables: Path) -> dict[Key, list[RowGroup]]:
    """The row groups of each partition by the index of a run's `tables/`; none of a run without operations. Raises
    DamagedError for an index that disagrees with its files."""
    if not has_tables(LOG, tables):
        return {}
    groups: dict[Key, list[RowGroup]] = {}
    root = tables.resolve()
    try:
        for entry in read_index(LOG, root):
            group = RowGroup(str(root / entry.path), entry.row_group, entry.rows, entry.lowest, entry.highest)
            topic, partition = entry.key
            groups.setdefault((topic, partition), []).append(group)
    except TablesError as error:
        raise DamagedError(str(error)) from error
    return groups


def read_row_groups(groups: Sequence[RowGroup], schema: pa.Schema = CHECKED) -> pa.Table:
    """The rows of one or more row groups, in their order, with the columns of `schema`. Raises DamagedError for a file
    that cannot be read or that is not one of operations."""
    numbers: dict[str, list[int]] = {}
    for group in groups:
        numbers.setdefault(group.path, []).append(group.number)
    tables = []
    for path, group_numbers in numbers.items():
        try:
            with pq.ParquetFile(require_regular(path)) as file:
                tables.append(file.read_row_groups(group_numbers, columns=schema.names, use_threads=False).cast(schema))
        except (OSError, ValueError, KeyError, IndexError) as error:
            raise _unreadable(path, error) from error
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def read(paths: Sequence[Path | str]) -> pa.Table:
    """The operations of some files, with the schema `history.OPERATIONS`: appends by offset, those without one behind,
    then queries by what they showed. Raises DamagedError for a file that cannot be read."""
    tables = [_rows_of(path) for path in paths]
    rows = pa.concat_tables([OPERATIONS.empty_table(), *tables]).unify_dictionaries().combine_chunks()
    is_append = pc.equal(rows["f"], APPEND)
    is_located = pc.and_(is_append, pc.greater_equal(rows["offset"], 0))
    parts = [
        (is_located, ("offset", "inv")),
        (pc.and_(is_append, pc.less(rows["offset"], 0)), ("inv", "value")),
        (pc.invert(is_append), ("lo", "inv", "process")),
    ]
    ordered = [
        rows.filter(mask).sort_by([(name, "ascending") for name in (*names, "session")]) for mask, names in parts
    ]
    return pa.concat_tables(ordered).combine_chunks()


def _rows_of(path: Path | str) -> pa.Table:
    try:
        return pq.ParquetFile(require_regular(path)).read().cast(OPERATIONS)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path | str, error: Exception) -> DamagedError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error).splitlines()[0]
    return DamagedError(f"{Path(path).name} cannot be read as Parquet: {reason}")

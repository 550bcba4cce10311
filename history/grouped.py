"""Figures of rows that come in parts: sums and extremes by some columns.

Theory of operation. Some parts become a table of their groups. It is grouped again with further parts, so memory grows
with the groups and not with the parts. docs/decisions/figures-by-arrow.md says why Arrow computes them.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa

_MOST_WAITING: Final = 1 << 18
"""Rows of parts that wait for their groups, beside one part."""


def grouped(parts: Iterable[pa.Table], keys: Sequence[str], **functions: str) -> pa.Table:
    """One row for each combination of the keys, with the columns in `functions`, each aggregated by its function, which
    is `sum`, `min` or `max`. There is at least one part. All have the same columns, several parts those of the result:
    sums have 64 bits."""
    waiting, rows = list[pa.Table](), 0
    for part in parts:
        waiting.append(part)
        rows += part.num_rows
        if rows > _MOST_WAITING:
            waiting, rows = [_grouped(waiting, keys, functions)], 0
    return _grouped(waiting, keys, functions)


def _grouped(parts: Sequence[pa.Table], keys: Sequence[str], functions: dict[str, str]) -> pa.Table:
    groups = pa.concat_tables(parts).group_by(list(keys), use_threads=False).aggregate([*functions.items()])
    return groups.rename_columns([*keys, *functions])


def ordered(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The rows in the order of the keys."""
    return rows.sort_by([(key, "ascending") for key in keys]).combine_chunks()

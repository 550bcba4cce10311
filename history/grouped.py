"""Figures of rows that come in parts: sums and extremes by some columns.

Theory of operation. Each part becomes a table of its groups. Tables of groups become one by the same functions, as soon
as they have many rows, so memory grows with the groups and not with the parts. docs/decisions/figures-by-arrow.md says
why Arrow computes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa

_MOST_WAITING: Final = 1 << 18
"""Rows of groups that wait, beside those of the parts before."""


def grouped(parts: Iterable[pa.Table], keys: Sequence[str], **functions: str) -> pa.Table:
    """One row for each combination of the keys, with the columns in `functions`, each aggregated by its function, which
    is `sum`, `min` or `max`. There is at least one part, and all have the same columns."""
    groups, waiting = list[pa.Table](), 0
    for part in parts:
        groups.append(_grouped(part, keys, functions))
        waiting += groups[-1].num_rows
        if waiting > _MOST_WAITING:
            groups = [_grouped(pa.concat_tables(groups), keys, functions)]
            waiting = 0
    return groups[0] if len(groups) == 1 else _grouped(pa.concat_tables(groups), keys, functions)


def _grouped(rows: pa.Table, keys: Sequence[str], functions: dict[str, str]) -> pa.Table:
    groups = rows.group_by(list(keys), use_threads=False).aggregate([*functions.items()])
    return groups.rename_columns([*keys, *functions])


def ordered(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The rows in the order of the keys."""
    return rows.sort_by([(key, "ascending") for key in keys]).combine_chunks()

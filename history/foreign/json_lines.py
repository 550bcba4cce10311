"""Reads JSON lines as in docs/operations.md, as the clients of one history that is not a run's.

A journal that relates clocks is missing, so all files must have the same clock: each a monotonic one, or each a wall
clock. Values of registers may repeat. Values of a log are unique, and their numbers need not name a producer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from history.foreign.history import LOG, OWN_PRODUCER, REGISTER, ForeignError, ForeignHistory, NamesOfNumbers
from history.jsonl_reader import Recorded, TakenNames, read_lines
from history.schemas import APPEND, OPERATIONS, REGISTERS

_AHEAD_S: Final = 10**9
"""Subtracted from wall clocks, so that their times are times of a run until 2038."""
_EARLIEST_WALL_NS: Final = 10**17
"""Converted times of wall clocks are later, from 2004 on; those of monotonic clocks are earlier, for three years."""


def read(paths: Sequence[Path], model: str | None) -> ForeignHistory:
    """The history in the files, of the given model if they have operations of both. Raises ForeignError."""
    names = [path.name for path in paths]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ForeignError(twice, 0, "two files have this name, which is that of a client: rename one of them")
    started = {"event": "run_started", "t": 0, "wall": _AHEAD_S}
    log: list[pa.Table] = []
    registers: list[pa.Table] = [REGISTERS.empty_table()]
    recorded = read_lines(paths, [started], TakenNames({}, 0, unique=False), log.append, registers.append)
    _require_whole(paths, recorded)
    open_log, open_registers = recorded.tables()
    tables = {
        LOG: pa.concat_tables([*log, open_log]).unify_dictionaries(),
        REGISTER: pa.concat_tables([*registers, open_registers]).unify_dictionaries(),
    }
    there = [name for name, table in tables.items() if table.num_rows]
    if model is None and len(there) == 2:
        raise ForeignError(paths[0], 0, "has operations on logs and on registers: choose one with --model log|register")
    chosen = model or next(iter(there), None)
    if chosen is None or not tables[chosen].num_rows:
        raise ForeignError(paths[0], 0, f"has no operation of a {chosen or 'client'}")
    table = tables[chosen]
    _require_one_clock(paths, table)
    other = () if len(there) < 2 else (f"operations of the other model: {', '.join(set(there) - {chosen})}",)
    if chosen == REGISTER:
        return ForeignHistory(REGISTER, table, {}, other)
    _require_unique(paths, table)
    return _renumbered(table, ("the order of a producer's values beyond real time", *other))


def _require_whole(paths: Sequence[Path], recorded: Recorded) -> None:
    """Raises ForeignError for the first defect."""
    for path in paths:
        for defect in recorded.defects.get(path.name, []):
            at = re.match(rf"{re.escape(path.name)}(?::(\d+):)? ", defect)
            what = defect[at.end() :] if at else defect
            line = int(at[1]) if at and at[1] else 0
            raise ForeignError(path, line, f"{what}; docs/operations.md describes the format")


def _require_one_clock(paths: Sequence[Path], table: pa.Table) -> None:
    times = table["inv"].to_numpy()
    if int(times.min()) < _EARLIEST_WALL_NS <= int(times.max()):
        raise ForeignError(paths[0], 1, 'some files declare {"clock": "wall"} and some do not: use one clock for all')


def _require_unique(paths: Sequence[Path], table: pa.Table) -> None:
    appended = table.filter(pc.equal(table["f"], APPEND))["value"].to_numpy()
    values, counts = np.unique(appended, return_counts=True)
    if (twice := values[counts > 1]).size:
        raise ForeignError(paths[0], 0, f"value {twice[0]} is appended twice: values of a log identify the appends")


def _renumbered(table: pa.Table, not_judged: tuple[str, ...]) -> ForeignHistory:
    """The history with each value as the only one of its producer (`OWN_PRODUCER`)."""
    items = table["values"].combine_chunks()
    shown = items.flatten().to_numpy(zero_copy_only=False)
    appended = table["value"].to_numpy()
    is_append = table["f"].to_numpy() == APPEND
    known = np.unique(np.concatenate([appended[is_append], shown]))
    numbered = np.where(is_append, (np.searchsorted(known, appended) + 1) * OWN_PRODUCER, -1)
    values = pa.ListArray.from_arrays(
        items.offsets, pa.array((np.searchsorted(known, shown) + 1) * OWN_PRODUCER, pa.int64())
    )
    columns: dict[str, Any] = {"value": pa.array(numbered, pa.int64()), "values": values}
    arrays = [columns.get(name, table[name]) for name in OPERATIONS.names]
    plain = pa.Table.from_arrays(arrays, names=OPERATIONS.names).cast(OPERATIONS)
    return ForeignHistory(LOG, plain, NamesOfNumbers(known, OWN_PRODUCER), not_judged)

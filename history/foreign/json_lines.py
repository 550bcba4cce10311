"""Reads JSON lines as in docs/operations.md, as the clients of one history that is not a run's.

A journal that relates clocks is missing, so all files must have the same clock: each a monotonic one, or each a wall
clock. Values of registers may repeat. Values of a log are unique, and their numbers need not name a producer.

Theory of operation. The numbers of a log's values follow from all values, and the model of the files from all lines. So
the operations are put into a file of each model while they are read, and those of the model are read again and written
with the numbers of their values. In memory remain the values, as runs of consecutive ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from history.distinct import distinct
from history.foreign.absent_offsets import AbsentOffsets
from history.foreign.history import INITIAL_TIMES, LOG, OWN_PRODUCER, REGISTER, ForeignError, ForeignHistory
from history.foreign.kinds import kind_of, refusal
from history.foreign.numbered_texts import GROUP_TEXTS, TextFile
from history.foreign.operation_files import OperationFiles
from history.foreign.parts_on_disk import PartsOnDisk
from history.foreign.register_rows import initial_write
from history.foreign.value_places import JoinedRuns, ValuePlaces
from history.jsonl_reader import Recorded, TakenNames, read_lines
from history.registers import table_of
from history.schemas import APPEND, INF, OPERATIONS, REGISTERS
from history.value_runs import I64, ValueRuns

_OTHER_F: Final = re.compile(r'"f" is "(\w+)"')
_AHEAD_S: Final = 10**9
"""Subtracted from wall clocks, so that their times are times of a run until 2038."""
_EARLIEST_WALL_NS: Final = 10**17
"""Converted times of wall clocks are later, from 2004 on; those of monotonic clocks are earlier, for three years."""


def read(paths: Sequence[Path], model: str | None, directory: Path, *, initial: int | None = None) -> ForeignHistory:
    """The history in the files, of the given model if they have operations of both, written below a directory.
    `initial`: what each register holds at the start. Raises ForeignError."""
    names = [path.name for path in paths]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ForeignError(twice, 0, "two files have this name, which is that of a client: rename one of them")
    log, registers = _LogAsRead(directory / "log.arrow"), _AsRead(directory / "registers.arrow", REGISTERS)
    try:
        absent = AbsentOffsets()
        _take_all(paths, log, registers, absent)
        chosen, *other = _models(paths, model, {LOG: log, REGISTER: registers})
        not_judged = [f"operations of the other model: {each}" for each in other]
        files = OperationFiles(directory, chosen)
        if chosen == REGISTER:
            _require_one_clock(paths, registers)
            if absent:
                raise ForeignError(paths[0], 0, "states absent offsets, which registers do not have")
            _add_registers(files, registers, initial)
            return files.history({}, not_judged)
        if initial is not None:
            raise ForeignError(paths[0], 0, "has operations on logs, which have no initial value; omit --initial")
        _require_one_clock(paths, log)
        known = _known(paths, log)
        if absent:
            if problem := absent.learn(log.parts.tables()):
                raise ForeignError(paths[0], 0, f"{problem}; state only offsets that never had one")
            not_judged.append("whether the offsets that are stated to be absent had a record")
        for rows in log.parts.tables():
            files.add(_renumbered(absent.positions(rows), known))
        not_judged.insert(0, "the order of a producer's values beyond real time")
        return files.history(_texts(known, directory), not_judged)
    finally:
        log.parts.remove()
        registers.parts.remove()


def _add_registers(files: OperationFiles, registers: _AsRead, initial: int | None) -> None:
    """Write the operations on registers, with the write of an initial value before them."""
    keys: set[str] = set()
    shift = 0 if initial is None else INITIAL_TIMES[1] + 1
    for rows in registers.parts.tables():
        for name in ("inv", "ret"):
            times = rows[name].to_numpy()
            moved = pa.array(np.where(times < INF, times + shift, times))
            rows = rows.set_column(REGISTERS.get_field_index(name), REGISTERS.field(name), moved)
        keys.update(pc.unique(rows["key"]).to_pylist())
        files.add(rows)
    if initial is not None:
        files.add(table_of([initial_write(number, key, initial) for number, key in enumerate(sorted(keys))]))


def _take_all(paths: Sequence[Path], log: _LogAsRead, registers: _AsRead, absent: AbsentOffsets) -> None:
    """Read all lines. Raises ForeignError for a line without a valid operation."""
    started = {"event": "run_started", "t": 0, "wall": _AHEAD_S}
    recorded = read_lines(paths, [started], TakenNames({}, 0, unique=False), log.take, registers.take, absent.take)
    _require_whole(paths, recorded)
    open_log, open_registers = recorded.tables()
    log.take(open_log)
    registers.take(open_registers)


def _models(paths: Sequence[Path], model: str | None, as_read: Mapping[str, _AsRead]) -> list[str]:
    """The model to check, and the other one if the files have operations of both."""
    there = [name for name, each in as_read.items() if each.rows]
    if model is None and len(there) == 2:
        raise ForeignError(paths[0], 0, "has operations on logs and on registers: choose one with --model log|register")
    chosen = model or next(iter(there), None)
    if chosen is None or chosen not in there:
        raise ForeignError(paths[0], 0, f"has no operation of a {chosen or 'client'}")
    return [chosen, *(name for name in there if name != chosen)]


def _require_one_clock(paths: Sequence[Path], chosen: _AsRead) -> None:
    if chosen.earliest < _EARLIEST_WALL_NS <= chosen.latest:
        raise ForeignError(paths[0], 1, 'some files declare {"clock": "wall"} and some do not: use one clock for all')


def _require_whole(paths: Sequence[Path], recorded: Recorded) -> None:
    """Raises ForeignError for the first defect."""
    for path in paths:
        for defect in recorded.defects.get(path.name, []):
            at = re.match(rf"{re.escape(path.name)}(?::(\d+):)? ", defect)
            what = defect[at.end() :] if at else defect
            line = int(at[1]) if at and at[1] else 0
            if (f := _OTHER_F.match(what)) and (kind := kind_of(f[1])):
                what = refusal(f[1], kind, '"f"')
            raise ForeignError(path, line, f"{what}; docs/operations.md describes the format")


class _AsRead:
    """The operations of one model in a file, in the order of the files that they are from. `earliest`, `latest`:
    invocations."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.rows = 0
        self.earliest, self.latest = 1 << 62, -1
        self.parts = PartsOnDisk(path, schema)

    def take(self, rows: pa.Table) -> None:
        if rows.num_rows:
            inv = rows["inv"].to_numpy()
            self.earliest, self.latest = min(self.earliest, int(inv.min())), max(self.latest, int(inv.max()))
            self.rows += rows.num_rows
            self.parts.add(rows)


class _LogAsRead(_AsRead):
    """Operations on logs. `appended`, `shown`: their values."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, OPERATIONS)
        self.appended, self.shown = JoinedRuns(), JoinedRuns()

    def take(self, rows: pa.Table) -> None:
        super().take(rows)
        self.appended.add(_appended(rows))
        self.shown.add(distinct(rows["values"].combine_chunks().flatten().to_numpy()))


def _known(paths: Sequence[Path], log: _LogAsRead) -> ValuePlaces:
    """The values of a log. Raises ForeignError if one is appended twice."""
    appended = log.appended.all()
    if appended.repeated:
        columns = [_appended(rows) for rows in log.parts.tables()]
        values, counts = np.unique(np.concatenate(columns), return_counts=True)
        what = f"value {values[counts > 1][0]} is appended twice: values of a log identify the appends"
        raise ForeignError(paths[0], 0, what)
    return ValuePlaces(ValueRuns.union([appended, log.shown.all()]))


def _texts(known: ValuePlaces, directory: Path) -> Mapping[int, str]:
    """The text of each number, written below the directory."""
    file = TextFile(directory, OWN_PRODUCER)
    for start in range(0, len(known), GROUP_TEXTS):
        places = np.arange(start, min(start + GROUP_TEXTS, len(known)))
        file.add(pa.array(known.integers(places)).cast(pa.string()))
    return file.texts()


def _appended(rows: pa.Table) -> I64:
    """The values of the appends."""
    found: I64 = rows["value"].to_numpy()[rows["f"].to_numpy() == APPEND]
    return found


def _renumbered(rows: pa.Table, known: ValuePlaces) -> pa.Table:
    """The operations with each value as the only one of its producer (`OWN_PRODUCER`)."""
    items = rows["values"].combine_chunks()
    numbered = np.full(rows.num_rows, -1, np.int64)
    is_append = rows["f"].to_numpy() == APPEND
    numbered[is_append] = (known.of(rows["value"].to_numpy()[is_append]) + 1) * OWN_PRODUCER
    shown = (known.of(items.flatten().to_numpy()) + 1) * OWN_PRODUCER
    columns: dict[str, Any] = {
        "value": pa.array(numbered, pa.int64()),
        "values": pa.ListArray.from_arrays(items.offsets, pa.array(shown, pa.int64())),
    }
    arrays = [columns.get(name, rows[name]) for name in OPERATIONS.names]
    return pa.Table.from_arrays(arrays, names=OPERATIONS.names).cast(OPERATIONS)

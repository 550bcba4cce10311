"""Reads JSON lines as in docs/operations.md, as the clients of one history that is not a run's.

A journal that relates clocks is missing, so all files must have the same clock: each a monotonic one, or each a wall
clock. Values of registers may repeat. Values of a log are unique, and their numbers need not name a producer.

Theory of operation. The numbers of a log's values follow from all values, and the model of the files from all lines. So
the operations are put into a file of each model while they are read, and those of the model are read again and written
with the numbers of their values. In memory remain the values, as runs of consecutive ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from history.distinct import distinct
from history.foreign.history import LOG, OWN_PRODUCER, REGISTER, ForeignError, ForeignHistory
from history.foreign.numbered_texts import GROUP_TEXTS, TextFile
from history.foreign.operation_files import OperationFiles
from history.jsonl_reader import Recorded, TakenNames, read_lines
from history.schemas import APPEND, OPERATIONS, REGISTERS
from history.value_runs import ValueRuns

I64 = npt.NDArray[np.int64]

_AHEAD_S: Final = 10**9
"""Subtracted from wall clocks, so that their times are times of a run until 2038."""
_EARLIEST_WALL_NS: Final = 10**17
"""Converted times of wall clocks are later, from 2004 on; those of monotonic clocks are earlier, for three years."""
_LEAST_RUNS: Final = 1 << 16


def read(paths: Sequence[Path], model: str | None, directory: Path) -> ForeignHistory:
    """The history in the files, of the given model if they have operations of both, written below a directory. Raises
    ForeignError."""
    names = [path.name for path in paths]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ForeignError(twice, 0, "two files have this name, which is that of a client: rename one of them")
    log, registers = _LogAsRead(directory / "log.arrow"), _AsRead(directory / "registers.arrow", REGISTERS)
    try:
        _take_all(paths, log, registers)
        chosen, *other = _models(paths, model, {LOG: log, REGISTER: registers})
        not_judged = [f"operations of the other model: {each}" for each in other]
        files = OperationFiles(directory, chosen)
        if chosen == REGISTER:
            _require_one_clock(paths, registers)
            return files.of(registers.tables(), {}, not_judged)
        _require_one_clock(paths, log)
        known = _known(paths, log)
        rows = (_renumbered(each, known) for each in log.tables())
        return files.of(
            rows, known.texts(directory), ["the order of a producer's values beyond real time", *not_judged]
        )
    finally:
        log.remove()
        registers.remove()


def _take_all(paths: Sequence[Path], log: _LogAsRead, registers: _AsRead) -> None:
    """Raises ForeignError for a line that is no operation."""
    started = {"event": "run_started", "t": 0, "wall": _AHEAD_S}
    recorded = read_lines(paths, [started], TakenNames({}, 0, unique=False), log.take, registers.take)
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
            raise ForeignError(path, line, f"{what}; docs/operations.md describes the format")


class _AsRead:
    """The operations of one model in a file, in the order of the files that they are from. `earliest`, `latest`:
    invocations."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.rows = 0
        self.earliest, self.latest = 1 << 62, -1
        self._path = path
        self._writer = pa.ipc.new_stream(str(path), schema, options=pa.ipc.IpcWriteOptions(compression="lz4"))

    def take(self, rows: pa.Table) -> None:
        if rows.num_rows:
            inv = rows["inv"].to_numpy()
            self.earliest, self.latest = min(self.earliest, int(inv.min())), max(self.latest, int(inv.max()))
            self.rows += rows.num_rows
            self._writer.write_table(rows)

    def tables(self) -> Iterator[pa.Table]:
        """The operations, in parts. None can be taken afterwards."""
        self._writer.close()
        with pa.OSFile(str(self._path)) as file, pa.ipc.open_stream(file) as stream:
            for batch in stream:
                yield pa.Table.from_batches([batch])

    def remove(self) -> None:
        self._writer.close()
        self._path.unlink(missing_ok=True)


class _LogAsRead(_AsRead):
    """Operations on logs. `appended`, `shown`: their values."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, OPERATIONS)
        self.appended, self.shown = _JoinedRuns(), _JoinedRuns()

    def take(self, rows: pa.Table) -> None:
        super().take(rows)
        self.appended.add(ValueRuns.of(_appended(rows)))
        self.shown.add(ValueRuns.of(distinct(rows["values"].combine_chunks().flatten().to_numpy())))


class _JoinedRuns:
    """The runs of values that come in parts."""

    def __init__(self) -> None:
        self._all = ValueRuns()
        self._recent: list[ValueRuns] = []

    def add(self, runs: ValueRuns) -> None:
        self._recent.append(runs)
        if sum(len(each.first) for each in self._recent) >= max(_LEAST_RUNS, len(self._all.first)):
            self.all()

    def all(self) -> ValueRuns:
        """All runs. `repeated` counts the values that were there before."""
        self._all, self._recent = ValueRuns.union([self._all, *self._recent]), []
        return self._all


class _KnownValues:
    """Different values with their places in ascending order, from 0 on."""

    def __init__(self, runs: ValueRuns) -> None:
        self._first = runs.first
        self._before = np.concatenate(([0], np.cumsum(runs.last - runs.first + 1)))

    def numbers(self, values: I64) -> I64:
        """Of values that are known: each as the only one of its producer (`OWN_PRODUCER`)."""
        run = np.searchsorted(self._first, values, side="right") - 1
        found: I64 = (self._before[run] + (values - self._first[run]) + 1) * OWN_PRODUCER
        return found

    def texts(self, directory: Path) -> Mapping[int, str]:
        """The text of each number, written below the directory."""
        file = TextFile(directory, OWN_PRODUCER)
        count = int(self._before[-1])
        for start in range(0, count, GROUP_TEXTS):
            place = np.arange(start, min(start + GROUP_TEXTS, count))
            run = np.searchsorted(self._before, place, side="right") - 1
            file.add(pa.array(self._first[run] + (place - self._before[run])).cast(pa.string()))
        return file.texts()


def _known(paths: Sequence[Path], log: _LogAsRead) -> _KnownValues:
    """The values of a log. Raises ForeignError if one is appended twice."""
    appended = log.appended.all()
    if appended.repeated:
        values, counts = np.unique(np.concatenate([_appended(rows) for rows in log.tables()]), return_counts=True)
        what = f"value {values[counts > 1][0]} is appended twice: values of a log identify the appends"
        raise ForeignError(paths[0], 0, what)
    return _KnownValues(ValueRuns.union([appended, log.shown.all()]))


def _appended(rows: pa.Table) -> I64:
    """The values of the appends."""
    found: I64 = rows["value"].to_numpy()[rows["f"].to_numpy() == APPEND]
    return found


def _renumbered(rows: pa.Table, known: _KnownValues) -> pa.Table:
    """The operations with the numbers of their values."""
    items = rows["values"].combine_chunks()
    numbered = np.full(rows.num_rows, -1, np.int64)
    is_append = rows["f"].to_numpy() == APPEND
    numbered[is_append] = known.numbers(rows["value"].to_numpy()[is_append])
    shown = known.numbers(items.flatten().to_numpy())
    columns: dict[str, Any] = {
        "value": pa.array(numbered, pa.int64()),
        "values": pa.ListArray.from_arrays(items.offsets, pa.array(shown, pa.int64())),
    }
    arrays = [columns.get(name, rows[name]) for name in OPERATIONS.names]
    return pa.Table.from_arrays(arrays, names=OPERATIONS.names).cast(OPERATIONS)

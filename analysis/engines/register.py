"""The register check over a run's Parquet files: a plan of tasks of whole keys, which an engine maps.

Theory of operation. The driver plans from the index of the row groups. A task reads the row groups that may have its
keys, keeps the operations on its keys, and returns a report: counts by key, anomalies, and the reasons why a key is
undecided. It writes the orders that explain its keys to a file, which becomes a part of the certificate, so that no
order is searched twice. Neither rows nor orders leave the worker, and the driver's memory grows with keys and row
groups, not with operations. Keys are independent, so the reports of all tasks together are the report on all keys,
whatever the tasks.

An operation's time is the latest invocation up to it in the order. That is within its interval because an operation
that was invoked after another's return never precedes it in the order.

The parts are files of the certificate's directory, which the engine's workers wrote during the check, each with the
keys of a task (`analysis.engines.register`). `registers.json` has the history that the certificate is about, and
for each part its first key and its digest. `analysis/verifiers/register.py` confirms it.
"""

import functools
import json
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from analysis.core.register_operations import RegisterOperation, by_key
from analysis.core.registers import BUDGET, RegisterReport, check_keys
from analysis.core.rows import DamagedError
from analysis.engines.task_map import TaskMap
from history.record.operation_digest import digest_of_streams, digest_of_tables
from history.record.operation_tables import IndexedGroup, TablesError, has_tables, read_index
from history.record.shapes import REGISTER
from history.regular_files import remove, require_regular, sha256_of

# ---- Parts of the certificate of registers: files with the orders that explain keys, each with the time of its
# operations.

ORDER: Final = pa.schema([("key", pa.string()), ("id", pa.int64()), ("at", pa.int64())])


@dataclass(frozen=True)
class OrderPart:
    """The file with the orders of the keys from `start` on, up to the start of the next part."""

    start: str
    file: str
    sha256: str


def write_orders(
    path: Path, start: str, keys: Mapping[str, Sequence[RegisterOperation]], orders: Mapping[str, Sequence[int]]
) -> OrderPart:
    """Write the orders of keys to a file. `start`: the first key that the part may have. A key without an order has no
    entries, so the verifier refuses the certificate."""
    entries = [_entries(key, operations, orders.get(key, ())) for key, operations in keys.items()]
    pq.write_table(pa.concat_tables([ORDER.empty_table(), *entries]), path, compression="zstd")
    return OrderPart(start, path.name, sha256_of(path))


def _entries(key: str, operations: Sequence[RegisterOperation], order: Sequence[int]) -> pa.Table:
    invoked = {operation.id: operation.inv for operation in operations}
    moments = list(accumulate((invoked[number] for number in order), max))
    return pa.table({"key": [key] * len(order), "id": list(order), "at": moments}, ORDER)


TASK_ROWS: Final = 1 << 15
"""Ranges of keys are joined up to this number of operations: some 20 MB as objects of Python."""


@dataclass(frozen=True)
class KeyTask:
    """The keys from `start` on and below `stop` (None: no bound). `rows`: about how many operations they have;
    `groups`: the row groups that may have some of them."""

    start: str
    stop: str | None
    rows: int
    groups: tuple[IndexedGroup, ...]


def plan_keys(groups: Sequence[IndexedGroup], most_rows: int = TASK_ROWS) -> list[KeyTask]:
    """Tasks that cover all keys, each key in one of them: the ones with the most operations first."""
    starts = sorted({group.lowest for group in groups})
    first = np.array([bisect_left(starts, group.lowest) for group in groups], np.int64)
    last = np.array([bisect_left(starts, group.highest + "\0") - 1 for group in groups], np.int64)
    weights = _weights(groups, first, last, len(starts))
    tasks = []
    for low, high in _joined(weights, most_rows):
        mine = np.flatnonzero((first < high) & (last >= low)).tolist()
        stop = starts[high] if high < len(starts) else None
        rows = round(sum(weights[low:high]))
        tasks.append(KeyTask(starts[low], stop, rows, tuple(groups[number] for number in mine)))
    return sorted(tasks, key=lambda task: (-task.rows, task.start))


def _weights(groups: Sequence[IndexedGroup], first: Any, last: Any, ranges: int) -> list[float]:
    """The operations of each range, if those of a row group are spread evenly over the ranges that it reaches."""
    share = np.array([group.rows for group in groups], np.float64) / (last - first + 1)
    change = np.zeros(ranges + 1, np.float64)
    np.add.at(change, first, share)
    np.add.at(change, last + 1, -share)
    sums: list[float] = np.cumsum(change)[:-1].tolist()
    return sums


def _joined(weights: Iterable[float], most: int) -> list[tuple[int, int]]:
    """Consecutive ranges, as the first one and the one behind the last, with at most `most` operations together, or a
    single range."""
    bounds = [0]
    total = 0.0
    number = -1
    for number, weight in enumerate(weights):
        if total and total + weight > most:
            bounds.append(number)
            total = 0.0
        total += weight
    return list(zip(bounds, [*bounds[1:], number + 1], strict=True)) if number >= 0 else []


LOG_ROWS_PER_ROW: Final = 32
"""The check of an operation on a register takes as long as the check of this number of operations on logs."""


@dataclass(frozen=True)
class RegisterPlan:
    """The tasks of a check of the registers in `tables`. `budget`: the configurations that the search of a key may
    visit."""

    tables: Path
    tasks: tuple[KeyTask, ...]
    rows: int
    budget: int = BUDGET

    @classmethod
    def of(cls, tables: Path, *, budget: int = BUDGET, task_rows: int = TASK_ROWS) -> "RegisterPlan":
        """The plan for a run's `tables/`, without tasks if it has no registers. Raises DamagedError for an index that
        disagrees with its files."""
        try:
            groups = read_index(REGISTER, tables.resolve()) if has_tables(REGISTER, tables) else []
        except TablesError as error:
            raise DamagedError(str(error)) from error
        rows = sum(group.rows for group in groups)
        return cls(tables.resolve(), tuple(plan_keys(groups, task_rows)), rows, budget)

    @property
    def weight(self) -> int:
        """The operations on logs whose check takes as long."""
        return self.rows * LOG_ROWS_PER_ROW

    @property
    def weights(self) -> list[int]:
        """The same for each task."""
        return [task.rows * LOG_ROWS_PER_ROW for task in self.tasks]


def check_and_order(
    plan: RegisterPlan, spread: TaskMap, directory: Path | None = None
) -> tuple[RegisterReport, list[OrderPart]]:
    """The report on all keys, and the files in `directory` with the orders that explain them, by their first keys;
    without a directory, none. Replaces the directory. Raises DamagedError for a row group that is not as
    the index states."""
    if directory is not None:
        remove(directory)  # an earlier certificate may have other parts
        directory.mkdir(parents=True)
    starts = sorted(task.start for task in plan.tasks)
    paths = {
        start: directory.resolve() / f"registers-{number:05d}.parquet"
        for number, start in enumerate(starts)
        if directory is not None
    }
    work = functools.partial(_check, paths=paths, tables=plan.tables, budget=plan.budget)
    results = spread(work, plan.tasks, plan.weights)
    ordered = sorted(zip(plan.tasks, results, strict=True), key=lambda pair: pair[0].start)
    judgements = [_undamaged(result) for _, result in ordered]
    return RegisterReport.union([report for report, _ in judgements]), [
        part for _, part in judgements if part is not None
    ]


Checked = tuple[RegisterReport, OrderPart | None]


def _undamaged(result: Checked | DamagedError) -> Checked:
    """The result of a task. Raises it if it is damage."""
    if isinstance(result, DamagedError):
        raise result
    return result


def _check(task: KeyTask, *, paths: Mapping[str, Path], tables: Path, budget: int) -> Checked | DamagedError:
    try:
        keys = operations_of(task, tables)
    except DamagedError as error:
        return error
    report = check_keys(keys, budget=budget)
    part = write_orders(paths[task.start], task.start, keys, report.orders) if paths else None
    return replace(report, orders={}), part


def operations_of(task: KeyTask, tables: Path) -> dict[str, list[RegisterOperation]]:
    """The operations on each key of the task, in order of invocation. Raises DamagedError for a row group that cannot
    be read or is not as the index states."""
    parts = [_keys_between(_row_group(group, tables), task) for group in task.groups]
    return by_key(pa.concat_tables([REGISTER.stored.empty_table(), *parts]).unify_dictionaries())


def _keys_between(rows: pa.Table, task: KeyTask) -> pa.Table:
    rows = rows.filter(pc.greater_equal(rows["key"], task.start))
    if task.stop is not None:
        rows = rows.filter(pc.less(rows["key"], task.stop))
    return rows


def _row_group(group: IndexedGroup, tables: Path) -> pa.Table:
    try:
        with pq.ParquetFile(require_regular(tables / group.path)) as file:
            rows = file.read_row_group(group.row_group, use_threads=False).cast(REGISTER.stored)
        reach = pc.min_max(rows["key"]).as_py()
    except (OSError, ValueError, IndexError) as error:
        raise DamagedError(f"{group.path} cannot be read as Parquet: {str(error).splitlines()[0]}") from error
    if (rows.num_rows, reach["min"], reach["max"]) != (group.rows, group.lowest, group.highest):
        raise DamagedError(f"{group.path} has other keys than the index of registers states")
    return rows


# ---- Writes the certificate of registers: for each key its operations in an order that explains them, each with its
# time.

FORMAT: Final = 3
REGISTER_CERTIFICATE_FILE: Final = "registers.json"


def write_register_certificate(directory: Path, run: Path, plan: RegisterPlan, parts: Sequence[OrderPart]) -> Path:
    """Write the certificate of a check of a run's registers that found nothing; returns the path of its claim. `parts`:
    the files in the directory, from `check_and_order`."""
    content: dict[str, Any] = {
        "format": FORMAT,
        "operations": plan.rows,
        "streams": digest_of_streams(run),
        "tables": digest_of_tables(REGISTER, plan.tables),
        "parts": [asdict(part) for part in parts],
    }
    path = directory / REGISTER_CERTIFICATE_FILE
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path

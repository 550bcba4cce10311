"""Writes the certificate of registers: for each key its operations in an order that explains them, each with its time.

The parts are files of the certificate's directory, written by the engine's workers, each with the keys of a task.
`registers.json` has the history that the certificate is about, and for each part its first key and its digest.

An operation's time is the latest invocation up to it in the order. That is within its interval because an operation
that was invoked after another's return never precedes it in the order. `analysis/verifiers/register.py` confirms it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from analysis.core.register_keys import KeyTask
from analysis.core.register_operations import Operation, OutOfBudget
from analysis.core.registers import explain_order
from analysis.engines.register import RegisterPlan, operations_of
from analysis.engines.task_map import TaskMap
from history.operation_digest import digest_of_registers, digest_of_streams
from history.regular_files import remove, sha256_of

FORMAT: Final = 3
REGISTER_CERTIFICATE_FILE: Final = "registers.json"

ORDER: Final = pa.schema([("key", pa.string()), ("id", pa.int64()), ("at", pa.int64())])


@dataclass(frozen=True)
class OrderTask:
    """The keys of `task`, whose orders are to be written to `path`."""

    task: KeyTask
    path: str


@dataclass(frozen=True)
class OrderPart:
    """The file with the orders of the keys from `start` on, up to the start of the next part."""

    start: str
    file: str
    sha256: str


def write_register_certificate(directory: Path, run: Path, plan: RegisterPlan, spread: TaskMap) -> Path:
    """Write the certificate of a check of a run's registers that found nothing; returns the path of its claim."""
    remove(directory)  # an earlier certificate may have other parts
    directory.mkdir(parents=True)
    names = {
        start: f"registers-{number:05d}.parquet" for number, start in enumerate(sorted(t.start for t in plan.tasks))
    }
    tasks = [OrderTask(task, str(directory.resolve() / names[task.start])) for task in plan.tasks]
    write = functools.partial(_write_part, tables=plan.tables, budget=plan.budget)
    parts = spread(write, tasks, plan.weights)
    content: dict[str, Any] = {
        "format": FORMAT,
        "operations": plan.rows,
        "streams": digest_of_streams(run),
        "tables": digest_of_registers(plan.tables),
        "parts": [asdict(part) for part in sorted(parts, key=lambda part: part.start)],
    }
    path = directory / REGISTER_CERTIFICATE_FILE
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path


def _write_part(part: OrderTask, *, tables: Path, budget: int) -> OrderPart:
    keys = operations_of(part.task, tables).items()
    orders = [_order(key, operations, budget) for key, operations in keys]
    pq.write_table(pa.concat_tables([ORDER.empty_table(), *orders]), part.path, compression="zstd")
    path = Path(part.path)
    return OrderPart(part.task.start, path.name, sha256_of(path))


def _order(key: str, operations: Sequence[Operation], budget: int) -> pa.Table:
    """The entries of a key; none of a key that has no order, so the verifier refuses the certificate."""
    try:
        order = explain_order(operations, budget=budget) or ()
    except OutOfBudget:
        order = ()
    moments = list(accumulate((each.inv for each in order), max))
    return pa.table({"key": [key] * len(order), "id": [each.id for each in order], "at": moments}, ORDER)

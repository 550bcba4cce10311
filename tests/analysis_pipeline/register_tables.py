"""Histories of many registers in the tables of a run, as its analysis writes them."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from analysis.engines.register import RegisterPlan, check_and_order, write_register_certificate
from analysis.engines.task_map import TaskMap, in_sequence
from history.record.operation_tables import remove_tables, write_index, write_operations
from history.record.shapes import REGISTER
from tests.analysis.register_histories import Op, spoilt, true_history


def stored(run: Path, operations: pa.Table, *, pieces: int = 1, **sizes: Any) -> Path:
    """Writes operations to the tables of a run, as the records of this number of clients; returns the run."""
    tables, shape = run / "tables", replace(REGISTER, **sizes)
    remove_tables(shape, tables)
    numbers = pa.array(range(operations.num_rows))
    groups = []
    for piece in range(pieces):
        mine = pa.array([number.as_py() % pieces == piece for number in numbers], pa.bool_())
        groups += write_operations(shape, operations.filter(mine), tables, f"c{piece}-1")
    write_index(shape, groups, tables)
    return run


def certified(run: Path, *, task_rows: int = 1 << 15, spread: TaskMap = in_sequence) -> Path:
    """Writes the certificate of a run whose registers have no anomaly; returns its directory."""
    plan = RegisterPlan.of(run / "tables", task_rows=task_rows)
    _, parts = check_and_order(plan, spread, run / "certificate")
    return write_register_certificate(run / "certificate", run, plan, parts).parent


def many_keys(rng: random.Random, keys: int, *, hot: int, wrong: bool = False) -> dict[str, list[Op]]:
    """Keys with few operations and one with many, unfinished operations and reported mismatches among them. Values
    repeat from key to key. `wrong`: some keys may have a contradiction, and one of them certainly has."""
    found = {f"k{number:02d}": true_history(rng, 8, 3, swaps=number % 2 == 0, infos=0.2) for number in range(keys)}
    found["hot"] = true_history(rng, hot, 4, swaps=True, infos=0.1)
    if wrong:
        found = {key: spoilt(rng, history) if rng.random() < 0.5 else history for key, history in found.items()}
        found["k00"] = [*found["k00"], Op(1, 10_000, 10_001, 999)]
    return found

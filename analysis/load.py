"""What came of a run's load: changes that were acknowledged, queries that were answered under it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from analysis.rundir import RunDescription
from history import ACKS_ALL, APPEND, CAS, END, OK, READ, WRITE, History
from history.schemas import INF, PHASE_MAIN

_AFTER_LOAD = "quiesce"


@dataclass(frozen=True)
class Load:
    """`changes`: acknowledged in the whole run; `changes_under_load` and `queries_under_load`: until the load ended.
    Under load only those changes count that the system has promised to keep; `weak_under_load` are the others: appends
    that asked for less than to be acknowledged by all in sync, and that no verdict calls lost.
    """

    changes: int
    changes_under_load: int
    queries_under_load: int
    weak_under_load: int = 0


def load_of(history: History) -> Load:
    """Count a history. Reads of logs are no queries here: they come in bulk, and do not bound a log from above."""
    operations, registers = history.operations, history.registers
    log_load, register_load = _under_load(history, operations), _under_load(history, registers)
    kept = log_load.filter(pc.equal(log_load["acks"], ACKS_ALL))
    kept_appends = _count(kept, (APPEND,))
    return Load(
        changes=_count(operations, (APPEND,)) + _count(registers, (WRITE, CAS)),
        changes_under_load=kept_appends + _count(register_load, (WRITE, CAS)),
        queries_under_load=_count(log_load, (END,)) + _count(register_load, (READ,)),
        weak_under_load=_count(log_load, (APPEND,)) - kept_appends,
    )


def goes_on(history: History, moment: int) -> bool:
    """Whether an operation was under way under load at a moment, or was invoked later. One that never returned is."""
    for table in (history.operations, history.registers):
        load = _under_load(history, table)
        ends = pc.fill_null(load["ret"], INF)
        if pc.any(pc.or_(pc.greater(ends, moment), pc.greater_equal(load["inv"], moment))).as_py():
            return True
    return False


def load_statistics(description: RunDescription, load: Load) -> dict[str, Any]:
    """What a verdict's statistics say of planned and achieved load; shares are None where nothing was planned."""
    planned = description.planned_changes
    return {
        "planned_changes": planned,
        "planned_queries": description.planned_queries,
        "queries_under_load": load.queries_under_load,
        "achieved_share": round(load.changes_under_load / planned, 3) if planned else None,
    }


def _under_load(history: History, table: pa.Table) -> pa.Table:
    """The operations of the main phase that were invoked before the load had ended: what probes write afterwards shows
    that the cluster has recovered, and belongs to that phase as well."""
    ended = [phase["start"] for phase in history.phases.to_pylist() if phase["name"] == _AFTER_LOAD]
    in_time = pc.less(table["inv"], min(ended, default=INF))
    return table.filter(pc.and_(pc.equal(table["phase"].cast(pa.string()), PHASE_MAIN), in_time))


def _count(table: pa.Table, kinds: tuple[int, ...]) -> int:
    mask = pc.and_(pc.is_in(table["f"], pa.array(kinds, pa.int8())), pc.equal(table["type"], OK))
    return int(pc.sum(mask).as_py() or 0)

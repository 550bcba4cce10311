"""The data of a page's timeline: operations by client, faults, leaders by partition, states of processes by node.

Operations are columns of fixed-width integers, in base64, in order of invocation: 1e5 of them take 1.5 MB. A run with
more is reduced to counts by client, outcome and time window, and the page says so.

| column | type | content |
|---|---|---|
| start | uint32 | invocation, in `TICK_NS` since the start |
| length | uint32 | duration in `TICK_NS`; `OPEN` for an operation that never returned |
| lane | uint16 | index of the client |
| place | uint16 | index of the partition or key |
| kind | uint8 | operation * 4 + outcome, by `history.schemas` |
| number | int32 | offset (-1: none), or with counts the number of operations |
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from analysis.evidence.run_directory import moment
from analysis.page.run_clock import NS, RunClock
from history.schemas import INF
from installation.sanitize import brief, visible_line

TICK_NS: Final = 10_000
OPEN: Final = (1 << 32) - 1
MOST_OPERATIONS: Final = 100_000
WINDOWS: Final = 1_000
"""Time windows of a run that is reduced to counts."""
MOST_PLACES: Final = 4_000
MOST_TURNS: Final = 20_000
LONGEST_NAME: Final = 60
Ints = npt.NDArray[np.int64]


def operation_columns(operations: pa.Table, registers: pa.Table, clock: RunClock, end_s: float) -> dict[str, Any]:
    """The operations of logs and registers as the page's JSON: `clients`, `places`, `columns`, the number of all
    operations, and `window_s`, which is 0 unless they are counts."""
    rows = _rows(operations, registers)
    clients, lane = _indexed(rows["client"])
    places, place = _indexed(rows["place"])
    start = np.clip((rows["inv"] - clock.origin_ns) // TICK_NS, 0, OPEN - 1)
    open_ = rows["ret"] >= INF
    length = np.where(open_, OPEN, np.clip((rows["ret"] - rows["inv"]) // TICK_NS, 0, OPEN - 1))
    kind = rows["f"] * 4 + rows["type"]
    columns = {"start": start, "length": length, "lane": lane, "place": place, "kind": kind, "number": rows["offset"]}
    count, window_s = len(start), 0.0
    if count > MOST_OPERATIONS:
        window_s = max(end_s, 1e-3) / WINDOWS
        columns = _counted(columns, window_s)
    order = np.argsort(columns["start"], kind="stable")
    return {
        "count": count,
        "window_s": window_s,
        "clients": clients,
        "places": places[:MOST_PLACES],
        "columns": {name: _packed(name, column[order]) for name, column in columns.items()},
    }


_TYPES: Final = {"start": "<u4", "length": "<u4", "lane": "<u2", "place": "<u2", "kind": "u1", "number": "<i4"}


def _packed(name: str, column: Ints) -> str:
    info = np.iinfo(np.dtype(_TYPES[name]))
    return base64.b64encode(np.clip(column, info.min, info.max).astype(_TYPES[name]).tobytes()).decode()


def _rows(operations: pa.Table, registers: pa.Table) -> dict[str, Any]:
    topic = operations["topic"].cast(pa.string()).to_pylist()
    partition = operations["partition"].to_pylist()
    names: dict[str, Any] = {
        "client": operations["client"].cast(pa.string()).to_pylist()
        + registers["client"].cast(pa.string()).to_pylist(),
        "place": [f"{name}-{number}" for name, number in zip(topic, partition, strict=True)]
        + registers["key"].cast(pa.string()).to_pylist(),
    }
    for name in ("inv", "ret", "f", "type"):
        names[name] = np.concatenate([table[name].to_numpy().astype(np.int64) for table in (operations, registers)])
    names["offset"] = np.concatenate([operations["offset"].to_numpy(), np.full(registers.num_rows, -1)])
    return names


def _indexed(names: Sequence[str]) -> tuple[list[str], Ints]:
    """The different names, sorted and printable, and the index of each row's name."""
    distinct, index = np.unique(np.array(names, object).astype(str), return_inverse=True)
    return [brief(visible_line(str(name)), LONGEST_NAME) for name in distinct], index.astype(np.int64)


def _counted(columns: Mapping[str, Ints], window_s: float) -> dict[str, Ints]:
    """Counts by client, kind and window in place of the operations."""
    ticks = max(1, round(window_s * NS / TICK_NS))
    key = ((columns["start"] // ticks) << 32) | (columns["lane"] << 8) | columns["kind"]
    distinct, count = np.unique(key, return_counts=True)
    return {
        "start": (distinct >> 32) * ticks,
        "length": np.full(len(distinct), ticks),
        "lane": distinct >> 8 & 0xFFFF,
        "place": np.full(len(distinct), 0xFFFF),
        "kind": distinct & 0xFF,
        "number": count.astype(np.int64),
    }


NumberedEvents = Mapping[str, Sequence[tuple[int, Mapping[str, Any]]]]


def leader_turns(events: NumberedEvents, clock: RunClock, end_s: float) -> list[tuple[str, float, float, str, int]]:
    """Who led which partition from when to when: partition, start and end in seconds, node, epoch. A turn ends with
    the next leader's, or when the node becomes a follower or its process starts again."""
    changes: list[tuple[float, str, str, str, int]] = []
    for node, rows in events.items():
        led: set[str] = set()
        for _, event in rows:
            at_s = clock.of_wall(moment(event))
            if event["event"] == "partition_role":
                where = _where(event)
                leads = event.get("role") == "leader"
                if leads or where in led:
                    changes.append((at_s, where, node, "leads" if leads else "follows", _epoch(event)))
                led = led | {where} if leads else led - {where}
            elif event["event"] in ("broker_started", "broker_stopped"):
                changes += [(at_s, where, node, "down", -1) for where in led]
                led = set()
    turns: list[tuple[str, float, float, str, int]] = []
    current: dict[str, tuple[float, str, int]] = {}
    for at_s, where, node, what, epoch in sorted(changes):
        held = current.get(where)
        if held is not None and (what == "leads" or held[1] == node):
            turns.append((where, held[0], at_s, held[1], held[2]))
            del current[where]
        if what == "leads":
            current[where] = (at_s, node, epoch)
    turns += [(where, start, max(end_s, start), node, epoch) for where, (start, node, epoch) in current.items()]
    return sorted(turns, key=lambda turn: (turn[0], turn[1]))


def _where(event: Mapping[str, Any]) -> str:
    return brief(f"{event.get('topic')}-{event.get('partition')}", LONGEST_NAME)


def _epoch(event: Mapping[str, Any]) -> int:
    epoch = event.get("leader_epoch", -1)
    return epoch if type(epoch) is int else -1

"""Computes what a run's plots show (`PlotData`) and its statistics, from its history and its nodes' events."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from analysis.evidence.run_directory import NodeEvents, fits, moment
from analysis.plots.view import Band, Floats, Lane, PlotData, PlottedOperations, StartsLane
from history.reader import History
from history.schemas import APPEND, CAS, FAIL, INF, INFO, MISMATCH, OK, READ, WRITE

NS = 1e9
# The most operations that plots and statistics use; a longer run is thinned evenly before conversion to columns.
MOST_OPERATIONS = 2_000_000


def view_of(history: History, events: NodeEvents) -> PlotData:
    """All times in seconds since the first event of the journal (without one: since the first operation)."""
    origin, wall = _origin(history)
    operations = _operations(_all_operations(history), origin)
    lanes = _lanes(events, wall)
    ends = [float(operations.returned.max())] if len(operations.returned) else []
    ends += [(line["t"] - origin) / NS for line in history.journal if "t" in line]
    end = max(ends, default=0.0)
    return PlotData(
        operations=operations,
        bands=tuple(_bands(history.faults, origin, end)),
        phases=tuple((row["name"], (row["start"] - origin) / NS) for row in history.phases.to_pylist()),
        lanes=lanes,
        starts=_starts(events, wall),
        end=end,
        origin=origin,
        wall_ns=round(wall * NS),
    )


def _origin(history: History) -> tuple[int, float]:
    """The run's zero: CLOCK_MONOTONIC in ns, and the wall clock's seconds at that time."""
    for line in history.journal:
        if "t" in line and "wall" in line:
            return int(line["t"]), float(line["wall"])
    for table in (history.operations, history.registers):
        if table.num_rows:
            return int(pa.compute.min(table["inv"]).as_py()), 0.0
    return 0, 0.0


def _all_operations(history: History) -> pa.Table:
    """The columns that operations on logs and on registers share."""
    names = ["f", "type", "inv", "ret", "error"]
    return pa.concat_tables([history.operations.select(names), history.registers.select(names)]).unify_dictionaries()


def _operations(table: pa.Table, origin: int) -> PlottedOperations:
    stride = max(1, table.num_rows // MOST_OPERATIONS)
    inv = table["inv"].to_numpy()[::stride]
    ret = table["ret"].to_numpy()[::stride]
    last = int(max(inv.max(initial=origin), ret[ret < INF].max(initial=origin)))
    return PlottedOperations(
        invoked=(inv - origin) / NS,
        # An operation that never completed is drawn up to the end of the record.
        returned=(np.where(ret >= INF, last, ret) - origin) / NS,
        f=table["f"].to_numpy()[::stride].astype(np.int64),
        type=table["type"].to_numpy()[::stride].astype(np.int64),
        mismatched=_mismatched(table)[::stride],
    )


def _mismatched(table: pa.Table) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Compare-and-sets that failed with the answer that the key did not hold the expected value."""
    said = pa.compute.equal(table["error"].cast(pa.string()), MISMATCH).to_numpy()
    mask: np.ndarray[Any, np.dtype[np.bool_]] = np.asarray(said, np.bool_) & (table["f"].to_numpy() == CAS)
    return mask


def _bands(faults: pa.Table, origin: int, end: float) -> list[Band]:
    bands = []
    for row in faults.to_pylist():
        start = row["injected"] or row["invoked"]
        if start is None:
            continue
        stop = end if row["healed"] is None else (row["healed"] - origin) / NS
        bands.append(
            Band(
                row["kind"] or "?",
                tuple(row["targets"] or ()),
                (start - origin) / NS,
                stop,
                row["status"] or "inconclusive",
                row["group"] or "",
                row["mark"] or "",
            )
        )
    return sorted(bands, key=lambda band: band.start)


def fault_rows(history: History) -> list[dict[str, Any]]:
    """The faults as the verdict lists them: times in seconds since the start, evidence as recorded."""
    origin, _ = _origin(history)

    def seconds(t: int | None) -> float | None:
        return None if t is None else round((t - origin) / NS, 3)

    return [
        {
            "id": row["id"],
            "kind": row["kind"],
            "targets": list(row["targets"] or ()),
            "sentence": row["sentence"] or "",
            "status": row["status"],
            "start_s": seconds(row["injected"] or row["invoked"]),
            "end_s": seconds(row["healed"]),
            "evidence": json.loads(row["evidence"] or "{}"),
            "proof": row["proof"] or "",
            "parameters": json.loads(row["parameters"] or "{}"),
        }
        for row in history.faults.to_pylist()
    ]


def _lanes(events: NodeEvents, wall: float) -> dict[tuple[str, int], tuple[Lane, ...]]:
    """The replicas' reports of their progress, by partition; one lane for each node that reported."""
    found: dict[tuple[str, int], list[Lane]] = {}
    for node, of_node in events.items():
        rows: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
        for event in of_node:
            if _is_progress(event):
                rows.setdefault((event["topic"], event["partition"]), []).append(event)
        for key, reports in sorted(rows.items()):
            found.setdefault(key, []).append(_lane(node, reports, wall))
    return {key: tuple(lanes) for key, lanes in sorted(found.items())}


def _starts(events: NodeEvents, wall: float) -> dict[tuple[str, int], tuple[StartsLane, ...]]:
    """The starts of logs that replicas reported, by partition, for partitions with records in remote storage."""
    found: dict[tuple[str, int], list[StartsLane]] = {}
    for node, of_node in events.items():
        rows: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
        for event in of_node:
            numbers = ("partition", "log_start_offset", "local_start_offset", "last_tiered_offset")
            is_whole = isinstance(event.get("topic"), str) and all(fits(event.get(name)) for name in numbers)
            if event["event"] == "replica_starts" and is_whole:
                rows.setdefault((event["topic"], event["partition"]), []).append(event)
        for key, reports in sorted(rows.items()):
            found.setdefault(key, []).append(_starts_lane(node, reports, wall))
    tiered = {key for key, lanes in found.items() if any((lane.last_tiered >= 0).any() for lane in lanes)}
    return {key: tuple(lanes) for key, lanes in sorted(found.items()) if key in tiered}


def _starts_lane(node: str, reports: Sequence[Mapping[str, Any]], wall: float) -> StartsLane:
    time = np.array([moment(report) for report in reports], np.float64) / NS - wall
    names = ("log_start_offset", "local_start_offset", "last_tiered_offset")
    return StartsLane(node, time, *(np.array([report[name] for report in reports], np.int64) for name in names))


def _is_progress(event: Mapping[str, Any]) -> bool:
    """Whether an event reports a replica's progress with all fields that plots use."""
    numbers = ("partition", "log_end_offset", "high_watermark", "leader_epoch")
    is_whole = isinstance(event.get("topic"), str) and all(fits(event.get(name)) for name in numbers)
    return event["event"] == "replica_progress" and is_whole


def _lane(node: str, reports: Sequence[Mapping[str, Any]], wall: float) -> Lane:
    def column(name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.array([report[name] for report in reports], np.int64)

    time = np.array([moment(report) for report in reports], np.float64) / NS - wall
    return Lane(node, time, column("log_end_offset"), column("high_watermark"), column("leader_epoch"))


def statistics(history: History, view: PlotData) -> dict[str, Any]:
    """Counts and latencies of a run; times in seconds and milliseconds as the names say."""
    operations, every = view.operations, _all_operations(history)
    appends = operations.changes()
    acknowledged = operations.changes("ok")
    took = (operations.returned - operations.invoked)[acknowledged] * 1e3
    stats: dict[str, Any] = {
        "operations": every.num_rows,
        "appends": int(appends.sum()),
        "failed": _count(every, FAIL),
        "indeterminate": _count(every, INFO),
        "unfinished": history.unfinished,
        "records_read": _records_read(history.operations),
        "reads": _reads(history.registers),
        "duration_s": round(view.end, 3),
        "origin_ns": view.origin,
        "longest_outage_s": _longest_outage(operations),
    }
    for name, quantile in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0)):
        stats[f"latency_{name}_ms"] = round(float(np.quantile(took, quantile)), 3) if len(took) else None
    return stats


def _count(table: pa.Table, outcome: int) -> int:
    f, kind = table["f"].to_numpy(), table["type"].to_numpy()
    return int((np.isin(f, (APPEND, WRITE, CAS)) & (kind == outcome)).sum())


def _records_read(table: pa.Table) -> int:
    reads = table.filter(pa.compute.equal(table["f"], READ))
    return int(pa.compute.sum(pa.compute.list_value_length(reads["values"])).as_py() or 0)


def _reads(registers: pa.Table) -> int:
    """The number of answered reads of registers."""
    return int(((registers["f"].to_numpy() == READ) & (registers["type"].to_numpy() == OK)).sum())


def _longest_outage(operations: PlottedOperations) -> float | None:
    """The longest time without an acknowledgement, between the first and the last append; None if both have the same
    time, because an outage would not be visible."""
    invoked = operations.invoked[operations.changes()]
    if not len(invoked) or invoked.min() == invoked.max():
        return None
    returned: Floats = np.sort(operations.returned[operations.changes("ok")])
    first, last = float(invoked.min()), float(invoked.max())
    inside = returned[(returned >= first) & (returned <= last)]
    return round(float(np.diff(np.concatenate(([first], inside, [last]))).max()), 3)

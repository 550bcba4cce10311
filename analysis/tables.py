"""The tables of a run as Parquet: operations by partition, faults, phases, and the nodes' protocol events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from analysis.evidence.run_directory import NodeEvents, moment
from history.reader import History

EVENTS: Final = pa.schema(
    [
        pa.field("node", pa.string()),
        pa.field("wall", pa.int64()),
        pa.field("event", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("fields", pa.string()),
    ]
)
"""One row per protocol event; `wall` in nanoseconds, `fields` the event's own fields as JSON."""


def write_tables(history: History, events: NodeEvents, run_dir: Path) -> None:
    """Write `tables/` from the run's history and the nodes' events, replacing older ones, without the operations: they
    were written when the history was read."""
    tables = run_dir / "tables"
    tables.mkdir(exist_ok=True)
    pq.write_table(history.faults, tables / "faults.parquet")
    pq.write_table(history.phases, tables / "phases.parquet")
    pq.write_table(_events(events), tables / "events.parquet", compression="zstd")


def _events(events: NodeEvents) -> pa.Table:
    rows = [
        {
            "node": node,
            "wall": moment(event),
            "event": event["event"],
            "topic": event.get("topic"),
            "partition": event.get("partition"),
            "fields": json.dumps(
                {k: v for k, v in event.items() if k not in ("event", "wall", "seen", "topic", "partition", "on")}
            ),
        }
        for node, of_node in events.items()
        for event in of_node
    ]
    return pa.Table.from_pylist(rows, EVENTS)

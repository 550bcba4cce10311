"""Collects the records around the offsets at which replicas differ, for the plot of diverging logs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc
import pyarrow.parquet as pq

from analysis.page.witness_text import record_text
from analysis.plots.replicas import LaneCell
from analysis.replicafiles.log import NO_VALUE
from history.regular_files import require_regular
from history.topic_folders import folder_of

AROUND: Final = 40


def logs_around(
    run_dir: Path, topic: str, partition: int, offsets: Sequence[int]
) -> tuple[dict[str, dict[int, LaneCell]], list[int]]:
    """Node -> offset -> cell near `offsets`, and the offsets there at which the replicas' records differ."""
    folder = folder_of(run_dir / "tables" / "replicas", topic, partition)
    first, last = min(offsets, default=0) - AROUND, max(offsets, default=0) + AROUND
    near = (pc.field("offset") >= first) & (pc.field("offset") <= last)
    logs: dict[str, dict[int, LaneCell]] = {}
    records: dict[int, set[tuple[int, int]]] = {}
    for row in (row for path in sorted(folder.glob("*.parquet")) for row in _rows(path, near)):
        logs.setdefault(row["node"], {})[row["offset"]] = LaneCell(
            row["epoch"], record_text(-1 if row["value"] == NO_VALUE else row["value"])
        )
        records.setdefault(row["offset"], set()).add((row["epoch"], row["digest"]))
    return logs, sorted(offset for offset, different in records.items() if len(different) > 1)


def _rows(path: Path, near: pc.Expression) -> list[dict[str, Any]]:
    return list(pq.ParquetFile(require_regular(path)).read().filter(near).to_pylist())

"""Draws all plots of a run into `plots/`, for every verdict."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from analysis.core.anomaly import Anomaly
from analysis.core.explain import name_of
from analysis.core.register_witness import describe
from analysis.plots import performance, replicas, spacetime, tiers
from analysis.plots.divergence_data import logs_around
from analysis.plots.spacetime_data import spacetime_of
from analysis.plots.view import PlotData
from analysis.plots.witness import WitnessBar, witness
from analysis.verdict import Verdict

MOST_LANES: Final = 6
MOST_ANOMALIES: Final = 6
MOST_BARS: Final = 12


def draw(run_dir: Path, view: PlotData, verdict: Verdict) -> list[Path]:
    """Draw all plots into `plots/`, replacing older ones; returns the files. The names order the report; `anomaly-N`
    belongs to the Nth anomaly."""
    folder = run_dir / "plots"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    drawings: dict[str, Callable[[], bytes | None]] = {
        "1-latency": lambda: performance.latency(view),
        "2-rate": lambda: performance.rate(view),
        "3-availability": lambda: performance.availability(view),
    }
    data = spacetime_of(run_dir, view, verdict.anomalies)
    if data is not None:
        drawings["0-lives"] = lambda: spacetime.lives(data)
        drawings["0-spacetime"] = lambda: spacetime.diagram(data)
    troubled = [(anomaly.topic, anomaly.partition) for anomaly in verdict.anomalies]
    shown = [key for key in dict.fromkeys([*troubled, *sorted(view.lanes)]) if key in view.lanes][:MOST_LANES]
    for topic, partition in shown:
        drawings[f"4-replicas-{topic}-{partition}"] = lambda t=topic, p=partition: replicas.lanes(view, t, p)  # type: ignore[misc]
    for topic, partition in [key for key in shown if key in view.starts]:
        drawings[f"5-tiers-{topic}-{partition}"] = lambda t=topic, p=partition: tiers.lanes(view, t, p)  # type: ignore[misc]
    for index, anomaly in enumerate(verdict.anomalies[:MOST_ANOMALIES]):
        drawings[f"anomaly-{index}"] = lambda a=anomaly: _anomaly(run_dir, view, a)  # type: ignore[misc]
    written = []
    for name, drawing in drawings.items():
        plot = drawing()
        if plot is not None:
            (folder / f"{name}.png").write_bytes(plot)
            written.append(folder / f"{name}.png")
    return written


def _anomaly(run_dir: Path, view: PlotData, anomaly: Anomaly) -> bytes | None:
    if anomaly.topic and any("node" in row for row in anomaly.witness):
        around = [int(row["offset"]) for row in anomaly.witness if row.get("offset", -1) >= 0]
        logs, differing = logs_around(run_dir, anomaly.topic, anomaly.partition, around)
        return replicas.divergence(anomaly.topic, anomaly.partition, logs, differing or around) if logs else None
    bars = [bar for row in anomaly.witness[:MOST_BARS] if (bar := _bar(view, row)) is not None]
    where = f" in {anomaly.where}" if anomaly.topic else ""
    return witness(anomaly.name + where, bars, view.bands) if bars else None


def _bar(view: PlotData, row: Mapping[str, Any]) -> WitnessBar | None:
    if row.get("inv") is None or row["inv"] < 0:
        return None
    start = (row["inv"] - view.origin) / 1e9
    returned = row.get("ret")
    end = None if returned is None or returned >= 1 << 60 else (returned - view.origin) / 1e9
    return WitnessBar(_label(row), start, end, guilty=True)


def _label(row: Mapping[str, Any]) -> str:
    """One line that says what an operation did and showed."""
    client, kind, offset = row.get("client", "?"), row.get("op"), row.get("offset", -1)
    if "key" in row:
        return f"{client}: {describe(row)}: {row.get('type')}"
    if kind == "append":
        at = f" at offset {offset}" if offset >= 0 else ""
        return f"{client}: append of {name_of(row['value'])}{at}: {row.get('type')}"
    if kind == "read":
        shown = ", ".join(f"{name_of(value)} at {at}" for at, value in row.get("records", [])[:3])
        final = "final read" if row.get("phase") == "final" else "read"
        return f"{client}: {final} from {offset} showed {row.get('record_count')} records: {shown}"
    return f"{client}: asked for the end, got {row.get('hi', row.get('lo'))}"

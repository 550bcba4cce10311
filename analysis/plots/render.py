"""Draws all plots of a run into `plots/`, for every verdict."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

from analysis.core.anomaly import Anomaly
from analysis.plots import performance, replicas, spacetime, tiers
from analysis.plots.divergence_data import logs_around
from analysis.plots.spacetime_data import spacetime_of
from analysis.plots.view import PlotData
from analysis.plots.witness_operations import MOST_BARS, operations_of
from analysis.verdict import Verdict
from installation.counted import counted

MOST_LANES: Final = 6
MOST_ANOMALIES: Final = 6
LEFT_OUT: Final = "left_out.json"
"""The file in `plots/` that lists what has no plot, as sentences."""


Drawing = Callable[[PlotData], bytes | None]


def draw(
    run_dir: Path, view: PlotData, verdict: Verdict, drawn: Mapping[str, bytes | None] = MappingProxyType({})
) -> list[Path]:
    """Draw all plots into `plots/`, replacing older ones; returns the files. The names order the report; `anomaly-N`
    belongs to the Nth anomaly. `drawn`: by name, plots from `draw_early`."""
    folder = run_dir / "plots"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    troubled = [(anomaly.topic, anomaly.partition) for anomaly in verdict.anomalies]
    drawings = _of_clients() | _of_replicas(view, troubled)
    data = spacetime_of(run_dir, view, verdict.anomalies)
    if data is not None:
        drawings["0-lives"] = lambda _: spacetime.lives(data)
        drawings["0-spacetime"] = lambda _: spacetime.diagram(data)
    for index, anomaly in enumerate(verdict.anomalies[:MOST_ANOMALIES]):
        drawings[f"anomaly-{index}"] = partial(_anomaly, run_dir, anomaly)
    ordered = by_relevance(view.lanes, troubled)
    left_out = _left_out(ordered, with_plots(ordered, troubled), verdict)
    (folder / LEFT_OUT).write_text(json.dumps(left_out, indent=1) + "\n", encoding="utf-8")
    written = []
    for name, drawing in drawings.items():
        plot = drawn[name] if name in drawn else drawing(view)
        if plot is not None:
            (folder / f"{name}.png").write_bytes(plot)
            written.append(folder / f"{name}.png")
    return written


def draw_early(view: PlotData, stop: Callable[[], bool]) -> dict[str, bytes | None]:
    """The plots that do not depend on the verdict, by name, until `stop` returns true before one. Those of replicas are
    the ones that a run without anomalies shows. A plot that cannot be drawn is not in the result."""
    drawn: dict[str, bytes | None] = {}
    for name, drawing in (_of_clients() | _of_replicas(view, ())).items():
        if stop():
            break
        with contextlib.suppress(Exception):  # `draw` tries it again, and raises
            drawn[name] = drawing(view)
    return drawn


def _of_clients() -> dict[str, Drawing]:
    return {"1-latency": performance.latency, "2-rate": performance.rate, "3-availability": performance.availability}


def _of_replicas(view: PlotData, troubled: Sequence[tuple[str, int]]) -> dict[str, Drawing]:
    shown = with_plots(by_relevance(view.lanes, troubled), troubled)
    drawings: dict[str, Drawing] = {}
    for topic, partition in shown:
        drawings[f"4-replicas-{topic}-{partition}"] = partial(replicas.lanes, topic=topic, partition=partition)
    for topic, partition in [key for key in shown if key in view.starts]:
        drawings[f"5-tiers-{topic}-{partition}"] = partial(tiers.lanes, topic=topic, partition=partition)
    return drawings


def by_relevance(lanes: Mapping[tuple[str, int], object], troubled: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """The partitions with replicas: those with anomalies first, then those of the workload, then the system's own,
    whose topics start with two underscores."""
    rest = sorted(lanes, key=lambda key: (key[0].startswith("__"), key))
    return [key for key in dict.fromkeys([*troubled, *rest]) if key in lanes]


def with_plots(ordered: Sequence[tuple[str, int]], troubled: Collection[tuple[str, int]]) -> list[tuple[str, int]]:
    """Those of the partitions, in the order of `by_relevance`, whose replicas are drawn: the system's own only with an
    anomaly, or if the run has only these."""
    return [key for key in ordered if key in troubled or not key[0].startswith("__")][:MOST_LANES] or [
        *ordered[:MOST_LANES]
    ]


def _left_out(ordered: Sequence[tuple[str, int]], shown: Sequence[tuple[str, int]], verdict: Verdict) -> list[str]:
    """What has no plot because of the bounds above, as sentences."""
    sentences = []
    if unshown := [key for key in ordered if key not in shown]:
        named = ", ".join(f"{topic}-{partition}" for topic, partition in unshown[:MOST_LANES])
        more = f" and {len(unshown) - MOST_LANES} more" if len(unshown) > MOST_LANES else ""
        sentences.append(
            f"no plot of the replicas of {len(unshown)} of {counted(len(ordered), 'partition')}: {named}{more}"
        )
    if len(verdict.anomalies) > MOST_ANOMALIES:
        sentences.append(f"no plot of {len(verdict.anomalies) - MOST_ANOMALIES} of {len(verdict.anomalies)} anomalies")
    if any(len(anomaly.witness) > MOST_BARS for anomaly in verdict.anomalies[:MOST_ANOMALIES]):
        sentences.append(f"plots of witnesses show the first {MOST_BARS} operations")
    return sentences


def _anomaly(run_dir: Path, anomaly: Anomaly, view: PlotData) -> bytes | None:
    if anomaly.topic and any("node" in row for row in anomaly.witness):
        around = [int(row["offset"]) for row in anomaly.witness if row.get("offset", -1) >= 0]
        logs, differing = logs_around(run_dir, anomaly.topic, anomaly.partition, around)
        return replicas.divergence(anomaly.topic, anomaly.partition, logs, differing or around) if logs else None
    return operations_of(anomaly, view.origin, view.bands)

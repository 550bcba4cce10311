"""Draws all plots of a run into `plots/`, for every verdict.

Plots the contradicting operations as bars on a time axis whose pauses are shortened.

An append and the final read that contradicts it may be minutes apart and take milliseconds each. So the axis is linear
only between two neighbouring times: each interval between them gets a width by the square root of its length, within
bounds. The times at the ticks are exact.
"""

import contextlib
import io
import json
import shutil
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pyarrow.compute as pc
import pyarrow.parquet as pq
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Patch, Rectangle

from analysis.core.anomaly import Anomaly
from analysis.evidence.run_directory import moment, node_events, node_names
from analysis.page.witness_text import begins_at, ends_at, operation_text, record_text
from analysis.plots import curves
from analysis.plots.colors import EPOCH_COLORS, INK, epoch_color
from analysis.plots.curves import thin
from analysis.plots.data import Lane, PlotData, StartsLane
from analysis.plots.style import MOST_LEVELS, TextLevels, draw_bands, empty_note, fault_color, figure, label_bands, png
from analysis.replicafiles.log import NO_VALUE
from analysis.verdict import Verdict
from history import strict_json
from history.journal.timeline import DOWN, SUSPENDED, FaultSpan, RunClock
from history.record.schemas import INF
from history.regular_files import open_regular, require_regular
from history.topic_folders import folder_of
from installation.counted import counted

# ---- Plots replicas: lanes over time, and logs that diverge.

CELLS_AROUND = 7
MOST_CELLS = 18


def replica_lanes(view: PlotData, topic: str, partition: int) -> bytes:
    """Log end offset (line) and high watermark (dashes) of each replica, its lane coloured by leader epoch."""
    replicas = view.lanes.get((topic, partition), ())
    with figure(max(len(replicas), 1), height=1.1 + 1.25 * max(len(replicas), 1), layout="tight") as (drawn, rows):
        rows[0].set_title(f"Replicas of {topic}-{partition}: log end offset, high watermark, leader epoch", pad=46)
        top = max((int(lane.log_end_offset.max()) for lane in replicas if len(lane.time)), default=1)
        for axes, lane in zip(rows, replicas, strict=False):
            draw_bands(axes, view.bands)
            points = thin(len(lane.time), 1_500)
            levels = TextLevels(max(view.end, 1.0))
            for start, stop, epoch in _runs(lane.leader_epoch.tolist()):
                until = lane.time[stop] if stop < len(lane.time) else view.end
                color = epoch_color(epoch)
                axes.axvspan(lane.time[start], until, ymin=0, ymax=0.06, color=color, lw=0)
                if levels.of(float(lane.time[start]), str(epoch), 1) is not None:
                    axes.text(lane.time[start], top * 0.07, f" {epoch}", fontsize=7, va="bottom", color=INK)
            axes.step(
                lane.time[points],
                lane.log_end_offset[points],
                where="post",
                color="#0072b2",
                lw=1.5,
                label="log end offset",
            )
            axes.step(
                lane.time[points], lane.high_watermark[points], where="post", color="#d55e00", lw=1.2, ls="--",
                label="high watermark",
            )  # fmt: skip
            axes.set_ylabel(lane.node, rotation=0, ha="right", va="center", fontweight="bold")
            axes.set_ylim(0, top * 1.05 + 1)
        if replicas:
            rows[0].legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
            label_bands(rows[0], view.bands, (0.0, max(view.end, 1.0)))
        else:
            empty_note(rows[0], "no replica reported its progress")
        rows[-1].set_xlabel("seconds since the start (the strip below each lane: leader epoch)")
        rows[-1].set_xlim(0, max(view.end, 1.0))
        return png(drawn)


def _runs(values: Sequence[int]) -> list[tuple[int, int, int]]:
    """Maximal runs of equal values as (start, stop, value)."""
    runs: list[tuple[int, int, int]] = []
    start = 0
    for index in range(1, len(values) + 1):
        if index == len(values) or values[index] != values[start]:
            runs.append((start, index, values[start]))
            start = index
    return runs


@dataclass(frozen=True)
class LaneCell:
    """One record in one replica's log: its leader epoch and a short text for its value."""

    epoch: int
    text: str


def divergence(
    topic: str, partition: int, logs: Mapping[str, Mapping[int, LaneCell]], differing: Sequence[int]
) -> bytes:
    """Logs aligned by offset and coloured by leader epoch around the offsets at which replicas differ.

    `logs` is node -> offset -> cell; `differing` the offsets whose records are not equal on all that have them.
    """
    first = max(min(differing, default=0) - CELLS_AROUND, 0)
    longest = max((offset for log in logs.values() for offset in log), default=0)
    last = min(max(differing, default=0) + CELLS_AROUND, first + MOST_CELLS, max(longest, first))
    nodes = sorted(logs)
    with figure(height=1.5 + 0.75 * len(nodes)) as (drawn, (axes,)):
        contents = {tuple(log.get(offset) for offset in differing) for log in logs.values()}
        preposition = "diverge at" if len(contents) > 1 else "around"
        axes.set_title(f"The logs of {topic}-{partition} {preposition} offset {min(differing, default=0)}")
        for row, node in enumerate(nodes):
            for offset in range(first, last + 1):
                cell = logs[node].get(offset)
                if cell is not None:
                    _draw_cell(axes, offset, row, cell, offset in differing)
        axes.set_yticks(range(len(nodes)), nodes, fontweight="bold")
        axes.set_xticks(range(first, last + 1))
        axes.set_xlabel(
            "offset (cell: record as session.producer.number; e and colour: leader epoch; red frame: replicas differ)"
        )
        axes.set_xlim(first - 0.6, last + 0.6)
        axes.set_ylim(len(nodes) - 0.4, -0.6)
        axes.grid(False)
        return png(drawn)


def _draw_cell(axes: Axes, offset: int, row: int, cell: LaneCell, differs: bool) -> None:
    axes.add_patch(
        Rectangle(
            (offset - 0.44, row - 0.32), 0.88, 0.64, facecolor=epoch_color(cell.epoch), alpha=0.55,
            edgecolor="#c1121f" if differs else "white", linewidth=2.6 if differs else 1,
        )
    )  # fmt: skip
    axes.text(offset, row - 0.07, cell.text, ha="center", va="center", fontsize=6.5, color=INK)
    axes.text(offset, row + 0.2, f"e{cell.epoch}", ha="center", va="center", fontsize=6.5, color=INK)


# ---- Plots where the records of each replica are over time: in remote storage, in its own files, or in both.

REMOTE, OWN = "#56b4e9", "#e69f00"
MOST_POINTS = 1_500


def start_lanes(view: PlotData, topic: str, partition: int) -> bytes:
    """One lane for each replica: lines for log start, local start, last tiered offset, high watermark and log end
    offset, an area for what is in remote storage, and one for what is in the replica's own files."""
    starts = view.starts.get((topic, partition), ())
    progress = {lane.node: lane for lane in view.lanes.get((topic, partition), ())}
    ends = [int(lane.log_end_offset.max()) for lane in progress.values() if len(lane.time)]
    with figure(max(len(starts), 1), height=1.3 + 1.6 * max(len(starts), 1)) as (drawn, rows):
        rows[0].set_title(f"Remote storage of {topic}-{partition}: where each replica's records are", pad=46)
        for axes, lane in zip(rows, starts, strict=False):
            draw_bands(axes, view.bands)
            _starts(axes, lane, view.end)
            if lane.node in progress:
                _ends(axes, progress[lane.node], lane, view.end)
            axes.set_ylabel(lane.node, rotation=0, ha="right", va="center", fontweight="bold")
            axes.set_ylim(0, max(ends, default=1) * 1.05 + 1)
        rows[0].legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        label_bands(rows[0], view.bands, (0.0, max(view.end, 1.0)))
        rows[-1].set_xlabel("seconds since the start")
        rows[-1].set_xlim(0, max(view.end, 1.0))
        return png(drawn)


def _starts(axes: Axes, lane: StartsLane, end: float) -> None:
    points = thin(len(lane.time), MOST_POINTS)
    time = [*lane.time[points], end]
    start, local, tiered = (
        [*column[points], *column[points][-1:]] for column in (lane.log_start, lane.local_start, lane.last_tiered)
    )
    axes.fill_between(time, start, [level + 1 for level in tiered], step="post", color=REMOTE, alpha=0.35, lw=0)
    axes.step(time, start, where="post", color="#333333", lw=1.2, label="log start")
    axes.step(time, local, where="post", color=OWN, lw=1.6, label="local start")
    axes.step(time, tiered, where="post", color="#0072b2", lw=1.2, label="last tiered")


def _ends(axes: Axes, lane: Lane, starts: StartsLane, end: float) -> None:
    """Log end and high watermark, and the area between the local start and the log end."""
    points = thin(len(lane.time), MOST_POINTS)
    time = [*lane.time[points], end]
    ends, marks = ([*column[points], *column[points][-1:]] for column in (lane.log_end_offset, lane.high_watermark))
    at = starts.time.searchsorted(time, side="right") - 1
    local = [int(starts.local_start[max(index, 0)]) for index in at]
    above = [local_end <= limit for local_end, limit in zip(local, ends, strict=True)]
    axes.fill_between(time, local, ends, where=above, step="post", color=OWN, alpha=0.3, lw=0)
    axes.step(time, marks, where="post", color="#d55e00", lw=1.0, ls="--", label="high watermark")
    axes.step(time, ends, where="post", color="#009e73", lw=1.2, label="log end offset")


# ---- Plots the nodes' roles over time, and the space-time diagram of their messages around one moment.

CLIENTS: Final = "clients"
MOST_ARROWS: Final = 44
"""The most messages in one diagram; more would be unreadable."""
LEAST_WINDOW_S, MOST_WINDOW_S = 0.02, 2.0
HALF: Final = 0.13  # of a lane's bar, lanes being 1 apart
FAMILIES: Final = {
    "election": "#882255",
    "controller": "#e69f00",
    "replication": "#0072b2",
    "clients": "#009e73",
}
LOST: Final = "#c1121f"
_TURNS: Final = ("leader", "truncated", "controller")
_MARKERS: Final = {"controller": "D", "leader": "^", "isr": "o", "truncated": "X"}


@dataclass(frozen=True)
class Stretch:
    """The role of a node for some time: `leader`, `follower`, `up`, `down` or `suspended`. Seconds since the start;
    `epoch` -1 without one."""

    node: str
    begin_s: float
    end_s: float
    role: str
    epoch: int


@dataclass(frozen=True)
class Mark:
    """Something that a node did."""

    node: str
    at_s: float
    text: str
    kind: str


@dataclass(frozen=True)
class Arrow:
    """A message; `arrived_s` None: it was lost."""

    source: str
    target: str
    sent_s: float
    arrived_s: float | None
    family: str
    answer: bool
    text: str


@dataclass(frozen=True)
class Spacetime:
    """The data of both plots. `where`: the partition whose leaders are shown. `guilty_s`: the invocation of the first
    operation in a contradiction, None without one."""

    nodes: tuple[str, ...]
    where: str
    stretches: tuple[Stretch, ...]
    marks: tuple[Mark, ...]
    arrows: tuple[Arrow, ...]
    bands: tuple[FaultSpan, ...]
    end_s: float
    guilty_s: float | None


def lives(data: Spacetime) -> bytes:
    """One lane per node over the whole run: leaders by epoch, times without a process, marks, and the faults."""
    with figure(height=1.7 + 0.95 * len(data.nodes)) as (drawn, (axes,)):
        axes.set_title(f"The nodes' lives{': ' + data.where if data.where else ''}", pad=46)
        draw_bands(axes, data.bands)
        label_bands(axes, data.bands, (0.0, data.end_s))
        _draw_lanes(axes, data, data.nodes)
        _draw_marks(axes, [mark for mark in data.marks if mark.kind != "isr"], data.nodes, (0.0, data.end_s))
        if data.guilty_s is not None:
            axes.axvline(data.guilty_s, color=LOST, lw=1.2, ls=(0, (4, 3)))
            axes.text(
                data.guilty_s, -0.57, " the operation that is contradicted", color=LOST, fontsize=7.5, va="bottom"
            )
        axes.set_xlim(0, max(data.end_s, 0.1))
        axes.set_xlabel("virtual seconds")
        _legend_of_lanes(axes, data)
        return png(drawn)


def diagram(data: Spacetime) -> bytes:
    """The messages around one moment, each from its sender to its receiver, slanted by its transit time.

    The moment is that of `moment_of`."""
    lanes = (CLIENTS, *data.nodes) if any(CLIENTS in (mark.source, mark.target) for mark in data.arrows) else data.nodes
    begin_s, end_s = _window(data)
    shown = [mark for mark in data.arrows if begin_s <= mark.sent_s and (mark.arrived_s or mark.sent_s) <= end_s]
    with figure(height=1.9 + 1.25 * len(lanes)) as (drawn, (axes,)):
        place = f" around {data.where}" if data.where else ""
        axes.set_title(f"Messages{place}, {begin_s:.3f} s to {end_s:.3f} s", pad=46)
        bands = [band for band in data.bands if band.end_s > begin_s and band.start_s < end_s]
        draw_bands(axes, bands)
        label_bands(axes, bands, (begin_s, end_s))
        _draw_lanes(axes, data, lanes)
        for arrow in shown:
            _draw_arrow(axes, arrow, lanes, end_s - begin_s)
        _name_arrows(axes, shown, lanes, (begin_s, end_s))
        _draw_marks(axes, data.marks, lanes, (begin_s, end_s))
        if not shown:
            empty_note(axes, "only heartbeats were sent here")
        axes.set_xlim(begin_s, end_s)
        axes.set_xlabel("virtual seconds (without heartbeats and empty fetches)")
        families = [name for name in FAMILIES if any(arrow.family == name for arrow in shown)]
        handles = [Line2D([], [], color=FAMILIES[name], label=name) for name in families]
        if any(arrow.arrived_s is None for arrow in shown):
            handles.append(Line2D([], [], color=LOST, marker="x", ls="--", label="never arrived"))
        axes.legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5))
        return png(drawn)


def _window(data: Spacetime) -> tuple[float, float]:
    """The time span of the diagram: as long as the number of messages permits."""
    centre = moment_of(data)
    near = sorted(abs(arrow.sent_s - centre) for arrow in data.arrows)
    half = near[MOST_ARROWS] if len(near) > MOST_ARROWS else (near[-1] if near else 0.0)
    half = min(max(half, LEAST_WINDOW_S / 2), MOST_WINDOW_S / 2)
    return max(0.0, centre - half * 0.9), centre + half * 1.1


def moment_of(data: Spacetime) -> float:
    """The time that the diagram shows, in seconds. With a contradiction: the first event after the contradicted
    operation that may have undone it, which is the first change of the partition's leader, else the first truncated
    log, else the first change of the controller. Without one: the first of all these after the first fault."""
    turns = [mark for mark in data.marks if mark.kind in _TURNS]
    if data.guilty_s is not None:
        later = [mark for mark in turns if mark.at_s >= data.guilty_s]
        return min(later, key=lambda mark: _TURNS.index(mark.kind)).at_s if later else data.guilty_s
    faults = min((band.start_s for band in data.bands), default=0.0)
    late = [mark.at_s for mark in turns if mark.at_s >= faults]
    return (late or [mark.at_s for mark in turns] or [data.end_s / 2])[0]


def _draw_lanes(axes: Axes, data: Spacetime, lanes: Sequence[str]) -> None:
    rows = {name: len(lanes) - 1 - number for number, name in enumerate(lanes)}
    for row in rows.values():
        axes.axhline(row, color="#cbd2d9", lw=1, zorder=1.5)
    for stretch in data.stretches:
        if stretch.end_s > stretch.begin_s:
            axes.add_patch(_bar(stretch, rows[stretch.node]))
    axes.set_yticks(list(rows.values()), list(rows), fontweight="bold")
    axes.set_ylim(-0.6, len(lanes) - 0.4)
    axes.grid(visible=False, axis="y")


def _bar(stretch: Stretch, row: int) -> Rectangle:
    place, width = (stretch.begin_s, row - HALF), stretch.end_s - stretch.begin_s
    if stretch.role == DOWN:
        return Rectangle(place, width, 2 * HALF, facecolor="white", edgecolor="#9aa5b1", hatch="////", lw=0, zorder=2.5)
    if stretch.role in ("leader", "follower"):
        color = epoch_color(stretch.epoch)
        alpha = 0.95 if stretch.role == "leader" else 0.3
        half = HALF if stretch.role == "leader" else HALF * 0.6
        return Rectangle((stretch.begin_s, row - half), width, 2 * half, facecolor=color, alpha=alpha, lw=0, zorder=2)
    if stretch.role == "up":
        return Rectangle((stretch.begin_s, row - HALF * 0.3), width, HALF * 0.6, facecolor="#9aa5b1", lw=0, zorder=2)
    return Rectangle(place, width, 2 * HALF, facecolor="none", edgecolor="#b08900", hatch="....", lw=0, zorder=2.6)


def _draw_marks(axes: Axes, marks: Sequence[Mark], lanes: Sequence[str], window: tuple[float, float]) -> None:
    """Draw marks above the lanes, stacked where they would collide."""
    levels = {lane: TextLevels(window[1] - window[0]) for lane in lanes}
    for mark in marks:
        if not window[0] <= mark.at_s <= window[1]:
            continue
        row = len(lanes) - 1 - lanes.index(mark.node)
        axes.plot(
            [mark.at_s], [row], marker=_MARKERS[mark.kind], ms=6, color=INK, mec="white", mew=0.8, ls="", zorder=6
        )
        axes.annotate(
            mark.text,
            xy=(mark.at_s, row + HALF),
            xytext=(3, 2 + 9 * (levels[mark.node].of(mark.at_s, mark.text) or 0)),
            textcoords="offset points",
            fontsize=7.2,
            color=INK,
            zorder=7,
            bbox={"boxstyle": "round,pad=0.12", "fc": "white", "ec": "none", "alpha": 0.78},
        )


def _name_arrows(axes: Axes, arrows: Sequence[Arrow], lanes: Sequence[str], window: tuple[float, float]) -> None:
    """Each request's name, next to its arrow, where there is room between the lanes."""
    levels = {row: TextLevels(window[1] - window[0]) for row in range(len(lanes))}
    for arrow in arrows:
        if arrow.answer:
            continue
        rows = sorted(len(lanes) - 1 - lanes.index(name) for name in (arrow.source, arrow.target))
        text = arrow.text.split(" ", 1)[0]
        level = levels[rows[0]].of(arrow.sent_s, text, MOST_LEVELS)
        if level is None:
            continue
        axes.annotate(
            text,
            xy=(arrow.sent_s, rows[0] + 0.3),
            xytext=(3, 9 * level),
            textcoords="offset points",
            fontsize=6.6,
            color=FAMILIES[arrow.family],
            zorder=6,
            bbox={"boxstyle": "round,pad=0.08", "fc": "white", "ec": "none", "alpha": 0.7},
        )


def _draw_arrow(axes: Axes, arrow: Arrow, lanes: Sequence[str], width_s: float) -> None:
    source, target = (len(lanes) - 1 - lanes.index(name) for name in (arrow.source, arrow.target))
    up = 1 if target > source else -1
    begin = (arrow.sent_s, source + up * HALF)
    if arrow.arrived_s is None:  # it ends halfway
        end = (arrow.sent_s + width_s * 0.004, source + (target - source) * 0.45)
        axes.plot(*zip(begin, end, strict=True), color=LOST, lw=0.9, ls="--", zorder=4)
        axes.plot(*end, color=LOST, marker="x", ms=5, zorder=5)
        return
    axes.add_patch(
        FancyArrowPatch(
            begin,
            (arrow.arrived_s, target - up * HALF),
            arrowstyle="-|>",
            mutation_scale=8,
            color=FAMILIES[arrow.family],
            lw=0.8 if arrow.answer else 1.3,
            ls=(0, (3, 1.5)) if arrow.answer else "-",
            alpha=0.85,
            shrinkA=0,
            shrinkB=0,
            zorder=4,
        )
    )


def _legend_of_lanes(axes: Axes, data: Spacetime) -> None:
    roles = {stretch.role for stretch in data.stretches}
    handles: list[Patch | Line2D] = [
        Patch(facecolor=EPOCH_COLORS[0], alpha=0.95, label="leads (colour: epoch)"),
        Patch(facecolor=EPOCH_COLORS[0], alpha=0.3, label="follows"),
    ]
    if DOWN in roles:
        handles.append(Patch(facecolor="white", edgecolor="#9aa5b1", hatch="////", label="does not run"))
    if SUSPENDED in roles:
        handles.append(Patch(facecolor="none", edgecolor="#b08900", hatch="....", label="stands still"))
    axes.legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5))


# ---- Reads a simulated run's recorded messages for the space-time plots.

FILE_NAME: Final = "messages.jsonl"
_SHARES: Final = {
    "Fetch": "replication",
    "OffsetForLeaderEpoch": "replication",
    "Produce": "clients",
    "ListOffsets": "clients",
    "Vote": "election",
    "BeginQuorumEpoch": "election",
    "EndQuorumEpoch": "election",
}
"""The family of each kind of message; all others are the controller's."""
_CLIENTS: Final = "clients"


def spacetime_of(run_dir: Path, view: PlotData, anomalies: tuple[Anomaly, ...]) -> Spacetime | None:
    """The nodes' roles for one partition (the first anomaly's, if it has one), with all messages; None if the run did
    not record messages. Raises `OSError`, `ValueError`."""
    if not (run_dir / FILE_NAME).exists():
        return None
    nodes = tuple(node_names(run_dir))
    events = {node: list(node_events(run_dir, node)) for node in nodes}
    topic, partition = _partition(anomalies, events)
    stretches: list[Stretch] = []
    marks: list[Mark] = []
    for node in nodes:
        stretches += _stretches(node, events[node], view, topic, partition)
        marks += _marks(node, events[node], view, topic, partition)
    return Spacetime(
        nodes=nodes,
        where=f"{topic}-{partition}" if topic else "",
        stretches=tuple(stretches),
        marks=tuple(sorted(marks, key=lambda mark: mark.at_s)),
        arrows=tuple(_arrows(run_dir, nodes)),
        bands=view.bands,
        end_s=view.end,
        guilty_s=_guilty(anomalies, view),
    )


def _partition(anomalies: tuple[Anomaly, ...], events: Mapping[str, Sequence[Mapping[str, Any]]]) -> tuple[str, int]:
    """The partition whose leaders are shown: the first anomaly's, or the one whose leader changed most often."""
    for anomaly in anomalies:
        if anomaly.topic and anomaly.partition >= 0:
            return anomaly.topic, anomaly.partition
    led: dict[tuple[str, int], int] = {}
    for event in (numbered for of_node in events.values() for numbered in of_node):
        if event["event"] == "partition_role" and event["role"] == "leader":
            key = event["topic"], event["partition"]
            led[key] = led.get(key, 0) + 1
    return max(sorted(led), key=lambda key: led[key], default=("", 0))


def _guilty(anomalies: tuple[Anomaly, ...], view: PlotData) -> float | None:
    """The invocation of the first operation that contradicts others."""
    moments = [row["inv"] for anomaly in anomalies[:1] for row in anomaly.witness if 0 <= row.get("inv", -1) < INF]
    return view.clock.of_monotonic(min(moments)) if moments else None


def _is_of(event: Mapping[str, Any], topic: str, partition: int) -> bool:
    return event.get("topic") == topic and event.get("partition") == partition


def _stretches(
    node: str, events: Sequence[Mapping[str, Any]], view: PlotData, topic: str, partition: int
) -> Iterator[Stretch]:
    """A node's role for the partition, from event to event, overlaid with the times without a process."""
    roles = [
        (view.clock.of_wall(moment(event)), event)
        for event in events
        if event["event"] == "broker_started"
        or (event["event"] == "partition_role" and _is_of(event, topic, partition))
    ]
    for number, (begins, event) in enumerate(roles):
        ends = roles[number + 1][0] if number + 1 < len(roles) else view.end
        yield Stretch(node, begins, ends, str(event.get("role", "up")), int(event.get("leader_epoch", -1)))
    for band in view.bands:
        state = band.process_state
        if state and node in band.targets:
            yield Stretch(node, band.start_s, band.end_s, state, -1)


def _marks(
    node: str, events: Sequence[Mapping[str, Any]], view: PlotData, topic: str, partition: int
) -> Iterator[Mark]:
    for event in events:
        at_s, name = view.clock.of_wall(moment(event)), event["event"]
        if name == "controller_active":
            yield Mark(node, at_s, f"controller, epoch {event['epoch']}", "controller")
        elif name == "partition_role" and _is_of(event, topic, partition) and event["role"] == "leader":
            yield Mark(node, at_s, f"leads, epoch {event['leader_epoch']}", "leader")
        elif name == "isr_changed" and _is_of(event, topic, partition):
            yield Mark(node, at_s, f"ISR {', '.join(f'n{member}' for member in event['isr'])}", "isr")
        elif name == "truncated" and _is_of(event, topic, partition) and event["from_offset"] != event["to_offset"]:
            yield Mark(node, at_s, f"truncates {event['from_offset']} to {event['to_offset']}", "truncated")
        elif name == "log_shortened" and _is_of(event, topic, partition):
            yield Mark(node, at_s, f"log ends at {event['log_end_offset']}", "truncated")


def _arrows(run_dir: Path, nodes: tuple[str, ...]) -> Iterator[Arrow]:
    with io.BufferedReader(open_regular(run_dir / FILE_NAME)) as file:
        for line in map(strict_json.decode, file):
            source, target = (_lane(line[end], nodes) for end in ("source", "target"))
            if source == target:
                continue
            lost = line.get("arrived_s") is None
            if line.get("routine") and not lost:
                continue
            family = _CLIENTS if _CLIENTS in (source, target) else _SHARES.get(line["what"], "controller")
            text = f"{line['what']} {line.get('text', '')}".strip()
            yield Arrow(source, target, line["sent_s"], line.get("arrived_s"), family, line["answer"], text)


def _lane(host: str, nodes: tuple[str, ...]) -> str:
    return host if host in nodes else _CLIENTS


# ---- Collects the records around the offsets at which replicas differ, for the plot of diverging logs.

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
        drawings["0-lives"] = lambda _: lives(data)
        drawings["0-spacetime"] = lambda _: diagram(data)
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
    return {"1-latency": curves.latency, "2-rate": curves.rate, "3-availability": curves.availability}


def _of_replicas(view: PlotData, troubled: Sequence[tuple[str, int]]) -> dict[str, Drawing]:
    shown = with_plots(by_relevance(view.lanes, troubled), troubled)
    drawings: dict[str, Drawing] = {}
    for topic, partition in shown:
        drawings[f"4-replicas-{topic}-{partition}"] = partial(replica_lanes, topic=topic, partition=partition)
    for topic, partition in [key for key in shown if key in view.starts]:
        drawings[f"5-tiers-{topic}-{partition}"] = partial(start_lanes, topic=topic, partition=partition)
    return drawings


def by_relevance(lanes: Mapping[tuple[str, int], object], troubled: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """The partitions with replicas: those with anomalies first, then those of the workload, then the system's own,
    whose topics start with two underscores."""
    ordered = sorted(lanes, key=lambda key: (key[0].startswith("__"), key))
    return [key for key in dict.fromkeys([*troubled, *ordered]) if key in lanes]


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
        suffix = f" and {len(unshown) - MOST_LANES} more" if len(unshown) > MOST_LANES else ""
        sentences.append(
            f"no plot of the replicas of {len(unshown)} of {counted(len(ordered), 'partition')}: {named}{suffix}"
        )
    if len(verdict.anomalies) > MOST_ANOMALIES:
        sentences.append(f"no plot of {len(verdict.anomalies) - MOST_ANOMALIES} of {len(verdict.anomalies)} anomalies")
    if any(len(anomaly.witness) > MOST_BARS for anomaly in verdict.anomalies[:MOST_ANOMALIES]):
        sentences.append(f"plots of witnesses show the first {MOST_BARS} operations")
    return sentences


def _anomaly(run_dir: Path, anomaly: Anomaly, view: PlotData) -> bytes | None:
    if anomaly.topic and any("node" in row for row in anomaly.witness):
        offsets = [int(row["offset"]) for row in anomaly.witness if row.get("offset", -1) >= 0]
        logs, differing = logs_around(run_dir, anomaly.topic, anomaly.partition, offsets)
        return divergence(anomaly.topic, anomaly.partition, logs, differing or offsets) if logs else None
    return operations_of(anomaly, view.clock, view.bands)


# ---- The operations of a witness as the bars of a plot.

NARROWEST, WIDEST = 1.0, 5.0
"""The bounds of an interval's width, relative to each other."""
MOST_NAMED: Final = 8
GUILTY: Final = "#c1121f"


@dataclass(frozen=True)
class WitnessBar:
    """One operation of a witness: invocation and completion in seconds (`end` None: it never completed)."""

    label: str
    start: float
    end: float | None


class ShortenedAxis:
    """Maps seconds to places of an axis on which long intervals between `times` are shortened."""

    def __init__(self, times: Sequence[float]) -> None:
        self.times = sorted(set(times))
        lengths = [after - before for before, after in zip(self.times, self.times[1:], strict=False)]
        unit = min(lengths, default=1.0) or 1.0
        self.places = [0.0]
        for length in lengths:
            self.places.append(self.places[-1] + min(max((length / unit) ** 0.5, NARROWEST), WIDEST))

    def place(self, at: float) -> float:
        """The place of a time; times outside are at half a unit beyond the ends."""
        if at < self.times[0]:
            return -0.5
        if at >= self.times[-1]:
            return self.places[-1] + (0.5 if at > self.times[-1] else 0.0)
        left = bisect_right(self.times, at) - 1
        share = (at - self.times[left]) / (self.times[left + 1] - self.times[left])
        return self.places[left] + share * (self.places[left + 1] - self.places[left])


def witness(title: str, bars: Sequence[WitnessBar], bands: Sequence[FaultSpan]) -> bytes:
    """Draw a witness: one row per operation with its text above its bar, and the faults in force with a legend."""
    ends = [bar.end for bar in bars if bar.end is not None] + [bar.start for bar in bars]
    axis = ShortenedAxis(ends)
    shown = [band for band in bands if band.start_s <= axis.times[-1] and band.end_s >= axis.times[0]]
    with figure(height=1.9 + 0.55 * len(bars) + 0.14 * min(len(shown), MOST_NAMED)) as (drawn, (axes,)):
        axes.set_title(title)
        for band in shown:
            axes.axvspan(axis.place(band.start_s), axis.place(band.end_s), color=fault_color(band), alpha=0.16, lw=0)
        for row, bar in enumerate(bars):
            left = axis.place(bar.start)
            right = axis.places[-1] + 0.5 if bar.end is None else axis.place(bar.end)
            axes.barh(row, max(right - left, 0.12), left=left, height=0.36, color=GUILTY, alpha=0.8)
            never = "" if bar.end is not None else " (never completed)"
            axes.text(-0.5, row - 0.3, bar.label + never, fontsize=8, color=INK)
        axes.set_ylim(len(bars) - 0.4, -0.9)
        axes.set_yticks([])
        axes.set_xlim(-0.6, axis.places[-1] + 0.6)
        axes.set_xticks(axis.places, [f"{at:.3f}" for at in axis.times], rotation=45, ha="right", fontsize=7.5)
        axes.set_xlabel("seconds since the start (pauses are shortened)")
        _legend(drawn, shown)
        return png(drawn)


def _legend(drawn: Figure, bands: Sequence[FaultSpan]) -> None:
    handles = [
        Patch(
            facecolor=fault_color(band),
            alpha=0.4,
            label=f"{band.kind} {','.join(band.targets)}, {band.start_s:.2f} s to {band.end_s:.2f} s",
        )
        for band in bands[:MOST_NAMED]
    ]
    if len(bands) > MOST_NAMED:
        handles.append(
            Patch(facecolor="none", label=f"{counted(len(bands) - MOST_NAMED, 'more fault')}: see the table of faults")
        )
    if handles:
        drawn.legend(handles=handles, loc="outside lower left", ncols=2, fontsize=7.5)


MOST_BARS: Final = 12


def operations_of(
    anomaly: Anomaly,
    clock: RunClock,
    bands: Sequence[FaultSpan],
    text_of: Callable[[Mapping[str, Any]], str] = operation_text,
) -> bytes | None:
    """The plot of a witness that consists of operations, None if none has a time. `clock`: with the zero of its
    axis; `text_of`: what an operation did, in one line."""
    bars = [bar for row in anomaly.witness[:MOST_BARS] if (bar := _witness_bar(row, clock, text_of)) is not None]
    place = f" in {anomaly.where}" if anomaly.topic else ""
    return witness(anomaly.name + place, bars, bands) if bars else None


def _witness_bar(
    row: Mapping[str, Any], clock: RunClock, text_of: Callable[[Mapping[str, Any]], str]
) -> WitnessBar | None:
    start, end = begins_at(row), ends_at(row)
    if start is None:
        return None
    end_s = None if end is None else clock.of_monotonic(end)
    return WitnessBar(f"{row.get('client', '?')}: {text_of(row)}", clock.of_monotonic(start), end_s)

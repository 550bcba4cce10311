"""Plots replicas: lanes over time, and logs that diverge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from analysis.plots.colors import INK, epoch_color
from analysis.plots.performance import thin
from analysis.plots.style import TextLevels, draw_bands, empty_note, figure, label_bands, png
from analysis.plots.view import PlotData

CELLS_AROUND = 7
MOST_CELLS = 18


def lanes(view: PlotData, topic: str, partition: int) -> bytes:
    """Log end offset (line) and high watermark (dashes) of each replica, its lane coloured by leader epoch."""
    replicas = view.lanes.get((topic, partition), ())
    with figure(max(len(replicas), 1), height=1.1 + 1.25 * max(len(replicas), 1), layout="tight") as (drawn, rows):
        rows[0].set_title(f"Replicas of {topic}-{partition}: log end offset, high watermark, leader epoch", pad=46)
        top = max((int(lane.log_end_offset.max()) for lane in replicas if len(lane.time)), default=1)
        for axes, lane in zip(rows, replicas, strict=False):
            draw_bands(axes, view.bands)
            some = thin(len(lane.time), 1_500)
            levels = TextLevels(max(view.end, 1.0))
            for start, stop, epoch in _runs(lane.leader_epoch.tolist()):
                until = lane.time[stop] if stop < len(lane.time) else view.end
                color = epoch_color(epoch)
                axes.axvspan(lane.time[start], until, ymin=0, ymax=0.06, color=color, lw=0)
                if levels.of(float(lane.time[start]), str(epoch), 1) is not None:
                    axes.text(lane.time[start], top * 0.07, f" {epoch}", fontsize=7, va="bottom", color=INK)
            axes.step(
                lane.time[some],
                lane.log_end_offset[some],
                where="post",
                color="#0072b2",
                lw=1.5,
                label="log end offset",
            )
            axes.step(
                lane.time[some], lane.high_watermark[some], where="post", color="#d55e00", lw=1.2, ls="--",
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
        what = "diverge at" if len(contents) > 1 else "around"
        axes.set_title(f"The logs of {topic}-{partition} {what} offset {min(differing, default=0)}")
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

"""Plots where the records of each replica are over time: in remote storage, in its own files, or in both."""

from __future__ import annotations

from matplotlib.axes import Axes

from analysis.plots.performance import thin
from analysis.plots.style import draw_bands, figure, label_bands, png
from analysis.plots.view import Lane, PlotData, StartsLane

REMOTE, OWN = "#56b4e9", "#e69f00"
MOST_POINTS = 1_500


def lanes(view: PlotData, topic: str, partition: int) -> bytes:
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
    some = thin(len(lane.time), MOST_POINTS)
    time = [*lane.time[some], end]
    start, local, tiered = (
        [*column[some], *column[some][-1:]] for column in (lane.log_start, lane.local_start, lane.last_tiered)
    )
    axes.fill_between(time, start, [each + 1 for each in tiered], step="post", color=REMOTE, alpha=0.35, lw=0)
    axes.step(time, start, where="post", color="#333333", lw=1.2, label="log start")
    axes.step(time, local, where="post", color=OWN, lw=1.6, label="local start")
    axes.step(time, tiered, where="post", color="#0072b2", lw=1.2, label="last tiered")


def _ends(axes: Axes, lane: Lane, starts: StartsLane, end: float) -> None:
    """Log end and high watermark, and the area between the local start and the log end."""
    some = thin(len(lane.time), MOST_POINTS)
    time = [*lane.time[some], end]
    ends, marks = ([*column[some], *column[some][-1:]] for column in (lane.log_end_offset, lane.high_watermark))
    at = starts.time.searchsorted(time, side="right") - 1
    local = [int(starts.local_start[max(index, 0)]) for index in at]
    above = [each <= behind for each, behind in zip(local, ends, strict=True)]
    axes.fill_between(time, local, ends, where=above, step="post", color=OWN, alpha=0.3, lw=0)
    axes.step(time, marks, where="post", color="#d55e00", lw=1.0, ls="--", label="high watermark")
    axes.step(time, ends, where="post", color="#009e73", lw=1.2, label="log end offset")

"""Plots latency, rate and availability of a run, with the faults on the same time axis, and what explorations saw."""

from collections.abc import Mapping, Sequence
from typing import Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.plots.colors import INK
from analysis.plots.data import OPERATIONS, OUTCOMES, PLURALS, Floats, PlotData, PlottedOperations
from analysis.plots.style import (
    OUTCOME_STYLE,
    draw_bands,
    empty_note,
    fault_color,
    figure,
    label_bands,
    name_kinds,
    png,
)
from history.journal.timeline import FaultSpan

QUANTILES = ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"), (1.0, "max"))
QUANTILE_COLORS = ("#56b4e9", "#0072b2", "#cc79a7", "#882255")
MOST_POINTS = 4_000
MOST_RECOVERIES = 60
RECOVERY_LETTER = 0.0088  # width of a letter, as a share of the axis


def thin(count: int, most: int = MOST_POINTS) -> slice:
    """A stride that leaves at most `most` of `count` rows; the extremes are drawn by the quantile lines."""
    return slice(None, None, max(1, -(-count // most)))


def latency(view: PlotData) -> bytes:
    """Every append as a point by outcome, and the quantiles per time window as lines. Logarithmic, in milliseconds.

    Indeterminate appends are drawn at their invocation, on a rail above all others.
    """
    with figure(height=4.0) as (drawn, (axes,)):
        axes.set_title(f"Latency of {view.operations.noun()}", pad=46)
        draw_bands(axes, view.bands)
        label_bands(axes, view.bands, (0.0, max(view.end, 1.0)))
        operations = view.operations
        shown = False
        for outcome in OUTCOMES:
            mask = operations.changes(outcome)
            if not mask.any():
                continue
            shown = True
            invoked = operations.invoked[mask]
            took = np.maximum((operations.returned[mask] - invoked) * 1e3, 1e-3)
            if outcome == "info":  # never completed: on a rail above the slowest that did
                took = np.full(len(invoked), _rail(operations))
            chosen = thin(len(invoked))
            style = OUTCOME_STYLE[outcome]
            axes.scatter(
                invoked[chosen], took[chosen], s=9 if outcome == "ok" else 20, alpha=0.35 if outcome == "ok" else 0.8,
                marker=style["marker"], color=style["color"], label=f"{outcome} ({view.count(outcome):,})",
                linewidths=0.8, zorder=3,
            )  # fmt: skip
        if shown:
            _quantile_lines(axes, operations, view.end)
            axes.set_yscale("log")
            axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        else:
            empty_note(axes, f"none of the {view.operations.noun()} was completed")
        axes.set_ylabel("milliseconds")
        thinned = f"; every {operations.stride}th operation is drawn" if operations.stride > 1 else ""
        axes.set_xlabel(f"seconds since the start{thinned}")
        axes.set_xlim(0, max(view.end, 1.0))
        return png(drawn)


def _rail(operations: PlottedOperations) -> float:
    """The height, in milliseconds, of the rail for appends without completion."""
    completed = operations.changes() & ~operations.changes("info")
    took = operations.returned[completed] - operations.invoked[completed]
    return float(took.max(initial=1e-3)) * 2e3


def _quantile_lines(axes: Axes, operations: PlottedOperations, end: float) -> None:
    mask = operations.changes("ok")
    invoked = operations.invoked[mask]
    took = (operations.returned[mask] - invoked) * 1e3
    edges = np.linspace(0, max(end, 1.0), 61)
    windows = np.digitize(invoked, edges) - 1
    centers = (edges[:-1] + edges[1:]) / 2
    for (quantile, name), color in zip(QUANTILES, QUANTILE_COLORS, strict=True):
        values = [np.quantile(took[windows == w], quantile) if (windows == w).any() else np.nan for w in range(60)]
        axes.plot(centers, np.maximum(values, 1e-3), color=color, lw=1.3, label=name, zorder=4)


def rate(view: PlotData) -> bytes:
    """Operations per second by outcome, one panel for each kind: completions, and invocations of indeterminate ones."""
    present = view.rates["f"].to_pylist()
    panels = [name for number, name in enumerate(OPERATIONS) if number in present] or ["append"]
    with figure(len(panels), height=1.2 + 1.5 * len(panels)) as (drawn, rows):
        rows[0].set_title("Rate by operation and outcome", pad=46)
        width = max(1, -(-int(view.end) // 240))
        for axes, name in zip(rows, panels, strict=True):
            draw_bands(axes, view.bands)
            for outcome in OUTCOMES:
                seconds = view.rate(name, outcome)
                if seconds.num_rows:
                    windows = seconds["second"].to_numpy() // width
                    counts = np.bincount(windows, seconds["operations"], int(max(view.end, 1.0)) // width + 1)
                    color = OUTCOME_STYLE[outcome]["color"]
                    moments = np.arange(len(counts)) * width
                    axes.step(moments, counts / width, where="post", color=color, lw=1.3, label=outcome)
            axes.set_ylabel(f"{PLURALS[name]}\nper second")
            if axes.get_legend_handles_labels()[0]:
                axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        label_bands(rows[0], view.bands, (0.0, max(view.end, 1.0)))
        rows[-1].set_xlabel("seconds since the start")
        rows[-1].set_xlim(0, max(view.end, 1.0))
        return png(drawn)


Recovery = tuple[FaultSpan, float | None, float | None]


def recovery_times(view: PlotData) -> list[Recovery]:
    """For each fault: seconds from its start, and from its end, until the next served change that was invoked later."""
    return [(band, _until_served(view, band.start_s), _until_served(view, band.end_s)) for band in view.bands]


def _until_served(view: PlotData, moment: float) -> float | None:
    return view.first_served[moment] - moment if moment in view.first_served else None


def availability(view: PlotData) -> bytes:
    """The share of changes that the system served over time as a strip, and the time to the next one after each
    fault."""
    shown = view.bands[:MOST_RECOVERIES]
    with figure(2, height=3.1 + 0.16 * len(shown), ratios=[1, 1.1 + 0.16 * len(shown)]) as (drawn, (strip, bars)):
        strip.set_title("Availability, and recovery after each fault")
        bars.set_xlabel("seconds since the start")
        bars.set_xlim(0, max(view.end, 1.0))
        _availability_strip(strip, view)
        _recovery_bars(bars, recovery_times(view)[:MOST_RECOVERIES], len(view.bands) - len(shown))
        name_kinds(bars, view.bands)
        return png(drawn)


def served_share(view: PlotData) -> tuple[Floats, Floats]:
    """The edges of time windows, in seconds, and for each window the share of its changes that the system served.

    A window in which no change was invoked, while at least one was in flight, has the share 0: the clients were
    blocked. Without a change in flight, or after the last invocation, the share is not a number: no client asked."""
    operations = view.operations
    width = max(0.5, view.end / 400)
    edges = np.arange(0, max(view.end, 1.0) + width, width)
    changes = operations.changes()
    invoked, returned = operations.invoked[changes], operations.returned[changes]
    every, _ = np.histogram(invoked, edges)
    good, _ = np.histogram(operations.invoked[operations.served()], edges)
    share = np.divide(good, every, out=np.full(len(every), np.nan), where=every > 0)
    invoked_before = np.searchsorted(np.sort(invoked), edges[:-1])
    over = np.searchsorted(np.sort(returned), edges[1:])
    blocked = (every == 0) & (invoked_before > over) & (edges[:-1] < invoked.max(initial=-1.0))
    share[blocked] = 0.0
    return edges, share


def _availability_strip(axes: Axes, view: PlotData) -> None:
    edges, share = served_share(view)
    axes.imshow(
        share[None, :], aspect="auto", extent=(0.0, float(edges[-1]), 0.0, 1.0), cmap="cividis", vmin=0, vmax=1,
        interpolation="nearest",
    )  # fmt: skip
    axes.set_yticks([])
    axes.grid(False)
    axes.set_ylabel(f"{view.operations.noun()}\nserved".replace(" and ", "\nand "), rotation=0, ha="right", va="center")
    colors = mpl.colormaps["cividis"]
    axes.legend(
        handles=[
            Patch(facecolor=colors(1.0), label="all served"),
            Patch(facecolor=colors(0.5), label="half"),
            Patch(facecolor=colors(0.0), label="not served"),
            Patch(facecolor="white", edgecolor="#7b8794", label="no client asked"),
        ],
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
    )
    if np.isnan(share).all():
        empty_note(axes, "no change was invoked")


def _recovery_text(axes: Axes, row: int, text: str, bar: tuple[float, float]) -> None:
    """Beside the bar on the side with room, else on the bar."""
    end = axes.get_xlim()[1]
    gap, width = end * 0.01, end * RECOVERY_LETTER * len(text)
    if bar[1] + gap + width <= end:
        place, side = bar[1] + gap, "left"
    elif bar[0] - gap - width >= 0:
        place, side = bar[0] - gap, "right"
    else:
        place, side = max(end - width - gap, 0.0), "left"
    box = {"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.8}
    axes.text(place, row, text, va="center", ha=side, fontsize=7.5, color=INK, bbox=box)


def _recovery_bars(axes: Axes, recoveries: Sequence[Recovery], unshown: int) -> None:
    """`unshown`: the number of faults that are not in `recoveries`."""
    if unshown:
        axes.set_title(f"the first {len(recoveries)} faults; {unshown} more in the table", fontsize=8.5)
    axes.set_ylim(max(len(recoveries), 1) - 0.4, -0.6)
    axes.set_yticks(
        range(len(recoveries)), [f"{band.kind} {','.join(band.targets)}" for band, _, _ in recoveries], fontsize=8
    )
    for row, (band, after_start, after_end) in enumerate(recoveries):
        color = fault_color(band)
        axes.barh(row, band.end_s - band.start_s, left=band.start_s, height=0.55, color=color, alpha=0.45)
        if after_start is None:
            axes.text(band.end_s, row, "  no change was served after it", va="center", fontsize=7.5, color="#d55e00")
            continue
        axes.plot([band.start_s, band.start_s + after_start], [row, row], color=INK, lw=1.6, marker="|", ms=8)
        text = f"  next served {after_start:.2f} s after its start"
        if after_end is not None:
            text += f", {after_end:.2f} s after its end"
        right_s = max(band.end_s, band.start_s + after_start)
        _recovery_text(axes, row, text.strip(), (band.start_s, right_s))
    if not recoveries:
        empty_note(axes, "no fault was injected")


_STYLES: Final[Mapping[str, tuple[str, str]]] = {"guided": ("#0072b2", "-"), "random": ("#d55e00", "--")}
_FOUND: Final = "#c1121f"


def coverage(curves: Mapping[str, Sequence[int]], covered: Mapping[str, Sequence[int]]) -> bytes:
    """A line for each way of choosing runs: the number of different abstract states after each run. `covered`: the
    numbers of the runs, from 1, that found an anomaly."""
    with figure(height=4.2) as (drawn, (axes,)):
        axes.set_title("Different abstract states, by the number of runs")
        for name, curve in curves.items():
            color, line = _STYLES.get(name, (INK, ":"))
            runs = range(1, len(curve) + 1)
            axes.plot(runs, curve, color=color, ls=line, lw=2)
            if curve:
                axes.annotate(
                    f" {name}: {curve[-1]:,}",
                    (len(curve), curve[-1]),
                    color=color,
                    fontweight="bold",
                    va="center",
                    annotation_clip=False,
                )
            hits = [number for number in covered.get(name, ()) if number <= len(curve)]
            axes.plot(hits, [curve[number - 1] for number in hits], ls="", marker="X", ms=8, color=_FOUND, mec="white")
        if any(covered.values()):
            axes.legend(
                handles=[Line2D([], [], ls="", marker="X", ms=8, color=_FOUND, mec="white", label="an anomaly")],
                loc="upper left",
            )
        if not any(curves.values()):
            empty_note(axes, "no run was made")
        axes.set_xlabel("runs")
        axes.set_ylim(bottom=0)
        axes.set_xlim(left=0)
        return png(drawn)

"""The operations of a witness as the bars of a plot.

Plots the contradicting operations as bars on a time axis whose pauses are shortened.

An append and the final read that contradicts it may be minutes apart and take milliseconds each. So the axis is linear
only between two neighbouring times: each interval between them gets a width by the square root of its length, within
bounds. The times at the ticks are exact.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from analysis.core.anomaly import Anomaly
from analysis.page.witness_text import begins_at, ends_at, operation_text
from analysis.plots.colors import INK
from analysis.plots.style import fault_color, figure, png
from history.journal.timeline import FaultSpan, RunClock
from installation.counted import counted

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
    bars = [bar for row in anomaly.witness[:MOST_BARS] if (bar := _bar(row, clock, text_of)) is not None]
    place = f" in {anomaly.where}" if anomaly.topic else ""
    return witness(anomaly.name + place, bars, bands) if bars else None


def _bar(row: Mapping[str, Any], clock: RunClock, text_of: Callable[[Mapping[str, Any]], str]) -> WitnessBar | None:
    start, end = begins_at(row), ends_at(row)
    if start is None:
        return None
    end_s = None if end is None else clock.of_monotonic(end)
    return WitnessBar(f"{row.get('client', '?')}: {text_of(row)}", clock.of_monotonic(start), end_s)

"""Plots the contradicting operations as bars on a time axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.plots.style import INK, draw_bands, figure, png
from analysis.plots.view import Band


@dataclass(frozen=True)
class WitnessBar:
    """One operation of a witness: invocation and completion in seconds (`end` None: it never completed)."""

    label: str
    start: float
    end: float | None
    guilty: bool


def witness(title: str, bars: Sequence[WitnessBar], bands: Sequence[Band]) -> bytes:
    """Draw a witness; the contradicting operations in red with their text, context in grey."""
    known = [bar.end for bar in bars if bar.end is not None] + [bar.start for bar in bars]
    low, high = min(known), max(known)
    margin = max((high - low) * 0.15, 0.05)
    with figure(height=1.3 + 0.5 * len(bars)) as (drawn, (axes,)):
        axes.set_title(title)
        draw_bands(axes, [band for band in bands if band.start <= high + margin and band.end >= low - margin])
        for row, bar in enumerate(bars):
            end = high + margin if bar.end is None else bar.end
            color = "#c1121f" if bar.guilty else "#7b8794"
            axes.barh(
                row, max(end - bar.start, (high - low) * 0.004), left=bar.start, height=0.42, color=color, alpha=0.75
            )
            axes.text(
                bar.start,
                row - 0.34,
                bar.label + ("" if bar.end is not None else " (never completed)"),
                fontsize=8,
                color=INK,
            )
        axes.set_ylim(len(bars) - 0.4, -0.9)
        axes.set_yticks([])
        axes.set_xlim(low - margin, high + margin)
        axes.set_xlabel("seconds since the start")
        return png(drawn)

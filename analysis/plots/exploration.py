"""Plots the number of different states that an exploration has seen, by the number of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from matplotlib.lines import Line2D

from analysis.plots.colors import INK
from analysis.plots.style import empty_note, figure, png

_STYLES: Final[Mapping[str, tuple[str, str]]] = {"guided": ("#0072b2", "-"), "random": ("#d55e00", "--")}
_FOUND: Final = "#c1121f"


def coverage(curves: Mapping[str, Sequence[int]], found: Mapping[str, Sequence[int]]) -> bytes:
    """A line for each way of choosing runs: the number of different abstract states after each run. `found`: the
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
            hits = [number for number in found.get(name, ()) if number <= len(curve)]
            axes.plot(hits, [curve[number - 1] for number in hits], ls="", marker="X", ms=8, color=_FOUND, mec="white")
        if any(found.values()):
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

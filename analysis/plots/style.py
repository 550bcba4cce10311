"""The style of all plots: legible at half size, with colours for red-green colour blindness."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.plots.view import Band
from history.fault_looks import FaultGroup, FaultMark

# Okabe and Ito's palette, in the order of use.
INK = "#1f2933"
OUTCOME_STYLE = {
    "ok": {"color": "#0072b2", "marker": "."},
    "fail": {"color": "#d55e00", "marker": "x"},
    "info": {"color": "#e69f00", "marker": "^"},
}
GROUP_COLORS = {
    FaultGroup.PROCESS: "#d55e00",
    FaultGroup.POWER: "#cc79a7",
    FaultGroup.MACHINE: "#e69f00",
    FaultGroup.CLOCK: "#009e73",
    FaultGroup.PARTITION: "#0072b2",
    FaultGroup.PACKETS: "#56b4e9",
    FaultGroup.DISK: "#882255",
    FaultGroup.OBJECTS: "#000078",
    FaultGroup.STORE: "#0000f0",
}
MARKERS = {
    FaultMark.CIRCLE: "o",
    FaultMark.SQUARE: "s",
    FaultMark.DIAMOND: "D",
    FaultMark.TRIANGLE_UP: "^",
    FaultMark.TRIANGLE_DOWN: "v",
    FaultMark.STAR: "*",
    FaultMark.CROSS: "X",
}
# The look of faults whose journal has no group and mark, or one that this version does not know.
OTHER_FAULT = "#333333"
OTHER_MARKER = "|"
EPOCH_COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#882255")

STYLE = {
    "figure.dpi": 110,
    "figure.constrained_layout.use": True,
    "font.size": 9.5,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#7b8794",
    "axes.labelcolor": INK,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.grid": True,
    "grid.color": "#e4e7eb",
    "grid.linewidth": 0.8,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
}


@contextmanager
def figure(
    rows: int = 1, *, height: float = 3.2, ratios: Sequence[float] | None = None
) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure of stacked axes that share their time axis, in the house style; closed when the block ends."""
    with plt.rc_context(STYLE):  # type: ignore[arg-type]
        drawn, axes = plt.subplots(
            rows,
            1,
            figsize=(10.5, height),
            sharex=True,
            squeeze=False,
            gridspec_kw={"height_ratios": ratios or [1] * rows},
        )
        try:
            yield drawn, list(axes[:, 0])
        finally:
            plt.close(drawn)


def png(drawn: Figure) -> bytes:
    """The figure as a PNG file."""
    engine = drawn.get_layout_engine()
    if engine is not None:  # otherwise the layout would run during a full draw whose result is discarded
        engine.execute(drawn)
        drawn.set_layout_engine("none")
    buffer = io.BytesIO()
    drawn.savefig(buffer, format="png", facecolor="white")
    return buffer.getvalue()


def fault_color(band: Band) -> str:
    """The colour of the fault's group."""
    return next((color for group, color in GROUP_COLORS.items() if group == band.group), OTHER_FAULT)


def fault_marker(band: Band) -> str:
    """The matplotlib marker of the fault's shape, which is unique in its group."""
    return next((marker for mark, marker in MARKERS.items() if mark == band.mark), OTHER_MARKER)


def draw_bands(axes: Axes, bands: Sequence[Band], *, named: bool = False) -> None:
    """Faults as translucent bands in their group's colour, with their mark at the start; unconfirmed ones are hatched.

    With `named`, their names are along the upper edge."""
    for band in bands:
        color = fault_color(band)
        axes.axvspan(
            band.start, band.end, color=color, alpha=0.16, lw=0, hatch=None if band.status == "confirmed" else "///"
        )
        axes.axvline(band.start, color=color, lw=0.9, alpha=0.8)
        axes.plot(
            [band.start],
            [0.04],
            marker=fault_marker(band),
            color=color,
            ms=6,
            transform=axes.get_xaxis_transform(),
            zorder=4,
        )
    if named:
        label_bands(axes, bands)


def label_bands(axes: Axes, bands: Sequence[Band]) -> None:
    """Write each fault's kind and targets above its band, slanted so that neighbours do not collide."""
    for band in bands:
        who = ",".join(band.targets)
        label = f"{band.kind} {who}" if len(who) <= 8 else band.kind
        axes.annotate(
            label,
            xy=(band.start, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(1, 3),
            textcoords="offset points",
            rotation=28,
            fontsize=7.5,
            color=fault_color(band),
            annotation_clip=False,
        )


def empty_note(axes: Axes, text: str) -> None:
    """Write the reason into the middle of an empty plot."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color="#7b8794", fontsize=11)


Drawing = Callable[[], bytes]

"""The style of all plots: legible at half size, with colours for red-green colour blindness."""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import matplotlib as mpl

from installation.counted import counted
from installation.sanitize import shortened, visible

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from analysis.plots.colors import INK, fault_color_of
from history.fault_looks import FaultMark
from history.journal.timeline import FaultSpan

# Okabe and Ito's palette, in the order of use.
OUTCOME_STYLE = {
    "ok": {"color": "#0072b2", "marker": "."},
    "fail": {"color": "#d55e00", "marker": "x"},
    "info": {"color": "#e69f00", "marker": "^"},
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
OTHER_MARKER = "|"
LETTER = 0.0082  # width of a small letter, as a share of the plot's width
MOST_LEVELS = 3  # of labels, above each other
MOST_LETTERS = 110  # of one text
RIGHT_ROOM = 0.08  # a label may end so far right of the plot, as a share of its width

STYLE = {
    "figure.dpi": 110,
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
    rows: int = 1,
    *,
    height: float = 3.2,
    ratios: Sequence[float] | None = None,
    layout: Literal["constrained", "tight"] = "constrained",
) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure of stacked axes that share their time axis, in the house style; closed when the block ends. `layout`:
    "tight" measures the texts once and "constrained" twice, which legends outside of the axes need."""
    with plt.rc_context(STYLE):  # type: ignore[arg-type]
        drawn, axes = plt.subplots(
            rows,
            1,
            figsize=(10.5, height),
            sharex=True,
            squeeze=False,
            gridspec_kw={"height_ratios": ratios or [1] * rows},
            layout=layout,
        )
        try:
            yield drawn, list(axes[:, 0])
        finally:
            plt.close(drawn)


def _hide_far_texts(axes: Axes) -> None:
    """Hide texts at times far outside of the axis, for which the layout would make room: those of a node with a wrong
    clock, or of a run without its journal, which relates the clocks."""
    low, high = sorted(axes.get_xlim())
    room = (high - low) * RIGHT_ROOM
    for text in axes.texts:
        is_at_time, _ = text.get_transform().contains_branch_seperately(axes.transData)
        if is_at_time and not low - room <= float(text.get_position()[0]) <= high + room:
            text.set_visible(False)


def png(drawn: Figure) -> bytes:
    """The figure as a PNG file. Its texts may come from clients: control characters are escapes, "$" starts no
    formula, and long texts are cut, which would otherwise leave no room for the axes."""
    of_axis = [axis for axes in drawn.axes for axis in (axes.xaxis, axes.yaxis)]
    ticks = {text for axis in of_axis for text in axis.findobj(Text)} - {axis.label for axis in of_axis}
    for text in {*drawn.findobj(Text)} - ticks:
        assert isinstance(text, Text)
        text.set_text(shortened(visible(text.get_text()), MOST_LETTERS))
        text.set_parse_math(False)
    for axes in drawn.axes:
        _hide_far_texts(axes)
    engine = drawn.get_layout_engine()
    if engine is not None:  # otherwise the layout would run during a full draw whose result is discarded
        engine.execute(drawn)
        drawn.set_layout_engine("none")
    buffer = io.BytesIO()
    drawn.savefig(buffer, format="png", facecolor="white")
    return buffer.getvalue()


def fault_color(band: FaultSpan) -> str:
    """The colour of the fault's group."""
    return fault_color_of(band.group)


def fault_marker(band: FaultSpan) -> str:
    """The matplotlib marker of the fault's shape, which is unique in its group."""
    return next((marker for mark, marker in MARKERS.items() if mark == band.mark), OTHER_MARKER)


def draw_bands(axes: Axes, bands: Sequence[FaultSpan]) -> None:
    """Faults as translucent bands in their group's colour, with their mark at the start; unconfirmed ones are
    hatched."""
    across = axes.get_xaxis_transform()
    for is_confirmed in (True, False):
        mine = [band for band in bands if (band.status == "confirmed") is is_confirmed]
        axes.add_collection(
            PolyCollection(
                [[(band.start_s, 0), (band.start_s, 1), (band.end_s, 1), (band.end_s, 0)] for band in mine],
                facecolors=[to_rgba(fault_color(band), 0.16) for band in mine],
                edgecolors="none" if is_confirmed else [to_rgba(fault_color(band), 0.16) for band in mine],
                linewidths=0,
                hatch=None if is_confirmed else "///",
                transform=across,
            ),
            autolim=False,
        )
    axes.vlines(
        [band.start_s for band in bands], 0, 1, colors=[fault_color(band) for band in bands], lw=0.9, alpha=0.8,
        transform=across,
    )  # fmt: skip
    for marker in dict.fromkeys(map(fault_marker, bands)):
        mine = [band for band in bands if fault_marker(band) == marker]
        colors = [fault_color(band) for band in mine]
        axes.scatter(
            [band.start_s for band in mine],
            [0.04] * len(mine),
            s=36,
            marker=marker,
            c=colors,
            transform=across,
            zorder=4,
        )


class TextLevels:
    """Assigns heights to texts, given from left to right, so that they do not overlap. `width`: of the axis, in its
    units; `letter`: the width of a letter, as a share of it."""

    def __init__(self, width: float, letter: float = LETTER) -> None:
        self._of_a_letter = width * letter
        self._ends: list[float] = []

    def of(self, at: float, text: str, most: int = 1 << 30) -> int | None:
        """The lowest height, from 0, at which there is room; None if that is not below `most`."""
        end = at + (len(text) + 2) * self._of_a_letter
        for level, end_s in enumerate(self._ends):
            if end_s <= at:
                self._ends[level] = end
                return level
        if len(self._ends) >= most:
            return None
        self._ends.append(end)
        return len(self._ends) - 1


def label_bands(axes: Axes, bands: Sequence[FaultSpan], window: tuple[float, float]) -> int:
    """Write the faults' names above the plot, stacked where they would collide; returns how many had no room. Their
    number is stated at the right, and their marks remain. `window`: the time span of the plot, in seconds."""
    width = window[1] - window[0]
    levels = TextLevels(width)
    left_out = 0
    for band in bands:
        at = max(band.start_s, window[0])
        text = f"{band.kind} {','.join(band.targets)}".strip()
        fits = at + len(text) * LETTER * width <= window[1] + RIGHT_ROOM * width
        level = levels.of(at, text, MOST_LEVELS) if fits else None
        if level is None:
            left_out += 1
            continue
        axes.annotate(
            text,
            xy=(at, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(1, 3 + 10 * level),
            textcoords="offset points",
            fontsize=7.5,
            color=fault_color(band),
            annotation_clip=False,
        )
    if left_out:
        _note_unnamed(axes, left_out)
    return left_out


def _note_unnamed(axes: Axes, count: int) -> None:
    axes.annotate(
        f"{counted(count, 'more fault')}: see the table of faults",
        xy=(1.0, 1.0),
        xycoords="axes fraction",
        xytext=(0, 36),
        textcoords="offset points",
        ha="right",
        fontsize=7.5,
        color=INK,
        annotation_clip=False,
    )


def name_kinds(axes: Axes, bands: Sequence[FaultSpan]) -> None:
    """A legend right of the plot: each kind of fault in it with its colour and mark."""
    kinds = {band.kind: band for band in bands}
    handles = [
        Line2D([], [], ls="", marker=fault_marker(band), color=fault_color(band), ms=6, label=kind)
        for kind, band in sorted(kinds.items())
    ]
    if handles:
        axes.legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5), title="faults", title_fontsize=8)


def empty_note(axes: Axes, text: str) -> None:
    """Write the reason into the middle of an empty plot."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color="#7b8794", fontsize=11)

"""Plots the nodes' roles over time, and the space-time diagram of their messages around one moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Patch, Rectangle

from analysis.plots.colors import EPOCH_COLORS, INK, epoch_color
from analysis.plots.style import MOST_LEVELS, TextLevels, draw_bands, empty_note, figure, label_bands, png
from history.journal.timeline import DOWN, SUSPENDED, FaultSpan

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
    lanes = (CLIENTS, *data.nodes) if any(CLIENTS in (it.source, it.target) for it in data.arrows) else data.nodes
    begin_s, end_s = _window(data)
    shown = [it for it in data.arrows if begin_s <= it.sent_s and (it.arrived_s or it.sent_s) <= end_s]
    with figure(height=1.9 + 1.25 * len(lanes)) as (drawn, (axes,)):
        where = f" around {data.where}" if data.where else ""
        axes.set_title(f"Messages{where}, {begin_s:.3f} s to {end_s:.3f} s", pad=46)
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
        after = [mark for mark in turns if mark.at_s >= data.guilty_s]
        return min(after, key=lambda mark: _TURNS.index(mark.kind)).at_s if after else data.guilty_s
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

"""Merges what clients, nodes and the run loop recorded into one list in order of time: the story around an anomaly.

Theory of operation. Readers of the run's files produce `StoryItem`s on one clock, each with its file and line.
`story_of` keeps the items between the first and the last moment of interest (the witness's operations), with `MARGIN_S`
on both sides. Log lines are kept only within `MARGIN_S` of a moment or of a turn. If too many items remain, the least
important ones go first, and of these the ones farthest from every moment. The number of items left out is stated by
kind.

Roles of nodes and faults in force are computed over all items before any is left out, so that each row shows the state
of every lane at its time even where the item that caused it is not shown.

This module is pure: it reads no file.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MARGIN_S: Final = 2.0
MOST_ROWS: Final = 250
GAP_S: Final = 0.5
"""A pause between two rows that is shown as a row of its own, in seconds."""
TURN: Final = 1
"""Items of this rank or less are turns: they may have caused the anomaly."""


class StoryKind(StrEnum):
    """What an item is about, in the words of the page's filter."""

    OPERATION = "operation"
    FAULT = "fault"
    STEP = "step"
    PROCESS = "process"
    ELECTION = "election"
    TRUNCATION = "truncation"
    MEMBERSHIP = "in-sync set"
    WATERMARK = "high watermark"
    METADATA = "metadata quorum"
    LOG_LINE = "log line"
    OTHER = "other"


class ArrowPart(StrEnum):
    """A part of an arrow between two lanes: where it starts, what it crosses, and its head with its direction."""

    NONE = ""
    START_RIGHTWARD = "from-here-right"
    START_LEFTWARD = "from-here-left"
    CROSSES = "crosses"
    HEAD_RIGHTWARD = "to-here-right"
    HEAD_LEFTWARD = "to-here-left"


@dataclass(frozen=True)
class StoryItem:
    """One recorded fact. `at_s`: seconds since the start. `lane`: the node or client, empty for the run itself. `file`
    (relative to the run's directory) and `line` (from 1, 0 unknown): where it is recorded. `rank`: importance, 0 is
    highest. `role`: the lane's role from this time on, empty for no change. `starts` and `ends`: the id of the fault
    that it starts or ends. `sender` and `receiver`: the lanes between which its records went, empty if unknown."""

    at_s: float
    lane: str
    kind: StoryKind
    text: str
    file: str
    line: int
    rank: int
    role: str = ""
    starts: str = ""
    ends: str = ""
    sender: str = ""
    receiver: str = ""


@dataclass(frozen=True)
class StoryRow:
    """A shown item with the role of each lane and the faults in force at its time. `gap_s`: the pause before it, 0 if
    it is short. `arrow`: for each lane, the part of the message's arrow that crosses it, see `ArrowPart`."""

    item: StoryItem
    roles: tuple[str, ...]
    faults: frozenset[str]
    gap_s: float
    arrow: tuple[ArrowPart, ...] = ()


@dataclass(frozen=True)
class Story:
    """`lanes`: the columns of the space-time plot. `faults`: the ids of the faults in force during the story, in order
    of their start. `left_out`: number of items in the story's time that are not shown, by kind."""

    lanes: tuple[str, ...]
    faults: tuple[str, ...]
    rows: tuple[StoryRow, ...]
    left_out: Mapping[StoryKind, int]


def story_of(
    items: Iterable[StoryItem], *, lanes: Sequence[str], moments: Sequence[float], most: int = MOST_ROWS
) -> Story:
    """The story around `moments` (seconds, of the witness's operations). Without a moment, turns decide; without a turn
    either, the whole run is shown."""
    ordered = sorted(items, key=lambda item: (item.at_s, item.rank))
    turns = sorted(item.at_s for item in ordered if item.rank <= TURN)
    focus = sorted(moments) or turns
    begin_s, end_s = (focus[0] - MARGIN_S, focus[-1] + MARGIN_S) if focus else (float("-inf"), float("inf"))
    near = sorted([*focus, *turns])
    candidates = [
        number
        for number, item in enumerate(ordered)
        if begin_s <= item.at_s <= end_s
        and (item.kind is not StoryKind.LOG_LINE or item.rank <= TURN or _distance(item.at_s, near) <= MARGIN_S)
    ]
    important = sorted(candidates, key=lambda n: (ordered[n].rank, _distance(ordered[n].at_s, focus), n))
    chosen = set(important[:most])
    rows = _rows(ordered, chosen, lanes)
    shown = {fault for row in rows for fault in row.faults}
    started = dict.fromkeys(item.starts for item in ordered if item.starts in shown)
    return Story(
        lanes=tuple(lanes),
        faults=tuple(started),
        rows=tuple(rows),
        left_out=dict(Counter(ordered[number].kind for number in important[most:])),
    )


def _rows(ordered: Sequence[StoryItem], chosen: set[int], lanes: Sequence[str]) -> list[StoryRow]:
    roles: dict[str, str] = {}
    faults: set[str] = set()
    rows: list[StoryRow] = []
    for number, item in enumerate(ordered):
        if item.role:
            roles[item.lane] = item.role
        if item.starts:
            faults.add(item.starts)
        if number in chosen:
            pause = item.at_s - rows[-1].item.at_s if rows else 0.0
            in_force = frozenset(faults)
            roles_of_row = tuple(roles.get(lane, "") for lane in lanes)
            rows.append(StoryRow(item, roles_of_row, in_force, pause if pause >= GAP_S else 0.0, _arrow(item, lanes)))
        faults.discard(item.ends)  # the row of the heal still shows the fault's band
    return rows


def _arrow(item: StoryItem, lanes: Sequence[str]) -> tuple[ArrowPart, ...]:
    """The parts of the item's arrow by lane; empty without a sender and a receiver among the lanes."""
    if item.sender == item.receiver or item.sender not in lanes or item.receiver not in lanes:
        return ()
    start, head = lanes.index(item.sender), lanes.index(item.receiver)
    parts = [ArrowPart.NONE] * len(lanes)
    for between in range(min(start, head) + 1, max(start, head)):
        parts[between] = ArrowPart.CROSSES
    parts[start] = ArrowPart.START_RIGHTWARD if head > start else ArrowPart.START_LEFTWARD
    parts[head] = ArrowPart.HEAD_RIGHTWARD if head > start else ArrowPart.HEAD_LEFTWARD
    return tuple(parts)


def _distance(at_s: float, ordered: Sequence[float]) -> float:
    """Seconds to the nearest of `ordered`; 0 if it is empty."""
    at = bisect_left(ordered, at_s)
    return min((abs(at_s - moment) for moment in ordered[max(at - 1, 0) : at + 1]), default=0.0)

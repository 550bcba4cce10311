"""Puts the timeline of a run's page together from its journal, operations and node events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup

from analysis.page.journal_story import journal_items
from analysis.page.node_story import DOWN, Focus, event_items
from analysis.page.operation_columns import OperationNames, operation_columns, operations_of
from analysis.page.partitions import partition_strip
from analysis.page.run_clock import RunClock
from analysis.page.run_facts import fault_spans
from analysis.page.story import StoryItem
from analysis.page.timeline import LONGEST_NAME, MOST_TURNS, NumberedEvents, leader_turns
from analysis.plots.colors import NODE_COLORS
from installation.sanitize import brief, visible_line

STATES: Final = ("up", "down", "suspended")
Line = Mapping[str, Any]


def timeline_of(
    run_dir: Path, journal: Sequence[Line], events: NumberedEvents, clock: RunClock, *, is_analyzed: bool = False
) -> dict[str, Any]:
    """The timeline as the page's JSON. `is_analyzed`: the run's tables are those of its evidence. Raises `HistoryError`
    for a run without a history."""
    with operations_of(run_dir, is_analyzed=is_analyzed) as operations:
        names = OperationNames.of(operations)
        end_s = _end(names.last_ret, journal, clock)
        columns = operation_columns(operations, names, clock, end_s)
    ends = [(item.at_s, item.lane) for item in journal_items(journal, clock) if item.role == DOWN]
    turns = leader_turns(events, clock, end_s, ends)
    by_place: dict[str, list[tuple[float, float, str, int]]] = {}
    for where, start_s, stop_s, node, epoch in turns[:MOST_TURNS]:
        by_place.setdefault(_shown(where), []).append((round(start_s, 4), round(stop_s, 4), _shown(node), epoch))
    return {
        "end_s": round(end_s, 4),
        "wall_ms": clock.wall_ns / 1e6,
        "ops": columns,
        "nodes": [_shown(node) for node in sorted(events)],
        "states": _states(journal, events, clock, end_s),
        "faults": _faults(journal, clock, end_s),
        "turns": {name: by_place[name] for name in sorted(by_place, key=_order)},
        "colors": NODE_COLORS,
        "partitions": partition_strip(events, turns, clock, end_s),
    }


def script_text(content: Mapping[str, Any]) -> Markup:
    """JSON for a `<script>` element: no character of it ends the element or starts another. Everything outside ASCII
    and every control character is an escape."""
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _order(name: str) -> tuple[bool, str, int]:
    """Partitions in order of topic and number; the system's own topics, which start with two underscores, are last."""
    topic, _, number = name.rpartition("-")
    return name.startswith("__"), topic, int(number) if number.isdecimal() and len(number) < 10 else 0


def _shown(name: str) -> str:
    return brief(visible_line(name), LONGEST_NAME)


def _end(last_ret: int, journal: Iterable[Line], clock: RunClock) -> float:
    """Seconds from the start to the last known time."""
    times = [line["t"] for line in journal if "t" in line] + ([last_ret] if last_ret >= 0 else [])
    return max(map(clock.of_monotonic, times), default=0.0)


def _faults(journal: Iterable[Line], clock: RunClock, end_s: float) -> list[dict[str, Any]]:
    """Every fault with its name, start and end; one that was not healed lasts to the end."""
    return [
        {
            "id": _shown(span.id),
            "name": _shown(span.name),
            "start": round(span.start_s, 4),
            "end": round(end_s if span.end_s is None else span.end_s, 4),
        }
        for span in fault_spans(journal, clock)
    ]


def _states(journal: Sequence[Line], events: NumberedEvents, clock: RunClock, end_s: float) -> list[dict[str, Any]]:
    """The states of each node's process, one after the other."""
    everything = Focus("", -1, str)
    found: dict[str, list[StoryItem]] = {}
    items = [*journal_items(journal, clock)]
    for node, rows in events.items():
        items += event_items(node, rows, clock, everything)
    for item in sorted(items, key=lambda item: item.at_s):
        if item.role in STATES and item.lane in events:
            held = found.setdefault(item.lane, [])
            if not held or held[-1].role != item.role:
                held.append(item)
    return [
        {
            "node": _shown(node),
            "role": item.role,
            "start": round(item.at_s, 4),
            "end": round(after.at_s if after is not None else end_s, 4),
        }
        for node, held in sorted(found.items())
        for item, after in zip(held, [*held[1:], None], strict=True)
    ]

"""The state of each partition over time, for the heat map: leader, size of the in-sync set, replication lag."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from analysis.evidence.run_directory import fits, moment
from history.timeline import RunClock
from installation.sanitize import brief, visible_line

MOST_CELLS: Final = 150_000
MOST_PARTITIONS: Final = 2_000
MOST_WINDOWS: Final = 240
UNKNOWN: Final = 255
NO_LEADER: Final = 254
Cells = npt.NDArray[np.uint8]
NumberedEvents = Mapping[str, Sequence[tuple[int, Mapping[str, Any]]]]


def partition_strip(
    events: NumberedEvents, turns: Sequence[tuple[str, float, float, str, int]], clock: RunClock, end_s: float
) -> dict[str, Any]:
    """The heat map as the page's JSON: `names` of the partitions, those of the workload first, and for each of
    `leader` (index in `nodes`), `in_sync` (number of replicas) and `lag` (log of the records between high watermark
    and log end at the leader) one byte per partition and window, in base64. `left_out`: partitions without a row."""
    nodes = sorted(events)
    names = _names(events)
    shown = names[:MOST_PARTITIONS]
    windows = max(1, min(MOST_WINDOWS, MOST_CELLS // max(len(shown), 1)))
    rows = {name: row for row, name in enumerate(shown)}
    width_s = max(end_s, 1e-3) / windows
    leader = np.full((len(shown), windows), NO_LEADER, np.uint8)
    for where, first_s in _first_roles(events, clock).items():
        if where in rows:  # a partition that does not exist yet is not one without a leader
            leader[rows[where], : _window(first_s, width_s, windows)] = UNKNOWN
    for where, start_s, stop_s, node, _ in turns:
        if where in rows and node in nodes:
            first, last = _window(start_s, width_s, windows), _window(stop_s, width_s, windows)
            leader[rows[where], first : last + 1] = min(nodes.index(node), NO_LEADER - 1)
    in_sync, lag = (np.full((len(shown), windows), UNKNOWN, np.uint8) for _ in range(2))
    for at_s, where, size, behind in _reports(events, clock):
        if where in rows:
            at = _window(at_s, width_s, windows)
            if size is not None:
                in_sync[rows[where], at:] = min(size, NO_LEADER)
            if behind is not None:
                lag[rows[where], at:] = min(round(np.log2(behind + 1) * 10), NO_LEADER)
    return {
        "names": [brief(visible_line(name), 60) for name in shown],
        "nodes": nodes,
        "windows": windows,
        "left_out": len(names) - len(shown),
        "leader": _packed(leader),
        "in_sync": _packed(in_sync),
        "lag": _packed(lag),
    }


def _first_roles(events: NumberedEvents, clock: RunClock) -> dict[str, float]:
    """When any node first had a role in a partition, in seconds."""
    found: dict[str, float] = {}
    for rows in events.values():
        for _, event in rows:
            if event["event"] == "partition_role":
                where, at_s = f"{event.get('topic')}-{event.get('partition')}", clock.of_wall(moment(event))
                found[where] = min(found.get(where, at_s), at_s)
    return found


def _names(events: NumberedEvents) -> list[str]:
    found = {
        (str(event["topic"]), event["partition"])
        for rows in events.values()
        for _, event in rows
        if event["event"] in ("partition_role", "replica_progress") and event.get("topic") is not None
        and fits(event.get("partition"))
    }  # fmt: skip
    return [f"{topic}-{number}" for topic, number in sorted(found, key=lambda key: (key[0].startswith("__"), key))]


def _reports(events: NumberedEvents, clock: RunClock) -> list[tuple[float, str, int | None, int | None]]:
    """In order of time: the size of the in-sync set, or how far the high watermark is behind the log end. Only a
    leader's reports count for the latter."""
    found: list[tuple[float, str, int | None, int | None]] = []
    for rows in events.values():
        leads: set[str] = set()
        for _, event in rows:
            where, name = f"{event.get('topic')}-{event.get('partition')}", event["event"]
            at_s = clock.of_wall(moment(event))
            if name == "partition_role":
                leads = leads | {where} if event.get("role") == "leader" else leads - {where}
            if name in ("partition_role", "isr_changed") and isinstance(event.get("isr"), list):
                found.append((at_s, where, len(event["isr"]), None))
            if name == "replica_progress" and where in leads:
                end, mark = event.get("log_end_offset"), event.get("high_watermark")
                if isinstance(end, int) and isinstance(mark, int):
                    found.append((at_s, where, None, max(end - mark, 0)))
    return sorted(found, key=lambda report: report[0])


def _window(at_s: float, width_s: float, windows: int) -> int:
    return int(min(max(at_s / width_s, 0), windows - 1))


def _packed(cells: Cells) -> str:
    return base64.b64encode(cells.tobytes()).decode()

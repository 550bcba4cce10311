"""Puts the timeline of a run's page together from its journal, operations and node events.

The operations of a page's timeline: columns of fixed-width integers, in base64, in order of invocation.

Theory of operation. A page has at most 10^5 operations, which take 1.5 MB. A run with more is reduced to counts by
client, kind, outcome and time window, and the page says so. Both are folds over the parts of the tables: the first pass
finds the names and the number of operations, the second one adds part after part to the columns. So the memory depends
on what the page shows, and not on the size of the run.

| column | type | content |
|---|---|---|
| start | uint32 | invocation, in `TICK_NS` since the start |
| length | uint32 | duration in `TICK_NS`; `OPEN` for an operation that never returned |
| lane | uint16 | index of the client |
| place | uint16 | index of the partition or key |
| kind | uint8 | operation * 4 + outcome, by `history.record.schemas` |
| number | int32 | offset (-1: none), or with counts the number of operations |
"""

import base64
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from analysis.evidence.run_directory import fits, moment
from analysis.page.run_facts import METADATA_TOPIC, NumberedEvents, RunFacts
from analysis.page.story import Focus, StoryItem, event_items, journal_items
from analysis.plots.colors import NODE_COLORS
from history.grouped import grouped
from history.journal.timeline import DOWN, NS, SUSPENDED, RunClock
from history.reader import read_run
from history.record.operations import Operations
from history.record.schemas import INF
from history.record.shapes import FREE, LOG, REGISTER, SHAPES
from installation.sanitize import brief, visible_line

# ---- The state of each partition over time, for the heat map: leader, size of the in-sync set, replication lag.

MOST_CELLS: Final = 150_000
MOST_PARTITIONS: Final = 2_000
MOST_WINDOWS: Final = 240
UNKNOWN: Final = 255
NO_LEADER: Final = 254
Cells = npt.NDArray[np.uint8]


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
    for partition_name, first_s in _first_roles(events, clock).items():
        if partition_name in rows:  # a partition that does not exist yet is not one without a leader
            leader[rows[partition_name], : _window(first_s, width_s, windows)] = UNKNOWN
    for partition_name, start_s, stop_s, node, _ in turns:
        if partition_name in rows and node in nodes:
            first_window, last_window = _window(start_s, width_s, windows), _window(stop_s, width_s, windows)
            leader[rows[partition_name], first_window : last_window + 1] = min(nodes.index(node), NO_LEADER - 1)
    in_sync, lag = (np.full((len(shown), windows), UNKNOWN, np.uint8) for _ in range(2))
    for at_s, partition_name, size, lag_records in _reports(events, clock):
        if partition_name in rows:
            at = _window(at_s, width_s, windows)
            if size is not None:
                in_sync[rows[partition_name], at:] = min(size, NO_LEADER)
            if lag_records is not None:
                lag[rows[partition_name], at:] = min(round(np.log2(lag_records + 1) * 10), NO_LEADER)
    return {
        "names": [brief(visible_line(name), 60) for name in shown],
        "nodes": nodes,
        "windows": windows,
        "left_out": len(names) - len(shown),
        "leader": _in_base64(leader),
        "in_sync": _in_base64(in_sync),
        "lag": _in_base64(lag),
    }


def _first_roles(events: NumberedEvents, clock: RunClock) -> dict[str, float]:
    """When any node first had a role in a partition, in seconds."""
    first_roles: dict[str, float] = {}
    for rows in events.values():
        for _, event in rows:
            if event["event"] == "partition_role":
                partition_name, at_s = f"{event.get('topic')}-{event.get('partition')}", clock.of_wall(moment(event))
                first_roles[partition_name] = min(first_roles.get(partition_name, at_s), at_s)
    return first_roles


def _names(events: NumberedEvents) -> list[str]:
    partitions = {
        (str(event["topic"]), event["partition"])
        for rows in events.values()
        for _, event in rows
        if event["event"] in ("partition_role", "replica_progress") and event.get("topic") is not None
        and fits(event.get("partition"))
    }  # fmt: skip
    return [f"{topic}-{number}" for topic, number in sorted(partitions, key=lambda key: (key[0].startswith("__"), key))]


def _reports(events: NumberedEvents, clock: RunClock) -> list[tuple[float, str, int | None, int | None]]:
    """In order of time: the size of the in-sync set, or how far the high watermark is behind the log end. Only a
    leader's reports count for the latter."""
    reports: list[tuple[float, str, int | None, int | None]] = []
    for rows in events.values():
        leads: set[str] = set()
        for _, event in rows:
            partition_name, name = f"{event.get('topic')}-{event.get('partition')}", event["event"]
            at_s = clock.of_wall(moment(event))
            if name == "partition_role":
                leads = leads | {partition_name} if event.get("role") == "leader" else leads - {partition_name}
            if name in ("partition_role", "isr_changed") and isinstance(event.get("isr"), list):
                reports.append((at_s, partition_name, len(event["isr"]), None))
            if name == "replica_progress" and partition_name in leads:
                end, mark = event.get("log_end_offset"), event.get("high_watermark")
                if isinstance(end, int) and isinstance(mark, int):
                    reports.append((at_s, partition_name, None, max(end - mark, 0)))
    return sorted(reports, key=lambda report: report[0])


def _window(at_s: float, width_s: float, windows: int) -> int:
    return int(min(max(at_s / width_s, 0), windows - 1))


def _in_base64(cells: Cells) -> str:
    return base64.b64encode(cells.tobytes()).decode()


# ---- The operations, as columns.

TICK_NS: Final = 10_000
OPEN: Final = (1 << 32) - 1
MOST_OPERATIONS: Final = 100_000
WINDOWS: Final = 1_000
"""Time windows of a run that is reduced to counts."""
MOST_PLACES: Final = 4_000
MOST_TURNS: Final = 20_000
LONGEST_NAME: Final = 60
Ints = npt.NDArray[np.int64]
Columns = dict[str, Ints]

_TYPES: Final = {"start": "<u4", "length": "<u4", "lane": "<u2", "place": "<u2", "kind": "u1", "number": "<i4"}
_TIMES: Final = ("client", "f", "type", "inv", "ret")
_TEXT: Final = pa.string()
_PLACES: Final = {LOG: ("topic", "partition", "offset"), REGISTER: ("key",), FREE: ("function",)}


@contextmanager
def operations_of(run_dir: Path, *, is_analyzed: bool) -> Iterator[Sequence[Operations]]:
    """The operations of each shape. `is_analyzed`: the run's tables are those of its evidence. Otherwise, or if a table
    is missing or damaged, the clients' files are read into temporary tables. Raises `HistoryError` for a run without a
    history."""
    stored = [Operations(shape, run_dir / "tables") for shape in SHAPES.values()]
    if is_analyzed and all(operations.is_whole for operations in stored):
        yield stored
        return
    with tempfile.TemporaryDirectory() as scratch:
        yield read_run(run_dir, tables=Path(scratch)).recorded


@dataclass(frozen=True)
class OperationNames:
    """The names of the clients and of the partitions, keys and functions, each sorted, the number of operations, and
    the latest return, -1 if none returned."""

    clients: Sequence[str]
    places: Sequence[str]
    count: int
    last_ret: int

    @classmethod
    def of(cls, recorded: Sequence[Operations]) -> "OperationNames":
        clients, places, count, last_ret = set[str](), set[str](), 0, -1
        for part in _parts(recorded, ("client", "ret")):
            clients.update(pc.unique(part["client"]).cast(_TEXT).to_pylist())
            places.update(_places(part.group_by(_place_columns(part), use_threads=False).aggregate([])).to_pylist())
            returned = part["ret"].to_numpy()
            count, last_ret = count + part.num_rows, max(last_ret, int(returned[returned < INF].max(initial=-1)))
        return cls(sorted(clients), sorted(places), count, last_ret)


def operation_columns(
    recorded: Sequence[Operations], names: OperationNames, clock: RunClock, end_s: float
) -> dict[str, Any]:
    """The operations as the page's JSON: `clients`, `places`, `columns`, the number of all operations, and `window_s`,
    which is 0 unless they are counts. `end_s`: seconds from the start to the last known time."""
    is_counted = names.count > MOST_OPERATIONS
    window_s = max(end_s, 1e-3) / WINDOWS if is_counted else 0.0
    columns = _counts(recorded, names, clock, window_s) if is_counted else _all(recorded, names, clock)
    order = np.lexsort([columns[name] for name in ("length", "number", "place", "kind", "lane", "start")])
    return {
        "count": names.count,
        "window_s": window_s,
        "clients": [_shown(name) for name in names.clients],
        "places": [_shown(name) for name in names.places[:MOST_PLACES]],
        "columns": {name: _packed(name, column[order]) for name, column in columns.items()},
    }


def _packed(name: str, column: Ints) -> str:
    info = np.iinfo(np.dtype(_TYPES[name]))
    return base64.b64encode(np.clip(column, info.min, info.max).astype(_TYPES[name]).tobytes()).decode()


def _parts(recorded: Sequence[Operations], names: Sequence[str]) -> Iterator[pa.Table]:
    """The parts of all shapes with the columns of these names and of their places."""
    for operations in recorded:
        yield from operations.parts(*names, *_PLACES[operations.shape])


def _place_columns(part: pa.Table) -> list[str]:
    single = [name for name in ("key", "function") if name in part.column_names]
    return single or ["topic", "partition"]


def _places(part: pa.Table) -> Any:
    """The name of each row's partition, key or function."""
    named = [part[name].cast(_TEXT) for name in _place_columns(part)]
    return named[0] if len(named) == 1 else pc.binary_join_element_wise(*named, "-")


def _index_in(names: Any, indexed: Sequence[str]) -> Ints:
    indexes: Ints = pc.index_in(names.cast(_TEXT), pa.array(indexed, _TEXT)).to_numpy().astype(np.int64)
    return indexes


def _timed(part: pa.Table, names: OperationNames, clock: RunClock) -> Columns:
    """The columns that counts need, too."""
    f, kind, inv = (part[name].to_numpy().astype(np.int64) for name in ("f", "type", "inv"))
    start = np.clip((inv - clock.origin_ns) // TICK_NS, 0, OPEN - 1)
    return {"start": start, "lane": _index_in(part["client"], names.clients), "kind": f * 4 + kind}


def _all(recorded: Sequence[Operations], names: OperationNames, clock: RunClock) -> Columns:
    """Every operation."""
    found: dict[str, list[Ints]] = {name: [np.empty(0, np.int64)] for name in _TYPES}
    for part in _parts(recorded, _TIMES):
        inv, ret = part["inv"].to_numpy(), part["ret"].to_numpy()
        length = np.where(ret >= INF, OPEN, np.clip((ret - inv) // TICK_NS, 0, OPEN - 1))
        is_log = "offset" in part.column_names
        number = part["offset"].to_numpy() if is_log else np.full(part.num_rows, -1)
        place = _index_in(_places(part), names.places)
        extra = {"length": length, "place": place, "number": number}
        for name, column in (_timed(part, names, clock) | extra).items():
            found[name].append(column)
    return {name: np.concatenate(columns) for name, columns in found.items()}


def _counts(recorded: Sequence[Operations], names: OperationNames, clock: RunClock, window_s: float) -> Columns:
    """Counts by client, kind and window in place of the operations."""
    ticks = max(1, round(window_s * NS / TICK_NS))

    def windows_of(part: pa.Table) -> pa.Table:
        timed = _timed(part, names, clock)
        return pa.table(timed | {"start": timed["start"] // ticks * ticks, "number": np.ones_like(timed["start"])})

    rows = grouped(map(windows_of, _parts(recorded, _TIMES)), ("start", "lane", "kind"), number="sum")
    columns = {name: rows[name].to_numpy() for name in rows.column_names}
    return columns | {"length": np.full(rows.num_rows, ticks), "place": np.full(rows.num_rows, 0xFFFF)}


# ---- The timeline: the parts together.

STATES: Final = ("up", DOWN, SUSPENDED)
Line = Mapping[str, Any]


def timeline_of(
    run_dir: Path, journal: Sequence[Line], facts: RunFacts, *, is_analyzed: bool = False
) -> dict[str, Any]:
    """The timeline as the page's JSON. `is_analyzed`: the run's tables are those of its evidence. Raises `HistoryError`
    for a run without a history."""
    events, clock = facts.events, facts.clock
    with operations_of(run_dir, is_analyzed=is_analyzed) as recorded:
        names = OperationNames.of(recorded)
        end_s = _end(names.last_ret, journal, clock)
        columns = operation_columns(recorded, names, clock, end_s)
    turns = leader_turns(facts, end_s)
    by_place: dict[str, list[tuple[float, float, str, int]]] = {}
    for place, start_s, stop_s, node, epoch in turns[:MOST_TURNS]:
        by_place.setdefault(_shown(place), []).append((round(start_s, 4), round(stop_s, 4), _shown(node), epoch))
    return {
        "end_s": round(end_s, 4),
        "wall_ms": clock.wall_ns / 1e6,
        "ops": columns,
        "nodes": [_shown(node) for node in sorted(events)],
        "states": _states(journal, events, clock, end_s),
        "faults": _faults(facts, end_s),
        "turns": {name: by_place[name] for name in sorted(by_place, key=_order)},
        "colors": NODE_COLORS,
        "partitions": partition_strip(events, turns, clock, end_s),
    }


def leader_turns(facts: RunFacts, end_s: float) -> list[tuple[str, float, float, str, int]]:
    """Who led which partition from when to when: partition, start and end in seconds, node, epoch. A turn ends with
    the next leader's, when the node becomes a follower, or when its process ends."""
    turns: list[tuple[str, float, float, str, int]] = []
    for partition_name, leads in facts.leads.items():
        for lead, next_lead in zip(leads, [*leads[1:], None], strict=True):
            next_s = max(end_s, lead.start_s) if next_lead is None else next_lead.start_s
            turns.append(
                (brief(partition_name, LONGEST_NAME), lead.start_s, min(lead.end_s, next_s), lead.node, lead.epoch)
            )
    return sorted(turn for turn in turns if turn[0] != f"{METADATA_TOPIC}-0")


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


def _faults(facts: RunFacts, end_s: float) -> list[dict[str, Any]]:
    """Every fault with its name, start and end; one that was not healed lasts to the end."""
    return [
        {
            "id": _shown(span.id),
            "name": _shown(span.name),
            "start": round(span.start_s, 4),
            "end": round(min(span.end_s, end_s), 4),
        }
        for span in facts.faults
    ]


def _states(journal: Sequence[Line], events: NumberedEvents, clock: RunClock, end_s: float) -> list[dict[str, Any]]:
    """The states of each node's process, one after the other."""
    everything = Focus("", -1, str)
    by_lane: dict[str, list[StoryItem]] = {}
    items = [*journal_items(journal, clock)]
    for node, rows in events.items():
        items += event_items(node, rows, clock, everything)
    for item in sorted(items, key=lambda item: item.at_s):
        if item.role in STATES and item.lane in events:
            items_of_lane = by_lane.setdefault(item.lane, [])
            if not items_of_lane or items_of_lane[-1].role != item.role:
                items_of_lane.append(item)
    return [
        {
            "node": _shown(node),
            "role": item.role,
            "start": round(item.at_s, 4),
            "end": round(successor.at_s if successor is not None else end_s, 4),
        }
        for node, items_of_lane in sorted(by_lane.items())
        for item, successor in zip(items_of_lane, [*items_of_lane[1:], None], strict=True)
    ]

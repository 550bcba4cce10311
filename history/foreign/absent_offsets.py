"""Offsets of a log that have no record, as lines of JSON state them: markers of transactions, and compaction.

    {"absent": "marker", "topic": "log", "partition": 0, "first": 7}
    {"absent": "compacted", "topic": "log", "partition": 0, "first": 0, "last": 99}

A log is checked as records at the positions 0, 1, ... So a stated offset that no operation names is left out of the
numbering. A compacted offset that an operation names keeps its position: a read that continues behind it becomes two
reads of the same time, because nothing is wrong with what it left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from history.foreign.value_places import JoinedRuns
from history.operation_schema import BadLineError, require_place
from history.schemas import APPEND, INF, OK, OPERATIONS
from history.value_runs import I64, ValueRuns

MARKER: Final = "marker"
COMPACTED: Final = "compacted"
_FIELDS: Final = {"absent", "topic", "partition", "first", "last"}
_LENGTHS: Final = ("lo", "hi")

Place = tuple[str, int]


class AbsentOffsets:
    """What the lines state, by topic and partition."""

    def __init__(self) -> None:
        self._stated: dict[str, dict[Place, list[ValueRuns]]] = {MARKER: {}, COMPACTED: {}}
        self._partitions: dict[Place, _Partition] = {}

    def __bool__(self) -> bool:
        return any(self._stated.values())

    def take(self, line: Mapping[str, Any]) -> bool:
        """Takes a line that states absent offsets; False for another line. Raises BadLineError."""
        if "absent" not in line:
            return False
        for name in sorted(line.keys() - _FIELDS):
            raise BadLineError(
                f'"{name}" is not a field of absent offsets: their fields are {", ".join(sorted(_FIELDS))}'
            )
        if line["absent"] not in self._stated:
            raise BadLineError(f'"absent" is neither "{MARKER}" nor "{COMPACTED}"')
        for name in ("topic", "partition", "first"):
            if name not in line:
                raise BadLineError(f'"{name}" is missing: absent offsets need topic, partition and first')
        require_place(line)
        first, last = line["first"], line.get("last", line["first"])
        for name, number in (("first", first), ("last", last)):
            if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < INF:
                raise BadLineError(f'"{name}" is not an offset: a number of at least 0 is needed')
        if last < first:
            raise BadLineError(f'"last" {last} is below "first" {first}')
        runs = ValueRuns(np.array([first], np.int64), np.array([last], np.int64))
        place = line["topic"], line["partition"]
        self._stated[line["absent"]].setdefault(place, []).append(runs)
        return True

    def learn(self, tables: Iterable[pa.Table]) -> str:
        """Takes the offsets that operations name. Returns what contradicts a stated marker, empty without one."""
        named: dict[Place, JoinedRuns] = {place: JoinedRuns() for stated in self._stated.values() for place in stated}
        for rows in tables:
            for place, mine in _by_place(rows, named):
                some = rows.take(pa.array(mine))
                offset = some["offset"].to_numpy()
                is_append = (some["f"].to_numpy() == APPEND) & (some["type"].to_numpy() == OK) & (offset >= 0)
                named[place].add(offset[is_append])
                named[place].add(np.unique(some["offsets"].combine_chunks().flatten().to_numpy()))
        for place, runs in named.items():
            markers, compacted = (ValueRuns.union(self._stated[name].get(place, ())) for name in (MARKER, COMPACTED))
            known = runs.all()
            records = _pieces(markers, known, is_in_second=True)
            if len(records.first):
                topic, partition = place
                return f"offset {records.first[0]} of {topic}-{partition} is stated as a marker, but has a record"
            absent = ValueRuns.union([markers, compacted])
            self._partitions[place] = _Partition(absent, _pieces(absent, known, is_in_second=False))
        return ""

    def positions(self, rows: pa.Table) -> pa.Table:
        """The operations with positions for offsets."""
        tables, others = [], np.ones(rows.num_rows, np.bool_)
        for place, mine in _by_place(rows, self._partitions):
            others[mine] = False
            tables.append(self._partitions[place].positions(rows.take(pa.array(mine))))
        if not tables:
            return rows
        return pa.concat_tables([rows.filter(pa.array(others)), *tables]).unify_dictionaries().combine_chunks()


class _Partition:
    """`absent`: the stated offsets; `left_out`: those of them without a position."""

    def __init__(self, absent: ValueRuns, left_out: ValueRuns) -> None:
        self._absent = absent
        self._left_out = left_out

    def positions(self, rows: pa.Table) -> pa.Table:
        columns = {name: rows[name].to_numpy().copy() for name in ("f", "type", "offset", *_LENGTHS)}
        lists = rows["offsets"].combine_chunks()
        starts, offsets = lists.offsets.to_numpy() - lists.offsets[0].as_py(), lists.flatten().to_numpy()
        counts = np.diff(starts)
        row = np.repeat(np.arange(len(rows)), counts)
        is_first = np.zeros(len(offsets), np.bool_)
        is_first[starts[:-1][counts > 0]] = True
        due = np.where(is_first, columns["offset"][row], np.concatenate(([0], offsets[:-1] + 1))[: len(offsets)])
        is_excused = (offsets > due) & (_below(self._absent, offsets) - _below(self._absent, due) == offsets - due)
        columns["offset"][row[is_first & is_excused]] = offsets[is_first & is_excused]
        is_apart = is_excused & ~is_first & (self._position(offsets) != self._position(due))
        return self._split(rows, columns, np.flatnonzero(is_apart), starts, offsets)

    def _split(self, rows: pa.Table, columns: dict[str, I64], cuts: I64, starts: I64, offsets: I64) -> pa.Table:
        """The rows, with each read divided before the records at `cuts`. `starts`: of each row's records."""
        ends_of_parts = np.concatenate((cuts, starts[1:]))
        row = np.concatenate((np.searchsorted(starts, cuts, side="right") - 1, np.arange(len(rows))))
        order = np.lexsort((ends_of_parts, row))
        row, ends = row[order], ends_of_parts[order]
        begins = np.concatenate(([0], ends[:-1]))
        is_last = np.concatenate((row[1:] != row[:-1], [True]))
        is_next = np.concatenate(([False], row[1:] == row[:-1]))
        parts = {name: column[row] for name, column in columns.items()}
        parts["offset"][is_next] = offsets[begins[is_next]]
        parts["lo"][~is_last] = offsets[ends[~is_last] - 1] + 1
        parts["hi"][~is_last] = -1
        values = rows["values"].combine_chunks().flatten()
        borders = pa.array(np.concatenate(([0], ends)), pa.int32())
        changed = {name: pa.array(self._position(parts[name])) for name in ("offset", *_LENGTHS)}
        changed["offsets"] = pa.ListArray.from_arrays(borders, pa.array(self._position(offsets)))
        changed["values"] = pa.ListArray.from_arrays(borders, values)
        taken = rows.take(pa.array(row))
        arrays = [changed.get(name, taken[name]) for name in OPERATIONS.names]
        return pa.Table.from_arrays(arrays, names=OPERATIONS.names).cast(OPERATIONS)

    def _position(self, offsets: I64) -> I64:
        """The positions of offsets, or of lengths; negative ones stay."""
        positions: I64 = np.where(offsets < 0, offsets, offsets - _below(self._left_out, offsets))
        return positions


def _by_place(rows: pa.Table, places: Mapping[Place, object]) -> Iterable[tuple[Place, npt.NDArray[np.intp]]]:
    """The rows of each of these places that has some."""
    topics, partitions = rows["topic"].combine_chunks(), rows["partition"].to_numpy()
    names = topics.dictionary.to_pylist()
    for topic, partition in places:
        if topic in names:
            is_topic = topics.indices.to_numpy() == names.index(topic)
            mine = np.flatnonzero(is_topic & (partitions == partition))
            if len(mine):
                yield (topic, partition), mine


def _below(runs: ValueRuns, numbers: I64) -> I64:
    """How many integers of the runs are below each number."""
    before = np.concatenate(([0], np.cumsum(runs.last - runs.first + 1)))
    at = np.searchsorted(runs.first, numbers, side="left")
    if not len(runs.first):
        return np.zeros(len(numbers), np.int64)
    beyond = np.maximum(runs.last[np.maximum(at - 1, 0)] - numbers + 1, 0)
    below: I64 = before[at] - np.where(at > 0, beyond, 0)
    return below


def _pieces(runs: ValueRuns, other: ValueRuns, *, is_in_second: bool) -> ValueRuns:
    """The integers of some runs that other runs have, or do not have."""
    points = np.unique(np.concatenate((runs.first, runs.last + 1, other.first, other.last + 1)))
    is_there = ~runs.missing(points) & (other.missing(points) != is_in_second)
    at = np.flatnonzero(is_there)
    return ValueRuns(points[at], points[np.minimum(at + 1, len(points) - 1)] - 1)

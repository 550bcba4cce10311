"""Reads JSON lines as in docs/operations.md, as the clients of one history that is not a run's.

A journal that relates clocks is missing, so all files must have the same clock: each a monotonic one, or each a wall
clock. Values of registers may repeat. Values of a log are unique, and their numbers need not name a producer.

Theory of operation. The numbers of a log's values follow from all values, and the model of the files from all lines. So
the operations are put into a file of each model while they are read, and those of the model are read again and written
with the numbers of their values. In memory remain the values, as runs of consecutive ones.

Offsets of a log that have no record, as lines of JSON state them: markers of transactions, and compaction.

    {"absent": "marker", "topic": "log", "partition": 0, "first": 7}
    {"absent": "compacted", "topic": "log", "partition": 0, "first": 0, "last": 99}

A log is checked as records at the positions 0, 1, ... So a stated offset that no operation names is left out of the
numbering. A compacted offset that an operation names keeps its position: a read that continues behind it becomes two
reads of the same time, because nothing is wrong with what it left out.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from history.distinct import distinct
from history.foreign.history import INITIAL_TIMES, OWN_PRODUCER, ForeignError, ForeignHistory
from history.foreign.kinds import kind_of, refusal
from history.foreign.numbered_texts import GROUP_TEXTS, TextFile
from history.foreign.operation_files import OperationFiles
from history.foreign.parts_on_disk import PartsOnDisk
from history.foreign.register_rows import initial_write
from history.foreign.value_places import JoinedRuns, ValuePlaces
from history.record.jsonl_reader import Recorded, TakenNames, read_lines
from history.record.operation_schema import BadLineError, require_place
from history.record.schemas import APPEND, INF, OK, OPERATIONS, REGISTERS
from history.record.shapes import LOG, REGISTER, SHAPES, Shape
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
        if line["absent"] not in tuple(self._stated):  # a list cannot be looked up in a table
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
                part = rows.take(pa.array(mine))
                offset = part["offset"].to_numpy()
                is_append = (part["f"].to_numpy() == APPEND) & (part["type"].to_numpy() == OK) & (offset >= 0)
                named[place].add(offset[is_append])
                named[place].add(np.unique(part["offsets"].combine_chunks().flatten().to_numpy()))
        for place, runs in named.items():
            markers, compacted = (ValueRuns.union(self._stated[name].get(place, ())) for name in (MARKER, COMPACTED))
            recorded_offsets = runs.all()
            records = _pieces(markers, recorded_offsets, is_in_second=True)
            if len(records.first):
                topic, partition = place
                return f"offset {records.first[0]} of {topic}-{partition} is stated as a marker, but has a record"
            absent = ValueRuns.union([markers, compacted])
            self._partitions[place] = _Partition(absent, _pieces(absent, recorded_offsets, is_in_second=False))
        return ""

    def positions(self, rows: pa.Table) -> pa.Table:
        """The operations with positions for offsets."""
        tables, is_unchanged = [], np.ones(rows.num_rows, np.bool_)
        for place, mine in _by_place(rows, self._partitions):
            is_unchanged[mine] = False
            tables.append(self._partitions[place].positions(rows.take(pa.array(mine))))
        if not tables:
            return rows
        return pa.concat_tables([rows.filter(pa.array(is_unchanged)), *tables]).unify_dictionaries().combine_chunks()


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
        divided_rows = rows.take(pa.array(row))
        arrays = [changed.get(name, divided_rows[name]) for name in OPERATIONS.names]
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
    counts_before = np.concatenate(([0], np.cumsum(runs.last - runs.first + 1)))
    at = np.searchsorted(runs.first, numbers, side="left")
    if not len(runs.first):
        return np.zeros(len(numbers), np.int64)
    beyond = np.maximum(runs.last[np.maximum(at - 1, 0)] - numbers + 1, 0)
    below: I64 = counts_before[at] - np.where(at > 0, beyond, 0)
    return below


def _pieces(runs: ValueRuns, other_runs: ValueRuns, *, is_in_second: bool) -> ValueRuns:
    """The integers of some runs that other runs have, or do not have."""
    points = np.unique(np.concatenate((runs.first, runs.last + 1, other_runs.first, other_runs.last + 1)))
    is_there = ~runs.missing(points) & (other_runs.missing(points) != is_in_second)
    at = np.flatnonzero(is_there)
    return ValueRuns(points[at], points[np.minimum(at + 1, len(points) - 1)] - 1)


_OTHER_F: Final = re.compile(r'"f" is "(\w+)"')
_AHEAD_S: Final = 10**9
"""Subtracted from wall clocks, so that their times are times of a run until 2038."""
_EARLIEST_WALL_NS: Final = 10**17
"""Converted times of wall clocks are later, from 2004 on; those of monotonic clocks are earlier, for three years."""


def read(paths: Sequence[Path], model: str | None, directory: Path, *, initial: int | None = None) -> ForeignHistory:
    """The history in the files, of the given model if they have operations of both, written below a directory.
    `initial`: what each register holds at the start. Raises ForeignError."""
    names = [path.name for path in paths]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ForeignError(twice, 0, "two files have this name, which is that of a client: rename one of them")
    log, registers = _LogAsRead(directory / "log.arrow"), _AsRead(directory / "registers.arrow", REGISTERS)
    try:
        absent = AbsentOffsets()
        _take_all(paths, log, registers, absent)
        chosen, *other_models = _models(paths, model, {LOG.name: log, REGISTER.name: registers})
        not_judged = [f"operations of the other model: {other_model}" for other_model in other_models]
        files = OperationFiles(directory, SHAPES[chosen])
        if chosen == REGISTER.name:
            _require_one_clock(paths, registers)
            if absent:
                raise ForeignError(paths[0], 0, "states absent offsets, which registers do not have")
            _add_registers(files, registers, initial)
            return files.history({}, not_judged)
        if initial is not None:
            raise ForeignError(paths[0], 0, "has operations on logs, which have no initial value; omit --initial")
        _require_one_clock(paths, log)
        value_places = _known(paths, log)
        if absent:
            if problem := absent.learn(log.parts.tables()):
                raise ForeignError(paths[0], 0, f"{problem}; state only offsets that never had one")
            not_judged.append("whether the offsets that are stated to be absent had a record")
        for rows in log.parts.tables():
            files.add(_renumbered(absent.positions(rows), value_places))
        not_judged.insert(0, "the order of a producer's values beyond real time")
        return files.history(_texts(value_places, directory), not_judged)
    finally:
        log.parts.remove()
        registers.parts.remove()


def _add_registers(files: OperationFiles, registers: "_AsRead", initial: int | None) -> None:
    """Write the operations on registers, with the write of an initial value before them."""
    keys: set[str] = set()
    shift = 0 if initial is None else INITIAL_TIMES[1] + 1
    for rows in registers.parts.tables():
        for name in ("inv", "ret"):
            times = rows[name].to_numpy()
            moved = pa.array(np.where(times < INF, times + shift, times))
            rows = rows.set_column(REGISTERS.get_field_index(name), REGISTERS.field(name), moved)
        keys.update(pc.unique(rows["key"]).to_pylist())
        files.add(rows)
    if initial is not None:
        files.add(REGISTER.table([initial_write(number, key, initial) for number, key in enumerate(sorted(keys))]))


def _take_all(paths: Sequence[Path], log: "_LogAsRead", registers: "_AsRead", absent: AbsentOffsets) -> None:
    """Read all lines. Raises ForeignError for a line without a valid operation."""
    started = {"event": "run_started", "t": 0, "wall": _AHEAD_S}
    as_read = {LOG: log, REGISTER: registers}

    def take(shape: Shape, rows: pa.Table) -> None:
        as_read[shape].take(rows)

    recorded = read_lines(paths, [started], TakenNames({}, 0, unique=False), take, absent.take)
    _require_whole(paths, recorded)
    for shape in as_read:
        take(shape, recorded.table(shape))


def _models(paths: Sequence[Path], model: str | None, as_read: Mapping[str, "_AsRead"]) -> list[str]:
    """The model to check, and the other one if the files have operations of both."""
    present_models = [name for name, operations in as_read.items() if operations.rows]
    if model is None and len(present_models) == 2:
        raise ForeignError(paths[0], 0, "has operations on logs and on registers: choose one with --model log|register")
    chosen = model or next(iter(present_models), None)
    if chosen is None or chosen not in present_models:
        raise ForeignError(paths[0], 0, f"has no operation of a {chosen or 'client'}")
    return [chosen, *(name for name in present_models if name != chosen)]


def _require_one_clock(paths: Sequence[Path], chosen: "_AsRead") -> None:
    if chosen.earliest < _EARLIEST_WALL_NS <= chosen.latest:
        raise ForeignError(paths[0], 1, 'some files declare {"clock": "wall"} and some do not: use one clock for all')


def _require_whole(paths: Sequence[Path], recorded: Recorded) -> None:
    """Raises ForeignError for the first defect."""
    for path in paths:
        for defect in recorded.defects.get(path.name, []):
            at = re.match(rf"{re.escape(path.name)}(?::(\d+):)? ", defect)
            problem = defect[at.end() :] if at else defect
            line = int(at[1]) if at and at[1] else 0
            if (f := _OTHER_F.match(problem)) and (kind := kind_of(f[1])):
                problem = refusal(f[1], kind, '"f"')
            raise ForeignError(path, line, f"{problem}; docs/operations.md describes the format")


class _AsRead:
    """The operations of one model in a file, in the order of the files that they are from. `earliest`, `latest`:
    invocations."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.rows = 0
        self.earliest, self.latest = 1 << 62, -1
        self.parts = PartsOnDisk(path, schema)

    def take(self, rows: pa.Table) -> None:
        if rows.num_rows:
            inv = rows["inv"].to_numpy()
            self.earliest, self.latest = min(self.earliest, int(inv.min())), max(self.latest, int(inv.max()))
            self.rows += rows.num_rows
            self.parts.add(rows)


class _LogAsRead(_AsRead):
    """Operations on logs. `appended`, `shown`: their values."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, OPERATIONS)
        self.appended, self.shown = JoinedRuns(), JoinedRuns()

    def take(self, rows: pa.Table) -> None:
        super().take(rows)
        self.appended.add(_appended(rows))
        self.shown.add(distinct(rows["values"].combine_chunks().flatten().to_numpy()))


def _known(paths: Sequence[Path], log: _LogAsRead) -> ValuePlaces:
    """The values of a log. Raises ForeignError if one is appended twice."""
    appended = log.appended.all()
    if appended.repeated:
        columns = [_appended(rows) for rows in log.parts.tables()]
        values, counts = np.unique(np.concatenate(columns), return_counts=True)
        problem = f"value {values[counts > 1][0]} is appended twice: values of a log identify the appends"
        raise ForeignError(paths[0], 0, problem)
    return ValuePlaces(ValueRuns.union([appended, log.shown.all()]))


def _texts(value_places: ValuePlaces, directory: Path) -> Mapping[int, str]:
    """The text of each number, written below the directory."""
    file = TextFile(directory, OWN_PRODUCER)
    for start in range(0, len(value_places), GROUP_TEXTS):
        places = np.arange(start, min(start + GROUP_TEXTS, len(value_places)))
        file.add(pa.array(value_places.integers(places)).cast(pa.string()))
    return file.texts()


def _appended(rows: pa.Table) -> I64:
    """The values of the appends."""
    values: I64 = rows["value"].to_numpy()[rows["f"].to_numpy() == APPEND]
    return values


def _renumbered(rows: pa.Table, value_places: ValuePlaces) -> pa.Table:
    """The operations with each value as the only one of its producer (`OWN_PRODUCER`)."""
    items = rows["values"].combine_chunks()
    numbered = np.full(rows.num_rows, -1, np.int64)
    is_append = rows["f"].to_numpy() == APPEND
    numbered[is_append] = (value_places.of(rows["value"].to_numpy()[is_append]) + 1) * OWN_PRODUCER
    shown = (value_places.of(items.flatten().to_numpy()) + 1) * OWN_PRODUCER
    columns: dict[str, Any] = {
        "value": pa.array(numbered, pa.int64()),
        "values": pa.ListArray.from_arrays(items.offsets, pa.array(shown, pa.int64())),
    }
    arrays = [columns.get(name, rows[name]) for name in OPERATIONS.names]
    return pa.Table.from_arrays(arrays, names=OPERATIONS.names).cast(OPERATIONS)

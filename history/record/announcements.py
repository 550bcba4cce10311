"""The announcements of a client: the lines that it writes, and syncs, before it sends operations.

A client announces in one of two ways (`Shape.announces`). In blocks: each line has values that it may append to a
partition. One by one: each line has an operation that changes something, with ascending ids.

Theory of operation. The file is read line by line, once, by one task (`read_announcements`). Blocks become a few
columns of numbers. Invocations become a table whose row groups have ranges of ids; the task of a segment reads the row
groups that may have its ids. What is completed of the announcements is a few runs of numbers: values of blocks, or
positions of invocations in the file. The rest may have happened.

A line that is damaged converts to no type. Numbers are those that the tables of operations can hold.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Meta

from history.checksummed_lines import LineReader, Lines
from history.errors import UNFINISHED
from history.field_types import Int64
from history.record.schemas import APPEND, CALL, CALLS, CAS, INF, INFO, QUERY, READ, WRITE
from history.record.shapes import BLOCKS, FREE, LOG, REGISTER, Shape
from history.record.values import PRODUCERS, SESSION_SHIFT
from history.regular_files import require_regular
from history.topic_folders import is_topic
from history.value_runs import ValueRuns

LARGEST_BLOCK: Final = 1 << 20
GROUP_ROWS: Final = 1 << 14
"""The most invocations that are objects of Python at once."""

Int32 = Annotated[int, Meta(ge=0, lt=1 << 31)]
Natural = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Time = Annotated[int, Meta(ge=0, lt=INF)]
Count = Annotated[int, Meta(gt=0, le=LARGEST_BLOCK)]

A = TypeVar("A", bound=msgspec.Struct)
I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Line = Mapping[str, Any]


class RecordHeader(msgspec.Struct):
    """The first line: whose record it is. `producer`: of the client's values; None if it writes none."""

    client: str
    process: Int32
    session: Int32
    producer: Annotated[int, Meta(ge=0, lt=PRODUCERS)] | None = None


class AnnouncedBlock(msgspec.Struct):
    """`count` values from `first` that the client may append to a partition from time `t` on."""

    topic: str
    partition: Int32
    first: Natural
    count: Count
    t: Time

    def __post_init__(self) -> None:
        if not is_topic(self.topic) or self.first + self.count >= 1 << 63:
            raise ValueError(f"not a block of values: {self}")


class UnusedValues(msgspec.Struct):
    """`count` announced values, from `unused` on, that the client gives back."""

    unused: Natural
    count: Count


class AnnouncedInvocation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A write or compare-and-set of a register. `value` is what it would write."""

    id: Natural
    f: int
    key: str
    value: Int64 | None
    expected: Int64 | None
    inv: Time
    phase: str

    @property
    def is_announced(self) -> bool:
        """Reads are not announced."""
        return self.f in (WRITE, CAS) and self.value is not None and _is_text(self.key + self.phase)


class AnnouncedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call of a function of a user's own workload."""

    id: Natural
    f: int
    function: str
    key: str
    argument: str
    inv: Time
    phase: str
    session: Int32

    @property
    def is_announced(self) -> bool:
        """Queries are not announced."""
        return self.f == CALL and _is_text(self.function + self.key + self.argument + self.phase)


def _is_text(text: str) -> bool:
    """JSON can have halves of characters, which cannot be stored."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def converted(lines: Iterable[Line], kind: type[A]) -> tuple[list[A], int]:
    """The lines of this kind, and the number of lines that are damaged."""
    announcements, damaged = [], 0
    for line in lines:
        try:
            announcements.append(msgspec.convert(line, kind))
        except msgspec.ValidationError:
            damaged += 1
    return announcements, damaged


@dataclass(frozen=True)
class Agreement:
    """How rows agree with announcements. `is_announced`: which rows write nothing, or what was announced. `done`: what
    these complete of the announcements. `problems`: the numbers of other rows, by noun and what is wrong with them."""

    is_announced: Mask
    done: ValueRuns
    problems: Counter[tuple[str, str]]


@dataclass(frozen=True)
class Announcements(ABC):
    """What was read from the announcements of a client. `lines`: the file's other lines, and its first and last one.
    `header`: the client's. `damaged`: by what is wrong with them, the number of damaged announcements."""

    lines: Lines
    header: RecordHeader | None
    damaged: Mapping[str, int]

    @abstractmethod
    def compare(self, rows: pa.Table) -> Agreement:
        """Compares the completed operations of a client with its announcements."""

    @abstractmethod
    def left_open(self, header: RecordHeader, done: ValueRuns) -> pa.Table:
        """The announced operations that are not done, as operations that may have happened."""

    def reused(self, done: ValueRuns) -> int:
        """How much of what the client gave back is done."""
        del done
        return 0


@dataclass(frozen=True)
class AnnouncementsTask:
    """The file of a client's announcements, and where to write the table of its invocations."""

    shape: Shape
    path: Path
    table: Path


def read_announcements(task: AnnouncementsTask) -> Announcements:
    """Reads the announcements: one task, in bounded memory. Damage is in the result. Raises OSError for what it
    writes."""
    reader = LineReader(task.path)
    announced = _ReadBlocks() if task.shape.announces == BLOCKS else _ReadInvocations(task.shape, task.table)
    other_lines: list[tuple[int, dict[str, Any]]] = []
    last_line: tuple[int, dict[str, Any]] | None = None
    for last_line in _until_error(reader):
        if not announced.add(last_line[1]) or not other_lines:
            other_lines.append(last_line)
    if last_line is not None and other_lines[-1] is not last_line:
        other_lines.append(last_line)
    headers, _ = converted((line for _, line in other_lines[:1]), RecordHeader)
    lines = Lines(tuple(other_lines), reader.is_torn, tuple(reader.defects))
    return announced.announcements(lines, headers[0] if headers else None)


def _until_error(reader: LineReader) -> Iterator[tuple[int, dict[str, Any]]]:
    """The lines of a file; that it cannot be read further is a defect."""
    try:
        yield from reader.contents()
    except OSError as error:
        reader.defects.append(f"it cannot be read ({error.strerror})")


# ---- Blocks of values.


@dataclass(frozen=True)
class Blocks(Announcements):
    """Blocks of values in ascending order: `first[i]` to `behind[i]` - 1, for the partition `partition[i]` of the topic
    `topics[topic[i]]`, from time `t[i]` on. `unused`: those that the client gave back."""

    first: I64
    behind: I64
    topics: tuple[str, ...]
    topic: I64
    partition: I64
    t: I64
    unused: tuple[UnusedValues, ...]

    def compare(self, rows: pa.Table) -> Agreement:
        is_announced = rows["f"].to_numpy() != APPEND
        is_append = ~is_announced
        values = rows["value"].to_numpy()[is_append]
        within, is_there = self._find(rows, is_append, values)
        is_announced[is_append] = is_there
        problems = Counter(
            {
                ("append", "with values that were never announced"): int((~within).sum()),
                ("append", "to other partitions than announced"): int((within & ~is_there).sum()),
            }
        )
        return Agreement(is_announced, ValueRuns.of(values[is_there]), +problems)

    def _find(self, rows: pa.Table, is_append: Mask, values: I64) -> tuple[Mask, Mask]:
        """Which appends have an announced value, and which of them are to its partition."""
        if not len(self.first):
            nothing = np.zeros(len(values), np.bool_)
            return nothing, nothing
        at = np.searchsorted(self.first, values, side="right") - 1
        within = (at >= 0) & (values < self.behind[at])
        topics = rows["topic"].combine_chunks()
        topic_codes = {topic: number for number, topic in enumerate(self.topics)}
        codes = np.array([topic_codes.get(topic, -1) for topic in topics.dictionary.to_pylist()] or [-1], np.int64)
        is_there: Mask = within & (self.topic[at] == codes[topics.indices.to_numpy()[is_append]])
        is_there &= self.partition[at] == rows["partition"].to_numpy()[is_append]
        return within, is_there

    def left_open(self, header: RecordHeader, done: ValueRuns) -> pa.Table:
        first = np.array([values.unused for values in self.unused], np.int64)
        last = first + np.array([values.count for values in self.unused], np.int64) - 1
        covered = ValueRuns.union([done, ValueRuns(first, last)])
        columns = [np.empty((2, 0), np.int64)]
        for number, (start, stop) in enumerate(zip(self.first.tolist(), self.behind.tolist(), strict=True)):
            if covered.within(start, stop - start) < stop - start:
                values = np.arange(start, stop)
                missing = values[covered.missing(values)]
                columns.append(np.stack((np.full(len(missing), number), missing)))
        block, values = np.concatenate(columns, axis=1)
        return _open(
            LOG,
            header,
            {
                "session": values >> SESSION_SHIFT,
                "f": np.full(len(values), APPEND),
                "topic": [self.topics[code] for code in self.topic[block]],
                "partition": self.partition[block],
                "inv": self.t[block],
                "value": values,
            },
        )

    def reused(self, done: ValueRuns) -> int:
        return sum(done.within(values.unused, values.count) for values in self.unused)


class _ReadBlocks:
    """Blocks while they are read."""

    def __init__(self) -> None:
        self._blocks: list[AnnouncedBlock] = []
        self._unused: list[UnusedValues] = []
        self._damaged: Counter[str] = Counter()

    def add(self, line: Line) -> bool:
        """Takes a line that is an announcement."""
        if "first" in line:
            blocks, damaged_count = converted([line], AnnouncedBlock)
            self._blocks += blocks
            self._damaged["announce no values"] += damaged_count
        elif "unused" in line:
            unused, damaged_count = converted([line], UnusedValues)
            self._unused += unused
            self._damaged["give back no values"] += damaged_count
        return "first" in line or "unused" in line

    def announcements(self, lines: Lines, header: RecordHeader | None) -> Blocks:
        blocks = sorted(self._blocks, key=lambda block: block.first)
        topics = sorted({block.topic for block in blocks})
        codes = {topic: number for number, topic in enumerate(topics)}
        first = np.array([block.first for block in blocks], np.int64)
        return Blocks(
            lines,
            header,
            +self._damaged,
            first,
            first + np.array([block.count for block in blocks], np.int64),
            tuple(topics),
            np.array([codes[block.topic] for block in blocks], np.int64),
            np.array([block.partition for block in blocks], np.int64),
            np.array([block.t for block in blocks], np.int64),
            tuple(self._unused),
        )


# ---- Invocations one by one.

Columns = Mapping[str, Any]


@dataclass(frozen=True)
class _Form:
    """How the operations of a shape are announced. `columns`: of the table, one row per invocation, with the fields of
    `line`; `query`: what is not announced; `stated`: the columns that rows have if they are as announced; `opened`:
    the columns of rows, from announcements."""

    line: type[AnnouncedInvocation] | type[AnnouncedCall]
    columns: pa.Schema
    query: int
    stated: Callable[[pa.Table], Columns]
    opened: Callable[[pa.Table], Columns]


def _stated_of_registers(rows: pa.Table) -> Columns:
    value = pc.if_else(pc.equal(rows["f"], CAS), rows["new"], rows["value"])
    return {name: rows[name] for name in ("f", "key", "expected", "inv", "phase")} | {"value": value}


def _opened_registers(announced: pa.Table) -> Columns:
    is_cas, nothing = pc.equal(announced["f"], CAS), pa.nulls(announced.num_rows, pa.int64())
    columns = {name: announced[name] for name in ("id", "f", "key", "inv", "expected", "phase")}
    columns["value"] = pc.if_else(is_cas, nothing, announced["value"])
    columns["new"] = pc.if_else(is_cas, announced["value"], nothing)
    return columns


def _all_columns(rows: pa.Table) -> Columns:
    return {name: rows[name] for name in AnnouncedCall.__struct_fields__}


_FORMS: Final[Mapping[str, _Form]] = {
    REGISTER.name: _Form(
        AnnouncedInvocation,
        pa.schema(
            [
                pa.field("id", pa.int64(), nullable=False),
                pa.field("f", pa.int8(), nullable=False),
                pa.field("key", pa.string(), nullable=False),
                pa.field("value", pa.int64()),
                pa.field("expected", pa.int64()),
                pa.field("inv", pa.int64(), nullable=False),
                pa.field("phase", pa.string(), nullable=False),
            ]
        ),
        READ,
        _stated_of_registers,
        _opened_registers,
    ),
    FREE.name: _Form(
        AnnouncedCall,
        pa.schema(
            [
                field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
                for field in map(CALLS.field, AnnouncedCall.__struct_fields__)
            ]
        ),
        QUERY,
        _all_columns,
        _all_columns,
    ),
}


def announced_columns(shape: Shape) -> tuple[str, ...]:
    """The fields of a line that announces an operation of this shape, in their order."""
    return _FORMS[shape.name].line.__struct_fields__


@dataclass(frozen=True)
class AnnouncedGroup:
    """A row group of the table: the position of its first invocation, their number, and their ids' range."""

    first: int
    rows: int
    lowest: int
    highest: int


@dataclass(frozen=True)
class Invocations(Announcements):
    """Invocations in a table. `groups`: its row groups; without row groups, the table does not exist."""

    shape: Shape
    table: Path
    groups: tuple[AnnouncedGroup, ...]

    def compare(self, rows: pa.Table) -> Agreement:
        announced, positions = self._of_ids(rows["id"].to_numpy())
        form = _FORMS[self.shape.name]
        is_there, is_same, at = _compared(rows, announced, form)
        is_never = ~is_there & (rows["f"].to_numpy() != form.query)
        problems = Counter(
            {
                ("operation", "without announcement"): int(is_never.sum()),
                ("operation", "with a different announcement"): int((is_there & ~is_same).sum()),
            }
        )
        is_announced = ~is_never & ~(is_there & ~is_same)
        return Agreement(is_announced, ValueRuns.of(positions[at[is_same]]), +problems)

    def _of_ids(self, ids: I64) -> tuple[pa.Table, I64]:
        """The invocations in the row groups that may have these ids, ordered by id, and their positions."""
        ordered = np.sort(ids)
        numbers = [
            group_number
            for group_number, group in enumerate(self.groups)
            if np.searchsorted(ordered, group.lowest) < np.searchsorted(ordered, group.highest, side="right")
        ]
        if not numbers:
            return _FORMS[self.shape.name].columns.empty_table(), np.empty(0, np.int64)
        rows = self._read(numbers)
        positions = [
            np.arange(self.groups[number].first, self.groups[number].first + self.groups[number].rows)
            for number in numbers
        ]
        order = np.argsort(rows["id"].to_numpy(), kind="stable")
        return rows.take(order).combine_chunks(), np.concatenate(positions)[order]

    def left_open(self, header: RecordHeader, done: ValueRuns) -> pa.Table:
        tables = [self.shape.columns.empty_table()]
        for number, group in enumerate(self.groups):
            if done.within(group.first, group.rows) < group.rows:
                missing = done.missing(np.arange(group.first, group.first + group.rows))
                tables.append(self._left_of(header, self._read([number]).filter(pa.array(missing))))
        return pa.concat_tables(tables).unify_dictionaries().combine_chunks()

    def _left_of(self, header: RecordHeader, announced: pa.Table) -> pa.Table:
        columns = _FORMS[self.shape.name].opened(announced).items()
        return _open(self.shape, header, {name: column.combine_chunks() for name, column in columns})

    def _read(self, groups: Sequence[int]) -> pa.Table:
        with pq.ParquetFile(require_regular(self.table)) as file:
            return file.read_row_groups(list(groups), use_threads=False)


class _ReadInvocations:
    """The table of invocations while it is written."""

    def __init__(self, shape: Shape, path: Path) -> None:
        self._shape = shape
        self._form = _FORMS[shape.name]
        self._path = path
        self._groups: list[AnnouncedGroup] = []
        self._wrong = 0
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[Any] = []
        self._count = 0
        self._highest = -1
        self._is_ordered = True

    def add(self, line: Line) -> bool:
        """Takes a line that is an announcement."""
        if "id" not in line:
            return False
        invocations, damaged_count = converted([line], self._form.line)
        announced = [invocation for invocation in invocations if invocation.is_announced]
        self._wrong += damaged_count + len(invocations) - len(announced)
        for invocation in announced:
            self._is_ordered = self._is_ordered and invocation.id > self._highest
            self._highest = max(self._highest, invocation.id)
            self._waiting.append(invocation)
        if len(self._waiting) >= GROUP_ROWS:
            self._flush()
        return True

    def announcements(self, lines: Lines, header: RecordHeader | None) -> Invocations:
        self._flush()
        if self._writer is not None:
            self._writer.close()
        damaged = Counter({"are not invocations": self._wrong, "invoke an id again": self._again()})
        return Invocations(lines, header, +damaged, self._shape, self._path, tuple(self._groups))

    def _again(self) -> int:
        """How many invocations have the id of an earlier one."""
        if self._is_ordered:
            return 0
        ids = pq.read_table(require_regular(self._path), columns=["id"])["id"].to_numpy()
        return len(ids) - len(np.unique(ids))

    def _flush(self) -> None:
        if not self._waiting:
            return
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._path, self._form.columns, compression="zstd", compression_level=1)
        lines = [msgspec.structs.asdict(invocation) for invocation in self._waiting]
        rows = pa.Table.from_pylist(lines, self._form.columns)
        self._writer.write_table(rows, row_group_size=len(self._waiting))
        ids = [invocation.id for invocation in self._waiting]
        self._groups.append(AnnouncedGroup(self._count, len(ids), min(ids), max(ids)))
        self._count += len(ids)
        self._waiting = []


def _compared(rows: pa.Table, announced: pa.Table, form: _Form) -> tuple[Mask, Mask, I64]:
    """For each operation whether its id was announced, and whether it equals the announcement; and the place of the
    announcement in `announced`, which is ordered by id."""
    ids, numbers = announced["id"].to_numpy(), rows["id"].to_numpy()
    if not len(ids):
        nothing = np.zeros(len(numbers), np.bool_)
        return nothing, nothing, np.zeros(len(numbers), np.int64)
    at = np.minimum(np.searchsorted(ids, numbers), len(ids) - 1)
    is_there = ids[at] == numbers
    announcements = announced.take(pa.array(at))
    is_same = is_there.copy()
    for name, column in form.stated(rows).items():
        if name != "id":
            is_same &= _equal(column, announcements[name])
    return is_there, is_same, at


def _equal(actual: pa.ChunkedArray, stated: pa.ChunkedArray) -> Mask:
    """Where the values are equal, or both null."""
    if pa.types.is_dictionary(actual.type):
        actual = actual.cast(pa.string())
    same = pc.or_(pc.fill_null(pc.equal(actual, stated), False), pc.and_(pc.is_null(actual), pc.is_null(stated)))
    return np.asarray(same.to_numpy(), np.bool_)


def _open(shape: Shape, header: RecordHeader, columns: Mapping[str, Any]) -> pa.Table:
    """Announced operations without completion, with the columns of the shape; `columns`: those that differ."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(shape.row)}
    same = defaults | {"process": header.process, "client": header.client, "type": INFO, "ret": INF}
    same["error"] = UNFINISHED
    arrays = [
        pa.array(columns[field.name]).cast(field.type)
        if field.name in columns
        else pa.array([same[field.name]] * len(columns["inv"]), field.type)
        for field in shape.columns
    ]
    return pa.table(arrays, shape.columns)

"""Reads the histories of clients in any language: `history/operations/<client>.jsonl`, one operation per line.

docs/operations.md describes the format. Reading is strict, because a history that is believed without being understood
proves nothing: an invalid line is a defect of the record that names file and line, the error and the remedy. So is a
torn last line, which a killed client leaves. Such lines are left out.

Theory of operation. A file is read in pieces of whole lines. A piece of plain valid operations on logs is read by
columns (`history/record/jsonl_columns.py`), and every other piece line by line; both give the same rows. The rows of a
piece are handed on before the next piece is read. In memory remain the open invocations, and the ids and values that
were used, as runs of consecutive numbers (`history/record/jsonl_reader.py`). So a file may be larger than the memory.
"""

import contextlib
import io
import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from history.distinct import distinct
from history.errors import UNFINISHED
from history.record.jsonl_columns import columns_of
from history.record.operation_schema import BadLineError, Clock, clock_of, operation_of, require_invocation
from history.record.schemas import ACKS_ALL, APPEND, CAS, PHASE_MAIN, READ, WRITE
from history.record.shapes import LOG, REGISTER, SHAPES, Shape
from history.record.values import producer_of
from history.regular_files import open_regular
from history.strict_json import decode
from history.value_runs import I64, ValueRuns

# ---- Sets of integers and of names that mostly count up: consecutive values take the memory of one run.

_LEAST: Final = -(1 << 63)
_MOST_RECENT: Final = 1 << 14
_MOST_FAMILIES: Final = 1 << 10
_MOST_DIGITS: Final = 19
_DIGITS: Final = "0123456789"


class GrowingRuns:
    """A set of integers of 64 bits, each above -2^63.

    Most values are one above the highest, so this case is the fast one. `_first` .. `_behind` - 1: the highest run;
    `_closed`: earlier runs as first and last values, ascending; `_recent`: values that came after higher ones. When
    there are many of these, they become columns."""

    def __init__(self) -> None:
        self._first = self._behind = _LEAST
        self._closed: tuple[list[int], list[int]] = ([], [])
        self._recent: set[int] = set()
        self._runs = ValueRuns()
        self._most_recent = _MOST_RECENT

    def __contains__(self, value: int) -> bool:
        if value >= self._first:
            return value < self._behind
        at = bisect_right(self._closed[0], value) - 1
        return (at >= 0 and value <= self._closed[1][at]) or value in self._recent or value in self._runs

    def add(self, value: int) -> None:
        """Adds a value that is not in the set."""
        if value == self._behind:
            self._behind += 1
            return
        if value < self._behind:
            self._recent.add(value)
        else:
            if self._first < self._behind:
                self._closed[0].append(self._first)
                self._closed[1].append(self._behind - 1)
            self._first, self._behind = value, value + 1
        if len(self._recent) + len(self._closed[0]) >= self._most_recent:
            self._merge()

    def has_any(self, values: I64) -> bool:
        """Whether one of these values is in the set."""
        self._merge()
        in_highest = (values >= self._first) & (values <= self._behind - 1)
        return bool(in_highest.any()) or not self._runs.missing(values).all()

    def _merge(self) -> None:
        first, last = (np.array(bounds, np.int64) for bounds in self._closed)
        recent = ValueRuns.of(np.array(list(self._recent), np.int64))
        self._runs = ValueRuns.union([self._runs, ValueRuns(first, last), recent])
        self._recent, self._closed = set(), ([], [])
        # A share of the runs, so that values without consecutive ones are merged in a time that is linear in them.
        self._most_recent = max(_MOST_RECENT, len(self._runs.first) // 4)


class GrowingNames:
    """A set of names, each an integer or a text. Texts with equal prefixes before a final number are stored as runs of
    these numbers, all other texts as they are."""

    def __init__(self) -> None:
        self._families: dict[str, GrowingRuns] = {}
        self._others: set[int | str] = set()

    def __contains__(self, name: int | str) -> bool:
        family, number = _split(name) or ("", -1)
        return number in self._families[family] if family in self._families and number >= 0 else name in self._others

    def add(self, name: int | str) -> None:
        """Adds a name that is not in the set."""
        split = _split(name)
        if split is None or (split[0] not in self._families and len(self._families) >= _MOST_FAMILIES):
            self._others.add(name)
            return
        family, number = split
        self._families.setdefault(family, GrowingRuns()).add(number)


def _split(name: int | str) -> tuple[str, int] | None:
    """What precedes the number at the end of a name, and the number; None without one that is small enough."""
    if isinstance(name, int):
        return ("", name) if 0 <= name < 1 << 62 else None
    family = name.rstrip(_DIGITS)
    digits = name[len(family) :].lstrip("0") or name[len(family) :][-1:]
    if not 0 < len(digits) < _MOST_DIGITS:
        return None
    return f"text {name[: len(name) - len(digits)]}", int(digits)


MOST_CLOCK_ERROR_NS: Final = 1_000_000_000
"""A clock with a larger error shows next to nothing: an answer that is stale by that much would go unnoticed."""


_AT_ONCE: Final = 1 << 24
"""Bytes of a piece, unless a single line is longer."""
OBJECT_ROWS: Final = 1 << 14
"""The operations of a piece that are objects of Python at once; the others are columns."""


@dataclass
class Recorded:
    """What the files contain besides the completed operations: uncompleted ones. By the file's name: its `defects`, as
    sentences that name the line; `counts`, its number of operations; `producers`, the numbers of producers in the
    values that it writes; `announced`, whether each write had been announced on a line of its own (both values, if
    mixed); `vague`, the error of its clock in ns, if that is more than `MOST_CLOCK_ERROR_NS`. `torn`: the files whose
    tail was lost."""

    unfinished: dict[Shape, list[tuple[Any, ...]]] = field(default_factory=dict)
    defects: dict[str, list[str]] = field(default_factory=dict)
    torn: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    producers: dict[str, set[int]] = field(default_factory=dict)
    announced: dict[str, set[bool]] = field(default_factory=dict)
    vague: dict[str, int] = field(default_factory=dict)

    def table(self, shape: Shape) -> pa.Table:
        """The uncompleted operations of a shape."""
        return shape.table(self.unfinished.get(shape, []))


@dataclass
class TakenNames:
    """Names that the run has used already: producers of log values by client, and written values.

    `unique`: whether values identify writes and name producers, as in each run; else all of them stay empty.
    `runs`: values written by clients whose record is not in JSON lines. By file, `of_columns`: those of appends that
    were read by columns, `lines_of_columns`: the numbers of the lines that were read so, and `of_lines`: the values
    that other lines write.
    """

    producers: dict[int, str]
    process: int
    unique: bool = True
    runs: dict[str, ValueRuns] = field(default_factory=dict)
    of_columns: dict[Path, ValueRuns] = field(default_factory=dict)
    lines_of_columns: dict[Path, list[range]] = field(default_factory=dict)
    of_lines: dict[Path, GrowingRuns] = field(default_factory=dict)

    @cached_property
    def of_others(self) -> ValueRuns:
        """All values of `runs`, which must be complete."""
        return ValueRuns.union(self.runs.values())

    def claim_one(self, path: Path, value: int) -> str | None:
        """Takes a value that a line of this file writes, if it was not written before; else returns where it was."""
        if value in self.of_others:
            return next(client for client, runs in self.runs.items() if value in runs)
        for other_path, runs in self.of_columns.items():
            if value in runs:
                return f"{other_path.name}:{_line_of(value, other_path, self.lines_of_columns[other_path])}"
        for other_path, taken_values in self.of_lines.items():
            if value in taken_values:
                return f"{other_path.name}:{_first_line_of(value, other_path)}"
        self.of_lines.setdefault(path, GrowingRuns()).add(value)
        return None

    def claim(self, path: Path, lines: range, values: npt.NDArray[np.int64]) -> bool:
        """Takes the values of appends that were read by columns from these lines, if none was written before and no
        other file has their producers."""
        if not self.unique:
            return True
        runs, producers = ValueRuns.of(values), distinct(values >> 32).tolist()
        taken_runs = [self.of_others, *self.of_columns.values()]
        is_new = not runs.repeated and not any(union.repeated for union in self._unions(runs, taken_runs))
        owners = {self.producers.get(producer, path.name) for producer in producers}
        if not is_new or not owners <= {path.name} or any(spans.has_any(values) for spans in self.of_lines.values()):
            return False
        self.of_columns[path] = ValueRuns.union([self.of_columns.get(path, ValueRuns()), runs])
        self.lines_of_columns.setdefault(path, []).append(lines)
        self.producers |= dict.fromkeys(producers, path.name)
        return True

    @staticmethod
    def _unions(runs: ValueRuns, taken_runs: Sequence[ValueRuns]) -> Iterator[ValueRuns]:
        return (ValueRuns.union([ValueRuns(values.first, values.last), runs]) for values in taken_runs)


def _line_of(value: int, path: Path, lines: Sequence[range]) -> int:
    """The line of the append of this value, among the lines that were read by columns. Another line may have the value
    too, such as an invocation, or an operation on a register."""
    for number, line in _numbered(path):
        if str(value).encode() not in line or not any(number in span for span in lines):
            continue
        if parsed_line(line).get("value") == value:
            return number
    raise BadLineError(f"{path.name} was changed while it was read")


def _first_line_of(value: int, path: Path) -> int:
    """The line that took this value first: of the operation that writes it, or of an invocation that was never
    completed. Which lines are read by columns does not matter."""
    under_way: dict[str, tuple[int, dict[str, Any]]] = {}
    for number, text in _numbered(path):
        if not under_way and str(value).encode() not in text:
            continue
        with contextlib.suppress(BadLineError):
            line = parsed_line(text)
            name = json.dumps(line.get("id"))
            if line.get("type") == "invoke":
                if value in (line.get("value"), line.get("new")):
                    under_way[name] = (number, line)
                continue
            _, invocation = under_way.pop(name, (0, {}))
            operation = {key: content for key, content in {**invocation, **line}.items() if key != "id"}
            if _written(operation_of(operation)) == value:
                return number
    for number, _ in under_way.values():
        return number
    raise BadLineError(f"{path.name} was changed while it was read")


def _numbered(path: Path) -> Iterator[tuple[int, bytes]]:
    with open_regular(path) as raw, io.BufferedReader(raw) as file:
        yield from enumerate(file, 1)


def _written(operation: Mapping[str, Any]) -> int | None:
    """The value that an operation writes, None without one."""
    f = operation["f"]
    value: int | None = operation["new"] if f == CAS else operation["value"] if f in (APPEND, WRITE) else None
    return value


def read_lines(
    paths: Sequence[Path],
    journal: Sequence[Mapping[str, Any]],
    taken_names: TakenNames,
    take: Callable[[Shape, pa.Table], None],
    take_other: Callable[[Mapping[str, Any]], bool] = lambda _: False,
) -> Recorded:
    """Reads these files; each file is one client and gets the next process number. `take` gets the completed operations
    of a shape in pieces, with the columns of the shape, in the order of the files and their lines. A line that
    contradicts another one, or `taken_names`, is left out like an invalid one. `take_other` returns True for a line
    that it takes, which is not an operation, and raises BadLineError."""
    recorded = Recorded()
    for path in paths:
        _File(path, journal, taken_names, recorded, take, take_other).read()
        taken_names.process += 1
    return recorded


class _File:
    """One client's file during reading."""

    def __init__(
        self,
        path: Path,
        journal: Sequence[Mapping[str, Any]],
        taken_names: TakenNames,
        recorded: Recorded,
        take: Callable[[Shape, pa.Table], None],
        take_other: Callable[[Mapping[str, Any]], bool],
    ) -> None:
        self._path = path
        self._journal = journal
        self._known = taken_names
        self._found = recorded
        self._hand_on = take
        self._take_other = take_other
        self._clock = Clock()
        self._client = path.stem
        self._open: dict[str, tuple[int, dict[str, Any]]] = {}
        self._used = GrowingNames()
        self._count = 0
        self._defects = recorded.defects.setdefault(path.name, [])
        self._rows: dict[Shape, list[tuple[Any, ...]]] = {shape: [] for shape in SHAPES.values()}
        self._tables: dict[Shape, list[pa.Table]] = {shape: [] for shape in SHAPES.values()}

    def read(self) -> None:
        line_count = 0
        try:
            with open_regular(self._path) as file:
                for piece in self._pieces(file):
                    if not self._read_piece(line_count, piece):
                        return
                    line_count += piece.count(b"\n")
        except OSError as error:
            self._defects.append(f"{self._path.name} cannot be read: {error.strerror}")
            return
        for number, invocation in self._open.values():
            row = {**invocation, "type": "info", "error": UNFINISHED}
            self._try(number, partial(self._keep, row, announced=True, unfinished=True))

    def _pieces(self, file: io.FileIO) -> Iterator[bytes]:
        """Whole lines, in pieces. Reports a torn last line."""
        parts: list[bytes] = []
        while data := file.read(_AT_ONCE):
            head, end, tail = data.rpartition(b"\n")
            if end:
                yield b"".join([*parts, head, end])
                parts = []
            parts.append(tail)
        if any(parts):
            self._found.torn.append(str(self._path))
            self._defects.append(f"{self._path.name} was torn: its tail is lost")

    def _read_piece(self, line_count: int, piece: bytes) -> bool:
        """Reads whole lines; `line_count`: the number of lines in front of them. False if the rest cannot be read,
        because the first line may have declared the clock of all others."""
        first_line, _, other_lines = piece.partition(b"\n")
        is_understood = True
        if line_count == 0 and b'"clock"' in first_line:
            is_understood = self._try(1, partial(self._read_line, 1, first_line))
            line_count, piece = 1, other_lines
        if is_understood and not self._read_columns(line_count, piece):
            is_understood = self._read_lines(line_count, piece)
        self._flush()
        return is_understood

    def _read_columns(self, line_count: int, piece: bytes) -> bool:
        """Reads the piece by columns if all its lines are valid operations on logs without an id, and if no value in it
        was used before. Otherwise nothing is read."""
        if self._clock.error > MOST_CLOCK_ERROR_NS:
            return False
        columns = columns_of(piece, clock=self._clock, client=self._client, process=self._known.process)
        if columns is None:
            return False
        lines = range(line_count + 1, line_count + 1 + columns.rows.num_rows)
        if not self._known.claim(self._path, lines, columns.written):
            return False
        self._flush()
        self._hand_on(LOG, columns.rows)
        name = self._path.name
        self._found.counts[name] = self._found.counts.get(name, 0) + columns.rows.num_rows
        if len(columns.written):
            owned = distinct(columns.written >> 32).tolist()
            self._found.producers.setdefault(name, set()).update(producer_of(producer << 32) for producer in owned)
            self._found.announced.setdefault(name, set()).add(False)
        return True

    def _flush(self) -> None:
        """Hands on the rows that were read line by line."""
        self._to_columns()
        for shape, tables in self._tables.items():
            if tables:
                self._hand_on(shape, pa.concat_tables(tables).unify_dictionaries().combine_chunks())
                tables.clear()

    def _to_columns(self) -> None:
        for shape, rows in self._rows.items():
            if rows:
                self._tables[shape].append(shape.table(rows))
                rows.clear()

    def _read_lines(self, line_count: int, piece: bytes) -> bool:
        for number, line in enumerate(piece.split(b"\n")[:-1], line_count + 1):
            is_understood = self._try(number, partial(self._read_line, number, line))
            if number == 1 and not is_understood:
                return False
        return True

    def _read_line(self, number: int, line: bytes) -> None:
        self._take(number, parsed_line(line))

    def _try(self, number: int, take: Callable[[], None]) -> bool:
        try:
            take()
        except BadLineError as error:
            self._defects.append(f"{self._path.name}:{number}: {error}")
            return False
        return True

    def _take(self, number: int, line: dict[str, Any]) -> None:
        if "clock" in line:
            if number != 1:
                raise BadLineError("the clock is declared on the first line or not at all")
            self._clock, client = clock_of(line, self._journal)
            self._client = client or self._client
            if self._clock.error > MOST_CLOCK_ERROR_NS:
                self._found.vague[self._path.name] = self._clock.error
            return
        if self._take_other(line):
            return
        name = json.dumps(line["id"]) if "id" in line else None
        if name is not None and (isinstance(line["id"], bool) or not isinstance(line["id"], int | str)):
            raise BadLineError(f"id {name} is not a name: an integer or a text is needed")
        if line.get("type") == "invoke":
            self._invoke(number, name, line)
            return
        if name is not None:
            line = self._completed(name, line)
        self._keep(line, announced=name is not None)

    def _invoke(self, number: int, name: str | None, line: dict[str, Any]) -> None:
        if name is None:
            raise BadLineError('an invocation needs an "id", which the line that completes it repeats')
        if line["id"] in self._used:
            raise BadLineError(f"id {name} was invoked before: every invocation of a file needs an id of its own")
        require_invocation(line)
        self._used.add(line["id"])
        self._open[name] = (number, {key: value for key, value in line.items() if key not in ("id", "type")})

    def _completed(self, name: str, line: dict[str, Any]) -> dict[str, Any]:
        """The invocation and its completion as one operation."""
        if name not in self._open:
            reason = "was completed before" if line["id"] in self._used else "was never invoked"
            raise BadLineError(f'id {name} {reason}: a line with an id completes the "invoke" line of that id, once')
        _, invocation = self._open.pop(name)
        for key, value in invocation.items():
            if key in line and line[key] != value:
                completed_value, was = json.dumps(line[key]), json.dumps(value)
                raise BadLineError(f'"{key}" is {completed_value}, but operation {name} was invoked with {was}')
        return {**invocation, **{key: value for key, value in line.items() if key != "id"}}

    def _keep(self, line: dict[str, Any], *, announced: bool, unfinished: bool = False) -> None:
        operation = operation_of(line)
        shape, f = operation["shape"], operation["f"]
        self._found.counts[self._path.name] = self._found.counts.get(self._path.name, 0) + 1
        written = _written(operation)
        if written is not None:
            self._claim(written)
            self._found.announced.setdefault(self._path.name, set()).add(announced)
        if f == APPEND:
            self._own(operation["value"])
        inv, ret = self._clock.interval(operation["inv"], operation["ret"])
        row = (self._register_row if shape is REGISTER else self._log_row)(operation, inv, ret)
        rows = self._found.unfinished.setdefault(shape, []) if unfinished else self._rows[shape]
        rows.append(row)
        if not unfinished and sum(map(len, self._rows.values())) >= OBJECT_ROWS:
            self._to_columns()

    def _claim(self, value: int) -> None:
        self._found.producers.setdefault(self._path.name, set()).add(producer_of(value))
        if not self._known.unique:
            return
        place = self._known.claim_one(self._path, value)
        if place is not None:
            raise BadLineError(
                f"value {value} was written before, by {place}: values are unique in a run, retries included"
            )

    def _own(self, value: int) -> None:
        if not self._known.unique:
            return
        owner = self._known.producers.setdefault(value >> 32, self._path.name)
        if owner != self._path.name:
            raise BadLineError(
                f"value {value} belongs to producer {value >> 32} (its upper bits), whose values {owner} appends: "
                "a client's values are producer << 32 | count, with a producer of its own"
            )

    def _register_row(self, operation: Mapping[str, Any], inv: int, ret: int) -> tuple[Any, ...]:
        number = self._known.process << 32 | self._count
        self._count += 1
        return (
            *(number, self._known.process, self._client, operation["f"], operation["key"], operation["outcome"]),
            *(inv, ret, operation["value"], operation["expected"], operation["new"]),
            *(operation.get("phase", PHASE_MAIN), operation["error"], operation.get("endpoint", "")),
        )

    def _log_row(self, operation: Mapping[str, Any], inv: int, ret: int) -> tuple[Any, ...]:
        f, records = operation["f"], operation.get("records") or []
        end = operation.get("end", -1)
        lo = operation.get("lo", end)
        return (
            *(self._known.process, operation.get("session", 1), self._client, f),
            *(operation["topic"], operation["partition"], operation["outcome"], inv, ret),
            operation.get("from", -1) if f == READ else operation.get("offset", -1),
            *(operation.get("hi", end), max(lo, records[-1][0] + 1) if records else lo),
            operation["value"] if f == APPEND else -1,
            *([offset for offset, _ in records], [value for _, value in records]),
            *(operation.get("acks", ACKS_ALL), operation.get("phase", PHASE_MAIN), operation["error"]),
        )


def parsed_line(line: bytes) -> dict[str, Any]:
    """The JSON object in a line. Raises BadLineError."""
    try:
        content = decode(line)
    except ValueError as error:
        raise BadLineError(
            f"not JSON ({error}): one operation as one JSON object per line; a client that was killed while it wrote "
            "and restarted starts a new file"
        ) from error
    if not isinstance(content, dict):
        raise BadLineError(f'not an operation but {json.dumps(content)[:40]}: a JSON object like {{"f": "read", ...}}')
    return content

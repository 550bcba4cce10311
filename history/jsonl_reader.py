"""Reads the histories of clients in any language: `history/operations/<client>.jsonl`, one operation per line.

docs/operations.md describes the format. Reading is strict, because a history that is believed without being understood
proves nothing: an invalid line is a defect of the record that names file and line, the error and the remedy. So is a
torn last line, which a killed client leaves. Such lines are left out.
"""

from __future__ import annotations

import json
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
from history.jsonl_columns import columns_of
from history.operation_schema import REGISTER, BadLineError, Clock, clock_of, operation_of, require_invocation
from history.registers import table_of
from history.regular_files import read_bytes
from history.schemas import ACKS_ALL, APPEND, CAS, OPERATIONS, PHASE_MAIN, READ, WRITE
from history.strict_json import decode
from history.value_runs import ValueRuns
from history.values import producer_of

MOST_CLOCK_ERROR_NS: Final = 1_000_000_000
"""A clock with a larger error shows next to nothing: an answer that is stale by that much would go unnoticed."""


@dataclass
class Recorded:
    """The content of the files: rows of both shapes, uncompleted operations separately; `columns`: operations on logs
    that were read by columns. By the file's name: its
    `defects`, as sentences that name the line; `counts`, its number of operations; `producers`, the numbers of
    producers in the values that it writes; `announced`, whether each write had been announced on a line of its own
    (both values, if mixed); `vague`, the error of its clock in ns, if that is more than `MOST_CLOCK_ERROR_NS`. `torn`:
    the files whose tail was lost."""

    columns: list[pa.Table] = field(default_factory=list)
    operations: list[dict[str, Any]] = field(default_factory=list)
    registers: list[tuple[Any, ...]] = field(default_factory=list)
    unfinished_operations: list[dict[str, Any]] = field(default_factory=list)
    unfinished_registers: list[tuple[Any, ...]] = field(default_factory=list)
    defects: dict[str, list[str]] = field(default_factory=dict)
    torn: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    producers: dict[str, set[int]] = field(default_factory=dict)
    announced: dict[str, set[bool]] = field(default_factory=dict)
    vague: dict[str, int] = field(default_factory=dict)

    def tables(self) -> tuple[pa.Table, pa.Table, pa.Table, pa.Table]:
        """Log operations and register operations: completed, then the same two unfinished."""
        return (
            pa.concat_tables([*self.columns, pa.Table.from_pylist(self.operations, OPERATIONS)]).unify_dictionaries(),
            table_of(self.registers),
            pa.Table.from_pylist(self.unfinished_operations, OPERATIONS),
            table_of(self.unfinished_registers),
        )


@dataclass
class TakenNames:
    """Names that the run has used already: written values with their place, producers of log values by client.

    `unique`: whether values identify writes and name producers, as in each run; else both dictionaries stay empty.
    `runs`: values written by clients whose record is not in JSON lines.
    """

    values: dict[int, str]
    producers: dict[int, str]
    process: int
    unique: bool = True
    runs: dict[str, ValueRuns] = field(default_factory=dict)

    @cached_property
    def of_others(self) -> ValueRuns:
        """All values of `runs`, which must be complete."""
        return ValueRuns.union(self.runs.values())

    def first_place(self, value: int, here: str) -> str:
        """Where a value was written first: `here`, if it was not written before."""
        if value in self.of_others:
            return next(client for client, runs in self.runs.items() if value in runs)
        return self.values.setdefault(value, here)


def read_lines(paths: Sequence[Path], journal: Sequence[Mapping[str, Any]], known: TakenNames) -> Recorded:
    """The content of these files; each file is one client and gets the next process number. A line that contradicts
    another one, or `known`, is left out like an invalid one."""
    found = Recorded()
    for path in paths:
        _File(path, journal, known, found).read()
        known.process += 1
    return found


class _File:
    """One client's file during reading."""

    def __init__(self, path: Path, journal: Sequence[Mapping[str, Any]], known: TakenNames, found: Recorded) -> None:
        self._path = path
        self._journal = journal
        self._known = known
        self._found = found
        self._clock = Clock()
        self._client = path.stem
        self._open: dict[str, tuple[int, dict[str, Any]]] = {}
        self._used: set[str] = set()
        self._count = 0
        self._defects = found.defects.setdefault(path.name, [])

    def read(self) -> None:
        try:
            data = read_bytes(self._path)
        except OSError as error:
            self._defects.append(f"{self._path.name} cannot be read: {error.strerror}")
            return
        if not self._read_columns(data):
            self._read_lines(data)

    def _read_columns(self, data: bytes) -> bool:
        """Reads the file by columns if all its lines are valid operations on logs without an id, but for a first line
        that declares the clock, and if no value in it was used before. Otherwise nothing is read."""
        first, _, rest = data.partition(b"\n")
        clock, client, before = Clock(), self._client, 0
        if b'"clock"' in first:
            try:
                clock, named = clock_of(parsed_line(first), self._journal)
            except (BadLineError, KeyError):
                return False
            client, before, data = named or client, 1, rest
        if clock.error > MOST_CLOCK_ERROR_NS or not data.endswith(b"\n"):
            return False
        found = columns_of(data, clock=clock, client=client, process=self._known.process)
        if found is None or not self._may_claim(found.written):
            return False
        self._found.columns.append(found.rows)
        self._found.counts[self._path.name] = found.rows.num_rows
        if self._known.unique:
            places = (f"{self._path.name}:{line + before + 1}" for line in found.lines.tolist())
            self._known.values |= zip(found.written.tolist(), places, strict=True)
        for owned in distinct(found.written >> 32).tolist():
            if self._known.unique:
                self._known.producers[owned] = self._path.name
            self._found.producers.setdefault(self._path.name, set()).add(producer_of(owned << 32))
            self._found.announced[self._path.name] = {False}
        return True

    def _may_claim(self, values: npt.NDArray[np.int64]) -> bool:
        """Whether the values were not written before, and are of producers that no other file has."""
        if not self._known.unique:
            return True
        runs = ValueRuns.of(values)
        others = self._known.of_others
        owners = {self._known.producers.get(each, self._path.name) for each in distinct(values >> 32).tolist()}
        is_new = not runs.repeated and not ValueRuns.union([others, ValueRuns(runs.first, runs.last)]).repeated
        return is_new and owners <= {self._path.name} and self._known.values.keys().isdisjoint(values.tolist())

    def _read_lines(self, data: bytes) -> None:
        for number, line in self._lines(data):
            is_understood = self._try(number, partial(self._read_line, number, line))
            if number == 1 and not is_understood:  # it may have declared the clock of all other lines
                return
        for number, invocation in self._open.values():
            left = {**invocation, "type": "info", "error": UNFINISHED}
            self._try(number, partial(self._keep, number, left, announced=True, unfinished=True))

    def _read_line(self, number: int, line: bytes) -> None:
        self._take(number, parsed_line(line))

    def _lines(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        *lines, tail = data.split(b"\n")
        if tail:
            self._found.torn.append(str(self._path))
            self._defects.append(f"{self._path.name} was torn: its tail is lost")
        yield from enumerate(lines, 1)

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
        name = json.dumps(line["id"]) if "id" in line else None
        if name is not None and (isinstance(line["id"], bool) or not isinstance(line["id"], int | str)):
            raise BadLineError(f"id {name} is not a name: an integer or a text is needed")
        if line.get("type") == "invoke":
            self._invoke(number, name, line)
            return
        if name is not None:
            line = self._completed(name, line)
        self._keep(number, line, announced=name is not None)

    def _invoke(self, number: int, name: str | None, line: dict[str, Any]) -> None:
        if name is None:
            raise BadLineError('an invocation needs an "id", which the line that completes it repeats')
        if name in self._used:
            raise BadLineError(f"id {name} was invoked before: every invocation of a file needs an id of its own")
        require_invocation(line)
        self._used.add(name)
        self._open[name] = (number, {key: value for key, value in line.items() if key not in ("id", "type")})

    def _completed(self, name: str, line: dict[str, Any]) -> dict[str, Any]:
        """The invocation and its completion as one operation."""
        if name not in self._open:
            why = "was completed before" if name in self._used else "was never invoked"
            raise BadLineError(f'id {name} {why}: a line with an id completes the "invoke" line of that id, once')
        _, invocation = self._open.pop(name)
        for key, value in invocation.items():
            if key in line and line[key] != value:
                given, was = json.dumps(line[key]), json.dumps(value)
                raise BadLineError(f'"{key}" is {given}, but operation {name} was invoked with {was}')
        return {**invocation, **{key: value for key, value in line.items() if key != "id"}}

    def _keep(self, number: int, line: dict[str, Any], *, announced: bool, unfinished: bool = False) -> None:
        operation = operation_of(line)
        shape, f = operation["shape"], operation["f"]
        self._found.counts[self._path.name] = self._found.counts.get(self._path.name, 0) + 1
        written = operation["new"] if f == CAS else operation["value"] if f in (APPEND, WRITE) else None
        if written is not None:
            self._claim(number, written)
            self._found.announced.setdefault(self._path.name, set()).add(announced)
        if f == APPEND:
            self._own(operation["value"])
        inv, ret = self._clock.interval(operation["inv"], operation["ret"])
        if shape == REGISTER:
            row = self._register_row(operation, inv, ret)
            (self._found.unfinished_registers if unfinished else self._found.registers).append(row)
        else:
            of_log = self._log_row(operation, inv, ret)
            (self._found.unfinished_operations if unfinished else self._found.operations).append(of_log)

    def _claim(self, number: int, value: int) -> None:
        self._found.producers.setdefault(self._path.name, set()).add(producer_of(value))
        if not self._known.unique:
            return
        here = f"{self._path.name}:{number}"
        there = self._known.first_place(value, here)
        if there != here:
            raise BadLineError(
                f"value {value} was written before, by {there}: values are unique in a run, retries included"
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

    def _log_row(self, operation: Mapping[str, Any], inv: int, ret: int) -> dict[str, Any]:
        f, records = operation["f"], operation.get("records") or []
        end = operation.get("end", -1)
        lo = operation.get("lo", end)
        return {
            "process": self._known.process,
            "session": operation.get("session", 1),
            "client": self._client,
            "f": f,
            "topic": operation["topic"],
            "partition": operation["partition"],
            "type": operation["outcome"],
            "inv": inv,
            "ret": ret,
            "offset": operation.get("from", -1) if f == READ else operation.get("offset", -1),
            "hi": operation.get("hi", end),
            "lo": max(lo, records[-1][0] + 1) if records else lo,
            "value": operation["value"] if f == APPEND else -1,
            "offsets": [offset for offset, _ in records],
            "values": [value for _, value in records],
            "acks": operation.get("acks", ACKS_ALL),
            "phase": operation.get("phase", PHASE_MAIN),
            "error": operation["error"],
        }


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

"""Counts a run's completed operations by second while its clients record them, reading only what is new.

Theory of operation. Streams and JSON lines only grow. A reader keeps for each file the place behind the last complete
message or line, so each look reads what was appended since the one before. It keeps no operations: only the number that
failed in each second, and of the acknowledged ones the number in each bucket of latency. Memory depends on the seconds
that are shown, not on the operations.

The numbers are for viewers. Checksums, counts and values are examined by the analysis, which reads the files again.
"""

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from history.record.client_files import LINES
from history.record.jsonl_columns import columns_of
from history.record.jsonl_reader import parsed_line
from history.record.operation_schema import BadLineError, Clock, clock_of, operation_of
from history.record.schemas import INF, OK
from history.record.shapes import SHAPES, Shape
from history.regular_files import open_regular
from history.seconds import log_buckets

PER_OCTAVE: Final = 16
"""Buckets of latency for each doubling: neighbouring bounds differ by 4.4 %."""
BUCKETS: Final = 28 * PER_OCTAVE
_SECOND: Final = 1_000_000_000
_AT_ONCE: Final = 8 << 20
"""Bytes that are read at once, unless a single message or line is longer."""
_MOST_AT_ONCE: Final = 1 << 28
I64 = npt.NDArray[np.int64]
Line = Mapping[str, Any]


class OperationCounts:
    """Operations by second since `origin`, in ns of the clients' clock; those of the last `most_seconds` seconds.

    `total`: all acknowledged operations; `newest`: the latest return, -1 without one."""

    def __init__(self, origin: int, most_seconds: int) -> None:
        self.total = 0
        self.newest = -1
        self._origin = origin
        self._most = most_seconds
        self._failed: dict[int, int] = {}
        self._latencies: dict[int, I64] = {}

    def add(self, inv: I64, ret: I64, is_ok: npt.NDArray[np.bool_]) -> None:
        """Adds completed operations."""
        self.total += int(is_ok.sum())
        self.newest = max(self.newest, int(ret.max(initial=-1)))
        second = (ret - self._origin) // _SECOND
        bucket = log_buckets(ret - inv, PER_OCTAVE, BUCKETS)
        for distinct_second in np.unique(second).tolist():
            mine = second == distinct_second
            self._failed[distinct_second] = self._failed.get(distinct_second, 0) + int((mine & ~is_ok).sum())
            counts = np.bincount(bucket[mine & is_ok], minlength=BUCKETS)
            self._latencies[distinct_second] = self._latencies.get(distinct_second, 0) + counts
        self._forget()

    def _forget(self) -> None:
        first_second = (self.newest - self._origin) // _SECOND - self._most
        for old in [second for second in self._failed if second < first_second]:
            del self._failed[old], self._latencies[old]

    def acknowledged(self, second: int) -> int:
        return int(self._latencies[second].sum()) if second in self._latencies else 0

    def failed(self, second: int) -> int:
        return self._failed.get(second, 0)

    def latency_ms(self, second: int, share: float) -> float | None:
        """The latency that this share of the acknowledged operations did not exceed, within 2.3 %; None without one."""
        cumulative_counts = np.cumsum(self._latencies.get(second, np.zeros(1, np.int64)))
        if not cumulative_counts[-1]:
            return None
        bucket = int(np.searchsorted(cumulative_counts, max(1, np.ceil(share * cumulative_counts[-1]))))
        return float(2 ** ((bucket + 0.5) / PER_OCTAVE)) / 1e3


class GrowingOperations:
    """The operations of a run that is under way, in `directory`. `counts`: those of the looks so far."""

    def __init__(self, directory: Path, origin: int, most_seconds: int) -> None:
        self.counts = OperationCounts(origin, most_seconds)
        self._directory = directory
        self._files: dict[str, _GrowingFile] = {}

    def look(self, journal: Sequence[Line]) -> bool:
        """Counts what was recorded since the last look. False if a file was replaced or is gone: what was counted is of
        other files then. `journal`: the run's, which relates clocks."""
        names = sorted(os.listdir(self._directory)) if self._directory.is_dir() else []
        for name in names:
            form = _FORMS.get(Path(name).suffix)
            if name not in self._files and form is not None:
                self._files[name] = form(self._directory / name)
        if not self._files.keys() <= set(names):
            return False
        return all(file.look(self.counts, journal) for file in self._files.values())


class _GrowingFile(ABC):
    """A file to which a client appends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._inode = -1
        self._is_understood = True

    def look(self, counts: OperationCounts, journal: Sequence[Line]) -> bool:
        """Counts what was appended since the last look. False if it is another file, or shorter. A file that cannot be
        understood is read no further."""
        try:
            with open_regular(self._path) as file:
                state = os.fstat(file.fileno())
                if state.st_size < self._read or self._inode not in (-1, state.st_ino):
                    return False
                self._inode = state.st_ino
                at_once = _AT_ONCE
                while self._is_understood and at_once <= _MOST_AT_ONCE:
                    file.seek(self._read)
                    data = file.read(at_once)
                    used = self._take(data, counts, journal)
                    self._read += used
                    if self._read - used + len(data) >= state.st_size:
                        return True
                    at_once = at_once if used else at_once * 2
                self._is_understood = False
        except OSError:
            self._is_understood = False
        return True

    @abstractmethod
    def _take(self, data: bytes, counts: OperationCounts, journal: Sequence[Line]) -> int:
        """Counts the operations in `data`; returns the number of bytes before the first incomplete message or line."""


class _GrowingStream(_GrowingFile):
    """An Arrow stream. Its columns of text are read as the numbers of their entries, so no dictionary is needed to read
    a batch alone."""

    def __init__(self, path: Path, shape: Shape) -> None:
        super().__init__(path)
        self._schemas = [schema for schema in (shape.columns, shape.earlier) if schema is not None]
        self._schema = shape.columns

    def _take(self, data: bytes, counts: OperationCounts, journal: Sequence[Line]) -> int:
        del journal
        source, used = pa.BufferReader(data), 0
        while self._is_understood:
            try:
                message = pa.ipc.read_message(source)
            except EOFError:
                return int(source.tell())
            except (pa.ArrowException, OSError):  # it is incomplete, or no message
                break
            used = int(source.tell())
            try:
                self._count(message, counts)
            except (pa.ArrowException, OSError, ValueError):
                self._is_understood = False
        return used

    def _count(self, message: Any, counts: OperationCounts) -> None:
        if message.type == "schema":
            self._schema = pa.ipc.read_schema(message)
            self._is_understood = any(map(self._schema.equals, self._schemas))
        elif message.type == "record batch":
            batch = pa.ipc.read_record_batch(message, _plain(self._schema))
            inv, ret, outcome = (batch.column(name).to_numpy() for name in ("inv", "ret", "type"))
            done = ret < INF
            counts.add(inv[done], ret[done], outcome[done] == OK)


def _plain(schema: pa.Schema) -> pa.Schema:
    """The schema with the type of the indices in place of each dictionary."""
    types = (data_type.index_type if pa.types.is_dictionary(data_type) else data_type for data_type in schema.types)
    return pa.schema([field.with_type(type_) for field, type_ in zip(schema, types, strict=True)])


class _GrowingLines(_GrowingFile):
    """JSON lines. `_open`: the invocations that were not completed yet."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._clock: Clock | None = None
        self._open: dict[str, dict[str, Any]] = {}

    def _take(self, data: bytes, counts: OperationCounts, journal: Sequence[Line]) -> int:
        whole_lines = data[: data.rfind(b"\n") + 1]
        lines = whole_lines
        if self._clock is None and whole_lines:
            first_line, _, other_lines = whole_lines.partition(b"\n")
            try:
                lines = self._begun(first_line, whole_lines, other_lines, journal)
            except BadLineError:  # it may have declared the clock of all other lines
                self._is_understood = False
                return len(whole_lines)
        if lines and self._clock is not None:
            counts.add(*self._completed(lines, self._clock))
        return len(whole_lines)

    def _begun(self, first_line: bytes, whole_lines: bytes, other_lines: bytes, journal: Sequence[Line]) -> bytes:
        """Sets the clock; returns the lines of operations."""
        line = parsed_line(first_line)
        self._clock = clock_of(line, journal)[0] if "clock" in line else Clock()
        return other_lines if "clock" in line else whole_lines

    def _completed(self, lines: bytes, clock: Clock) -> tuple[I64, I64, npt.NDArray[np.bool_]]:
        """Invocation, return and whether it was acknowledged, of each completed operation."""
        columns = None if self._open else columns_of(lines, clock=clock, client="", process=0)
        if columns is not None:
            inv, ret, outcome = (columns.rows[name].to_numpy() for name in ("inv", "ret", "type"))
        else:
            operations = np.array([*self._one_by_one(lines, clock)], np.int64).reshape(-1, 3)
            inv, ret, outcome = operations[:, 0], operations[:, 1], operations[:, 2]
        done = ret < INF
        return inv[done], ret[done], outcome[done] == OK

    def _one_by_one(self, lines: bytes, clock: Clock) -> Iterator[tuple[int, int, int]]:
        for line in lines.split(b"\n")[:-1]:
            try:
                operation = self._operation(parsed_line(line))
                if operation is not None:
                    yield *clock.interval(operation["inv"], operation["ret"]), operation["outcome"]
            except BadLineError:
                continue  # the analysis names it

    def _operation(self, line: dict[str, Any]) -> Mapping[str, Any] | None:
        """The operation that the line completes, if it does."""
        name = json.dumps(line.pop("id")) if "id" in line else None
        if line.get("type") == "invoke":
            if name is not None:
                self._open[name] = {key: value for key, value in line.items() if key != "type"}
            return None
        invocation = self._open.pop(name, {}) if name is not None else {}
        return operation_of({**invocation, **line})


_FORMS: Final[Mapping[str, Callable[[Path], _GrowingFile]]] = {
    **{shape.stream: partial(_GrowingStream, shape=shape) for shape in SHAPES.values()},
    LINES: _GrowingLines,
}

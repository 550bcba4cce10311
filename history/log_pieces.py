"""Reads a segment of a client's operations on logs, validates it and writes its tables: one task, in bounded memory.

Theory of operation. A task has all that its segment's rows are validated against: the client's name and numbers, and
the values that it announced. It works on 2^20 rows at a time, writes those that are believed, and returns numbers, runs
of values, defects and the index of the rows that it wrote. So the segments of all clients are independent tasks with
small results. From these, `history/client_reader.py` decides whether a client's record is complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from history.announcements import AnnouncedBlock, RecordHeader
from history.arrow_stream import SEGMENT_ROWS, BatchReader
from history.operation_tables import IndexedGroup, write_operations
from history.row_origin import RowOrigin
from history.schemas import APPEND, NAMES, OPERATIONS
from history.seconds import SecondCounts
from history.shapes import LOG
from history.validation import RowErrors, error_sentences, valid_part
from history.value_runs import ValueRuns
from installation.counted import counted


@dataclass(frozen=True)
class AnnouncedValues:
    """Blocks of announced values in ascending order: `first[i]` to `behind[i]` - 1, for the partition `partition[i]` of
    the topic `topics[topic[i]]`."""

    first: npt.NDArray[np.int64]
    behind: npt.NDArray[np.int64]
    topics: tuple[str, ...]
    topic: npt.NDArray[np.int64]
    partition: npt.NDArray[np.int64]

    @classmethod
    def of(cls, blocks: Iterable[AnnouncedBlock]) -> AnnouncedValues:
        ordered = sorted(blocks, key=lambda block: block.first)
        topics = sorted({block.topic for block in ordered})
        code = {topic: number for number, topic in enumerate(topics)}
        first_values = np.array([block.first for block in ordered], np.int64)
        return cls(
            first_values,
            first_values + np.array([block.count for block in ordered], np.int64),
            tuple(topics),
            np.array([code[block.topic] for block in ordered], np.int64),
            np.array([block.partition for block in ordered], np.int64),
        )


@dataclass(frozen=True)
class PieceTask:
    """A segment to read. `header`: the client by its own announcement; `announced`: the values that it may append.

    `tables`: where to write, None: nowhere. `record`: how the names of its files start. `keeps`: whether the result has
    the rows."""

    path: Path
    segment: int
    record: str
    header: RecordHeader | None
    announced: AnnouncedValues
    tables: Path | None = None
    keeps: bool = True


@dataclass
class PieceRead:
    """The content of a segment. `recorded`: its valid and invalid rows by kind; `believed`: those that are valid and
    whose append was announced. `written`: the values of valid appends; `used`: of believed ones. `misplaced`: some
    appends were never announced for their partition, so the announcements or the rows are damaged. `last_process`: the
    highest number of a process in believed rows, -1 without any."""

    recorded: Counter[str] = field(default_factory=Counter)
    believed: Counter[str] = field(default_factory=Counter)
    written: ValueRuns = field(default_factory=ValueRuns)
    used: ValueRuns = field(default_factory=ValueRuns)
    defects: list[str] = field(default_factory=list)
    is_torn: bool = False
    misplaced: bool = False
    last_process: int = -1
    rows: list[pa.Table] = field(default_factory=list)
    groups: list[IndexedGroup] = field(default_factory=list)
    seconds: SecondCounts | None = None


def read_piece(task: PieceTask) -> PieceRead:
    """Reads a segment. All damage is a defect in the result. Raises OSError when its tables cannot be written."""
    return _Piece(task).read()


class _Piece:
    """A segment during reading."""

    def __init__(self, task: PieceTask) -> None:
        self._task = task
        self._found = PieceRead()
        self._invalid: RowErrors = {}
        self._written: list[ValueRuns] = []
        self._used: list[ValueRuns] = []
        self._seconds: list[SecondCounts] = []
        self._numbers: Counter[str] = Counter()
        self._origin = RowOrigin(task.header)

    def read(self) -> PieceRead:
        task, reading = self._task, self._found
        try:
            reader = BatchReader(task.path, OPERATIONS, task.segment)
        except OSError as error:
            reading.defects.append(f"it cannot be read ({error.strerror})")
            return reading
        rows_before = 0
        for number, rows in enumerate(in_pieces(reader.batches(), SEGMENT_ROWS)):
            self._take(rows, number, rows_before)
            rows_before += rows.num_rows
        reading.is_torn = reader.is_torn
        reading.defects += [*reader.defects, *error_sentences(self._invalid), *self._complaints()]
        reading.written, reading.used = ValueRuns.union(self._written), ValueRuns.union(self._used)
        reading.seconds = SecondCounts.union(self._seconds)
        return reading

    def _take(self, rows: pa.Table, number: int, rows_before: int) -> None:
        """`rows_before`: the number of rows of the segment before these."""
        task, reading = self._task, self._found
        reading.recorded += kinds_of(rows)
        rows = valid_part(rows, self._invalid, rows_before)
        is_append = rows["f"].to_numpy() == APPEND
        values = rows["value"].to_numpy()[is_append]
        self._origin.take(rows, values)
        written = ValueRuns.of(values)
        self._written.append(written)
        is_there = self._announced(rows, is_append, values)
        if not is_there.all():
            reading.misplaced = True
            believed = ~is_append
            believed[is_append] = is_there
            rows, written = rows.filter(pa.array(believed)), ValueRuns.of(values[is_there])
        self._used.append(written)
        reading.believed += kinds_of(rows)
        reading.last_process = max(reading.last_process, last_process_of(rows))
        self._seconds.append(SecondCounts.of(rows, LOG))
        if task.keeps:
            reading.rows.append(rows)
        if task.tables is not None:
            name = f"{task.record}-{task.segment}" + (f".{number}" if number else "")
            reading.groups += write_operations(LOG, rows, task.tables, name)

    def _announced(
        self, rows: pa.Table, is_append: npt.NDArray[np.bool_], values: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Which appends carry a value that was announced for their partition."""
        blocks = self._task.announced
        if not len(blocks.first):
            self._numbers["unannounced"] += len(values)
            return np.zeros(len(values), np.bool_)
        at = np.searchsorted(blocks.first, values, side="right") - 1
        within = (at >= 0) & (values < blocks.behind[at])
        topics = rows["topic"].combine_chunks()
        topic_codes = {topic: number for number, topic in enumerate(blocks.topics)}
        codes = np.array([topic_codes.get(topic, -1) for topic in topics.dictionary.to_pylist()] or [-1], np.int64)
        is_there: npt.NDArray[np.bool_] = within & (blocks.topic[at] == codes[topics.indices.to_numpy()[is_append]])
        is_there &= blocks.partition[at] == rows["partition"].to_numpy()[is_append]
        self._numbers["unannounced"] += int((~within).sum())
        self._numbers["elsewhere"] += int((within & ~is_there).sum())
        return is_there

    def _complaints(self) -> Iterator[str]:
        yield from self._origin.defects()
        numbers = self._numbers
        if numbers["unannounced"]:
            appends = counted(numbers["unannounced"], "append")
            yield f"it has {appends} with values that were never announced"
        if numbers["elsewhere"]:
            yield f"it has {counted(numbers['elsewhere'], 'append')} to other partitions than announced"


def in_pieces(batches: Iterable[pa.RecordBatch], piece_rows: int) -> Iterator[pa.Table]:
    """Tables of the batches in order, each with at least `piece_rows` rows but the last one, in one chunk."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= piece_rows:
            yield _table(waiting)
            rows = 0
    if waiting:
        yield _table(waiting)


def _table(waiting: list[pa.RecordBatch]) -> pa.Table:
    table = pa.Table.from_batches(waiting).unify_dictionaries()
    waiting.clear()
    return table.combine_chunks()


def kinds_of(rows: pa.Table) -> Counter[str]:
    """The number of operations of each kind."""
    entries: Sequence[Any] = pc.value_counts(rows["f"]).to_pylist()
    return Counter({NAMES.get(entry["values"], "unknown"): entry["counts"] for entry in entries})


def last_process_of(rows: pa.Table) -> int:
    """The highest number of a process, -1 without rows."""
    return int(rows["process"].to_numpy().max(initial=-1))

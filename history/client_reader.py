"""Reads one client's record, its stream and its announcements, and decides whether it is complete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from history.announcements import AnnouncedBlock, Invocation, RecordHeader, UnusedValues, converted
from history.arrow_stream import Stream, read_batches, segment_path
from history.checksummed_lines import Lines, read_lines
from history.client_files import INVOKED, RESERVED, is_counts
from history.distinct import has_repeated
from history.errors import UNFINISHED
from history.registers import row_of, table_of
from history.schemas import (
    ACKS_ALL,
    APPEND,
    CAS,
    INF,
    INFO,
    NAMES,
    OPERATIONS,
    PHASE_MAIN,
    READ,
    REGISTERS,
    RESERVATIONS,
    WRITE,
)
from history.validation import valid_operations, valid_registers, written_values
from history.values import PRODUCERS, SESSION_SHIFT


@dataclass
class Part:
    """One recording of a client, a stream with its announcements: completed rows, and rows for announced operations
    that were never completed. `defects`: why it is incomplete, as sentences that name the file. `torn`: the files whose
    tail was lost. `closed`: the client's last announcement has its number of operations; `understood`: no announcement
    before the last existing one is damaged or missing.
    """

    completed: pa.Table
    left: pa.Table
    reservations: pa.Table = field(default_factory=RESERVATIONS.empty_table)
    defects: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    closed: bool = False
    understood: bool = True
    process: int | None = None
    producer: int | None = None


def read_log_client(stream: Path, segments: Sequence[int] = (0,)) -> Part:
    """Reads the record of an `OperationWriter`: the stream's segments with these numbers. All may be missing if its
    announcements exist."""
    reserved = stream.with_suffix(RESERVED)
    part = Part(OPERATIONS.empty_table(), OPERATIONS.empty_table())
    rows = _rows_of(stream, segments, OPERATIONS, part)
    lines = _lines_of(reserved, part)
    part.completed, defects = valid_operations(rows)
    part.defects += [f"{stream.name}: {defect}" for defect in defects]
    who = _header(lines, reserved, part)
    _require_whose(part, stream, who, ((APPEND, "value"),))
    _require_counts(part, lines, rows, reserved, stream)
    blocks, wrong = converted((line for _, line in lines.contents if "first" in line), AnnouncedBlock)
    if wrong:
        part.understood = False
        part.defects.append(f"{reserved.name}: {wrong} of its lines announce no values")
    unused, wrong = converted((line for _, line in lines.contents if "unused" in line), UnusedValues)
    _require_announced(part, blocks, stream)
    if who is not None:
        part.reservations, part.left = _unfinished(who, blocks, unused, part.completed)
    _require_unused(part, unused, wrong, reserved)
    return part


def read_register_client(stream: Path, segments: Sequence[int] = (0,)) -> Part:
    """Reads the record of a `RegisterWriter`, as `read_log_client` does."""
    invoked = stream.with_suffix(INVOKED)
    part = Part(REGISTERS.empty_table(), REGISTERS.empty_table())
    rows = _rows_of(stream, segments, REGISTERS, part)
    lines = _lines_of(invoked, part)
    part.completed, defects = valid_registers(rows)
    part.defects += [f"{stream.name}: {defect}" for defect in defects]
    who = _header(lines, invoked, part)
    _require_whose(part, stream, who, ((WRITE, "value"), (CAS, "new")))
    _require_counts(part, lines, rows, invoked, stream)
    found, wrong = converted((line for _, line in lines.contents if "id" in line), Invocation)
    invocations = [each for each in found if each.is_announced]
    wrong += len(found) - len(invocations)
    if wrong:
        part.understood = False
        part.defects.append(f"{invoked.name}: {wrong} of its lines are not invocations")
    done = _require_invoked(part, invocations, stream)
    if who is not None:
        left = [each for each in invocations if each not in done]
        part.left = table_of(
            [row_of(who.process, who.client, each, INFO, INF, each.value, UNFINISHED) for each in left]
        )
    return part


def _rows_of(first: Path, segments: Sequence[int], schema: pa.Schema, part: Part) -> pa.Table:
    """The rows of all segments in order. A missing segment before the last existing one is a defect."""
    missing = sorted({0, *(number - 1 for number in segments if number)} - set(segments))
    part.defects += [f"{segment_path(first, number).name} is missing" for number in missing if number]
    numbers = [0, *(number for number in segments if number)]
    tables = [_segment_of(first, number, schema, part) for number in numbers]
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def _segment_of(first: Path, number: int, schema: pa.Schema, part: Part) -> pa.Table:
    path = segment_path(first, number)
    try:
        stream = read_batches(path, schema, number)
    except OSError as error:
        stream = Stream(schema.empty_table(), defects=(f"it cannot be read ({error.strerror})",))
    if stream.is_torn:
        part.torn.append(str(path))
    part.defects += [f"{path.name}: {defect}" for defect in stream.defects]
    return stream.rows


def _lines_of(path: Path, part: Part) -> Lines:
    try:
        lines = read_lines(path)
    except OSError as error:
        lines = Lines(defects=(f"it cannot be read ({error.strerror})",))
    if lines.torn:
        part.torn.append(str(path))
        part.defects.append(f"{path.name} was torn: its tail is lost")
    part.defects += [f"{path.name}: {defect}" for defect in lines.defects]
    part.understood = not lines.defects
    return lines


def _header(lines: Lines, path: Path, part: Part) -> RecordHeader | None:
    """The first line, which names the client."""
    found, _ = converted((line for _, line in lines.contents[:1]), RecordHeader)
    if not found:
        part.understood = False
        if not part.defects:
            part.defects.append(f"{path.name}: its first line does not say whose record it is")
        return None
    part.process, part.producer = found[0].process, found[0].producer
    return found[0]


def _require_whose(part: Part, stream: Path, who: RecordHeader | None, written: tuple[tuple[int, str], ...]) -> None:
    """Checks that every row, and every written value, is the client's own."""
    if who is None:
        return
    if set(part.completed["client"].cast(pa.string()).unique().to_pylist()) - {who.client}:
        part.defects.append(f"{stream.name}: there are operations of another client than {who.client}")
    if set(part.completed["process"].unique().to_pylist()) - {who.process}:
        part.defects.append(f"{stream.name}: there are operations of another process than number {who.process}")
    values = written_values(part.completed, written)
    foreign = (values >> 32 & (PRODUCERS - 1)) != (-1 if who.producer is None else who.producer)
    if foreign.any():
        part.defects.append(f"{stream.name}: {foreign.sum()} of its values are another producer's")
    if has_repeated(values):
        part.defects.append(f"{stream.name}: it wrote a value twice")


def _require_counts(part: Part, lines: Lines, rows: pa.Table, announced: Path, stream: Path) -> None:
    """Checks that the numbers of operations equal those that the client stated when it closed its record."""
    closing = [line["closed"] for _, line in lines.contents if "closed" in line]
    last = lines.contents[-1][1] if lines.contents else {}
    part.closed = len(closing) == 1 and is_counts(last.get("closed"))
    if not part.closed:
        part.defects.append(f"{announced.name}: it has no end mark, its client did not close it")
        return
    found = pc.value_counts(rows["f"]).to_pylist()
    counts = {NAMES.get(each["values"], "unknown"): each["counts"] for each in found}
    if counts != {name: count for name, count in closing[0].items() if count}:
        part.defects.append(
            f"{stream.name}: it has {_told(counts)}, but its client recorded {_told(closing[0])} (fewer or more rows)"
        )


def _told(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "nothing"


def _unfinished(
    who: RecordHeader, blocks: list[AnnouncedBlock], unused: list[UnusedValues], completed: pa.Table
) -> tuple[pa.Table, pa.Table]:
    """The blocks a client announced, and an info append for each announced value that has no completion."""
    if not blocks:
        return RESERVATIONS.empty_table(), OPERATIONS.empty_table()
    names = ("topic", "partition", "first", "count", "t")
    columns: dict[str, Any] = {name: [getattr(block, name) for block in blocks] for name in names}
    columns |= {"client": [who.client] * len(blocks), "process": [who.process] * len(blocks)}
    count = np.array(columns["count"], np.int64)
    start = np.cumsum(count) - count
    values = np.repeat(np.array(columns["first"], np.int64) - start, count) + np.arange(count.sum())
    block = np.repeat(np.arange(len(blocks)), count)
    done = [completed.filter(pc.equal(completed["f"], APPEND))["value"].to_numpy()]
    done += [np.arange(rest.unused, rest.unused + rest.count) for rest in unused]
    left = ~np.isin(values, np.concatenate(done))
    return pa.table(columns, RESERVATIONS), _info_appends(who, blocks, block[left], values[left])


def _info_appends(
    who: RecordHeader, blocks: list[AnnouncedBlock], block: np.ndarray[Any, Any], values: np.ndarray[Any, Any]
) -> pa.Table:
    n = len(values)
    nothing = pa.ListArray.from_arrays(pa.array(np.zeros(n + 1, np.int32)), pa.array([], pa.int64()))
    topics = [blocks[i].topic for i in block]
    columns: dict[str, Any] = {
        "process": np.full(n, who.process, np.int32),
        "session": (values >> SESSION_SHIFT).astype(np.int32),
        "client": [who.client] * n,
        "f": np.full(n, APPEND, np.int8),
        "topic": topics,
        "partition": np.array([each.partition for each in blocks], np.int32)[block],
        "type": np.full(n, INFO, np.int8),
        "inv": np.array([each.t for each in blocks], np.int64)[block],
        "ret": np.full(n, INF, np.int64),
        "offset": np.full(n, -1, np.int64),
        "hi": np.full(n, -1, np.int64),
        "lo": np.full(n, -1, np.int64),
        "value": values,
        "offsets": nothing,
        "values": nothing,
        "acks": np.full(n, ACKS_ALL, np.int8),
        "phase": [PHASE_MAIN] * n,
        "error": [UNFINISHED] * n,
    }
    return pa.table({each.name: pa.array(columns[each.name]).cast(each.type) for each in OPERATIONS}, OPERATIONS)


def _require_announced(part: Part, blocks: list[AnnouncedBlock], stream: Path) -> None:
    """Checks that every append carries a value that was announced before, for its partition. Otherwise the row or the
    announcements are damaged: the row's outcome is not believed, the announced operation stays open, and it is unknown
    what else may have been sent."""
    is_append = part.completed["f"].to_numpy() == APPEND
    appends = part.completed.filter(pa.array(is_append))
    if not appends.num_rows:
        return
    blocks = sorted(blocks, key=lambda block: block.first)
    first = np.array([block.first for block in blocks], np.int64)
    behind = first + np.array([block.count for block in blocks], np.int64)
    value, at = appends["value"].to_numpy(), np.searchsorted(first, appends["value"].to_numpy(), side="right") - 1
    within = (at >= 0) & (value < behind[at]) if len(blocks) else np.zeros(len(value), np.bool_)
    if not within.all():
        part.defects.append(f"{stream.name}: {(~within).sum()} of its appends carry a value that was never announced")
    is_there = within.copy()
    if within.any():
        topics = np.array([block.topic for block in blocks], object)[at]
        partitions = np.array([block.partition for block in blocks], np.int64)[at]
        is_there &= topics == appends["topic"].cast(pa.string()).to_numpy()
        is_there &= partitions == appends["partition"].to_numpy()
    if elsewhere := int((within & ~is_there).sum()):
        part.defects.append(f"{stream.name}: {elsewhere} of its appends went elsewhere than was announced")
    if not is_there.all():
        part.understood = False
        believed = ~is_append
        believed[is_append] = is_there
        part.completed = part.completed.filter(pa.array(believed))


def _require_unused(part: Part, unused: list[UnusedValues], wrong: int, reserved: Path) -> None:
    """Checks that the values which the client gave back were not used. `wrong`: the number of damaged lines."""
    used = written_values(part.completed, ((APPEND, "value"),))
    again = sum(int(((used >= rest.unused) & (used < rest.unused + rest.count)).sum()) for rest in unused)
    if again or wrong:
        part.understood = False
        part.defects.append(f"{reserved.name}: it gives back {again} values that were used, or none that can be")


def _require_invoked(part: Part, invocations: list[Invocation], stream: Path) -> set[Invocation]:
    """Checks that every write and compare-and-set equals its announcement, by its id. Otherwise the row or the
    announcements are damaged: the row is not believed, the announced operation stays open, and it is unknown what else
    may have been sent. Reads are not announced. Returns the invocations that believed rows have completed."""
    announced, ids = set(invocations), {each.id for each in invocations}
    invoked = [_invoked(row) for row in part.completed.to_pylist()]
    never = [each.f != READ and each.id not in ids for each in invoked]
    otherwise = [each.id in ids and each not in announced for each in invoked]
    if any(never):
        part.defects.append(f"{stream.name}: {sum(never)} of its operations were never announced")
    if any(otherwise):
        part.defects.append(f"{stream.name}: {sum(otherwise)} of its operations are other than was announced")
    believed = ~(np.array(never, np.bool_) | np.array(otherwise, np.bool_))
    if not believed.all():
        part.understood = False
        part.completed = part.completed.filter(pa.array(believed))
    return announced & set(invoked)


def _invoked(row: dict[str, Any]) -> Invocation:
    """The announcement of a completed operation, if it was announced."""
    value = row["new"] if row["f"] == CAS else row["value"]
    return Invocation(row["id"], row["f"], row["key"], value, row["expected"], row["inv"], row["phase"])

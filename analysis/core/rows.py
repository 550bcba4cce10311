"""Turns a table of operations into the columns that the log checker works on.

Appends split in two. *Bound* ones were acknowledged by all in-sync replicas with their offset: they must be at that
offset by the time they returned. All others are *loose*: an append with acks < all may be lost and its offset reused,
so it counts as one that may have happened; the same holds for one that timed out. The offset that such an append names
is only where to look for its value.

A client library may have sent a record more than once (`SENT_AGAIN`). Then each *copy* in the log is an append of its
own, which may have happened at any time since the record was given to the library. If the record was acknowledged at
an offset, the copy there is bound as any other append. All its other copies are one loose append that may be at several
offsets (`again`); so are all copies of a record without an acknowledged offset.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from history.record.schemas import ACKS_ALL, APPEND, END, FAIL, INF, INFO, OK, PHASE_FINAL, READ, SENT_AGAIN
from installation.counted import counted

I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[Any]

NO_VALUE: Final = int(np.iinfo(np.int64).min)
"""Stands for an absent value in arrays."""

DAMAGED: Final = "the history is damaged"


class DamagedError(ValueError):
    """A table holds what no client can have recorded; the message says what. Nothing can be concluded from the
    table."""


@dataclass(frozen=True)
class Bound:
    """Appends acknowledged at an offset; `part` indexes `Rows.keys`, `process` and `session` are the client's. `again`:
    their records may have other copies."""

    part: Ints
    inv: I64
    ret: I64
    offset: I64
    value: I64
    process: Ints
    session: Ints
    again: Bools


@dataclass(frozen=True)
class Loose:
    """Appends without a binding place: `type` is OK (acknowledged, offset unknown), FAIL or INFO (`ret` = INF).

    `offset`: the place that an append with type INFO names, -1 if none and for the other types. `again`: it may be at
    several offsets, and names none; `bound`: its record is also among the bound appends.
    """

    part: Ints
    inv: I64
    ret: I64
    value: I64
    type: Ints
    offset: I64
    again: Bools
    bound: Bools


@dataclass(frozen=True)
class Queries:
    """Reads and end queries that got an answer. `lo`, `hi`: bounds they show on the log's length, -1 none.

    `start`: the offset that a read requested. The returned records are consecutive in `item_offset`, `item_value`;
    `count` is their number per query.
    """

    part: Ints
    inv: I64
    ret: I64
    start: I64
    lo: I64
    hi: I64
    process: Ints
    session: Ints
    final: Bools
    is_read: Bools
    count: I64
    item_offset: I64
    item_value: I64


@dataclass(frozen=True)
class Rows:
    """The operations of a table, by kind. `keys[part]` is (topic, partition)."""

    keys: list[tuple[str, int]]
    bound: Bound
    loose: Loose
    queries: Queries


@dataclass(frozen=True)
class Columns:
    """A table's columns as arrays, row by row; the records of row i are items starts[i] .. starts[i + 1] - 1. `again`:
    appends whose records may have several copies."""

    f: Ints
    type: Ints
    acks: Ints
    process: Ints
    session: Ints
    inv: I64
    ret: I64
    offset: I64
    value: I64
    lo: I64
    hi: I64
    final: Bools
    again: Bools
    starts: Ints
    item_offset: I64
    item_value: I64


def columns_of(table: pa.Table) -> Columns:
    """Splits a table with the schema `history.OPERATIONS` into columns, without copying single chunks.

    Raises KeyError when a column is missing, DamagedError when reads have different numbers of offsets and values.
    """
    starts, values = _lists(table, "values")
    _, offsets = _lists(table, "offsets")
    if len(offsets) != len(values):
        raise DamagedError(
            f"reads have {counted(len(offsets), 'offset')} but {counted(len(values), 'value')}: the history is damaged"
        )
    if len(values) and int(values.min()) == NO_VALUE:
        values = np.maximum(values, NO_VALUE + 1)  # the digest of other content must not equal NO_VALUE
    return Columns(
        f=_ints(table, "f"),
        type=_ints(table, "type"),
        acks=_ints(table, "acks"),
        process=_ints(table, "process"),
        session=_ints(table, "session"),
        inv=_ints(table, "inv"),
        ret=_ints(table, "ret"),
        offset=_ints(table, "offset"),
        value=_ints(table, "value"),
        lo=_ints(table, "lo"),
        hi=_ints(table, "hi"),
        final=_equals(table, "phase", PHASE_FINAL),
        again=sent_again(table),
        starts=starts,
        item_offset=offsets,
        item_value=values,
    )


def rows_of(table: pa.Table) -> Rows:
    """The operations of a table with the schema `history.OPERATIONS`, by kind.

    Raises KeyError when a column is missing, DamagedError for impossible times, offsets or codes.
    """
    keys, part = partitions_of(table)
    columns = columns_of(table)
    _require_sense(columns)
    inv, ret, value = columns.inv, columns.ret, columns.value
    is_append = columns.f == APPEND
    durable = is_append & (columns.type == OK) & (columns.acks == ACKS_ALL)
    is_bound = durable & (columns.offset >= 0)
    at = np.flatnonzero(is_bound)
    is_repeat = columns.again
    names = "offset", "value", "process", "session", "again"
    bound = Bound(part[at], inv[at], ret[at], *(getattr(columns, name)[at] for name in names))
    at = np.flatnonzero(is_append & (~is_bound | is_repeat))
    weak = (columns.type[at] == OK) & (is_bound[at] | (columns.acks[at] != ACKS_ALL))
    kind = np.where(weak, INFO, columns.type[at])
    named = np.where((kind == INFO) & ~is_repeat[at], columns.offset[at], -1)
    due = np.where(kind == OK, ret[at], INF)
    loose = Loose(part[at], inv[at], due, value[at], kind, named, is_repeat[at], is_bound[at])
    if min(int(bound.value.min(initial=0)), int(loose.value.min(initial=0))) < 0:
        raise DamagedError(f"an append has a negative value: {DAMAGED}")
    query_rows = np.flatnonzero(~is_append)
    answered = query_rows[columns.type[query_rows] == OK]
    return Rows(keys, bound, loose, _queries(columns, part, answered))


def within(rows: Rows, start: int, stop: int) -> Rows:
    """What `rows` say about the offsets start .. stop - 1, as if these were 0 .. stop - start - 1; the loose appends
    are all there."""
    bound, queries = rows.bound, rows.queries
    at = np.flatnonzero((bound.offset >= start) & (bound.offset < stop))
    names = ("part", "inv", "ret", "offset", "value", "process", "session", "again")
    moved = Bound(*(getattr(bound, name)[at] for name in names))
    inside = (queries.item_offset >= start) & (queries.item_offset < stop)
    preceding = np.concatenate(([0], np.cumsum(inside)))
    edges = np.concatenate(([0], np.cumsum(queries.count)))
    shown = (queries.lo > start) & (queries.lo <= stop)
    capped = (queries.hi >= start) & (queries.hi < stop)
    return Rows(
        rows.keys,
        replace(moved, offset=moved.offset - start),
        rows.loose,
        replace(
            queries,
            lo=np.where(shown, queries.lo - start, -1),
            hi=np.where(capped, queries.hi - start, -1),
            count=np.diff(preceding[edges]),
            item_offset=queries.item_offset[inside] - start,
            item_value=queries.item_value[inside],
        ),
    )


def _require_sense(columns: Columns) -> None:
    """Raises DamagedError unless all numbers are within the bounds in which sums and differences cannot overflow."""
    bounds: list[tuple[str, Ints, int, int]] = [
        ("the code of an operation", columns.f, APPEND, END),
        ("the outcome of an operation", columns.type, OK, INFO),
        ("an offset", columns.offset, -1, INF - 1),
        ("a lower bound of a log's length", columns.lo, -1, INF - 1),
        ("an upper bound of a log's length", columns.hi, -1, INF - 1),
        ("the offset of a record that was read", columns.item_offset, 0, INF - 1),
    ]
    for column_name, column, low, high in bounds:
        if len(column) and not (low <= (lowest := int(column.min())) and (highest := int(column.max())) <= high):
            raise DamagedError(
                f"{column_name} is {lowest if lowest < low else highest}, not in {low} .. {high}: {DAMAGED}"
            )
    if not len(columns.inv):
        return
    if int(columns.inv.min()) < -INF or int(columns.ret.max()) > INF:
        raise DamagedError(f"an operation was invoked or returned at an impossible time: {DAMAGED}")
    if (columns.ret < columns.inv).any():
        raise DamagedError(f"an operation returned before its invocation: {DAMAGED}")


def _queries(columns: Columns, part: Ints, answered: Ints) -> Queries:
    count = np.diff(columns.starts)
    counts, offsets, values = count[answered].astype(np.int64), columns.item_offset, columns.item_value
    if int(counts.sum()) != len(values):  # records of a row that is not an answered read prove nothing
        keep = np.zeros(len(count), np.bool_)
        keep[answered] = True
        mask = np.repeat(keep, count)
        values, offsets = values[mask], offsets[mask]
    lo = columns.lo[answered]
    if len(offsets):
        nonempty = np.flatnonzero(counts)
        lo[nonempty] = np.maximum(lo[nonempty], offsets[(np.cumsum(counts) - 1)[nonempty]] + 1)
    return Queries(
        part=part[answered],
        inv=columns.inv[answered],
        ret=columns.ret[answered],
        start=columns.offset[answered],
        lo=lo,
        hi=columns.hi[answered],
        process=columns.process[answered],
        session=columns.session[answered],
        final=columns.final[answered],
        is_read=columns.f[answered] == READ,
        count=counts,
        item_offset=offsets,
        item_value=values,
    )


def sent_again(table: pa.Table) -> Bools:
    """Which operations are appends that were not refused and whose records client libraries may have sent more than
    once."""
    codes, errors = _codes(table, "error")
    marks = [code for code, error in enumerate(errors) if error.endswith(SENT_AGAIN)]
    if not marks:
        return np.zeros(len(codes), np.bool_)
    return np.asarray(np.isin(codes, marks) & (_ints(table, "f") == APPEND) & (_ints(table, "type") != FAIL))


def partitions_of(table: pa.Table) -> tuple[list[tuple[str, int]], Ints]:
    """The (topic, partition) keys in order, and each row's index into them."""
    topic, names = _codes(table, "topic")
    number = _ints(table, "partition").astype(np.int64, copy=False)
    if not len(number):
        return [], np.empty(0, np.int64)
    lowest, width = int(number.min()), int(number.max()) - int(number.min()) + 1
    key = topic.astype(np.int64) * width + (number - lowest)
    if width * len(names) <= 4 * len(key) + 65_536:
        present = np.flatnonzero(np.bincount(key, minlength=width * len(names)))
        place = np.zeros(width * len(names), np.int64)
        place[present] = np.arange(len(present))
        part = place[key]
    else:
        present, part = np.unique(key, return_inverse=True)
    keys = [(names[int(k) // width], int(k) % width + lowest) for k in present]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    rank = np.empty(len(keys), np.int64)
    rank[order] = np.arange(len(keys))
    return [keys[i] for i in order], (part if order == list(range(len(keys))) else rank[part])


def _array(table: pa.Table, name: str) -> Any:
    column = table[name]
    if column.num_chunks == 1:
        return column.chunk(0)
    return column.unify_dictionaries().combine_chunks()


def _ints(table: pa.Table, name: str) -> Ints:
    return np.asarray(_array(table, name).to_numpy(zero_copy_only=False))


def _lists(table: pa.Table, name: str) -> tuple[Ints, I64]:
    """The row boundaries (length rows + 1, from 0) and the flat items of a list column."""
    array = _array(table, name)
    bounds = array.offsets.to_numpy()
    items = array.values.to_numpy(zero_copy_only=False)[bounds[0] : bounds[-1]]
    return (bounds - bounds[0] if bounds[0] else bounds), items.astype(np.int64, copy=False)


def _codes(table: pa.Table, name: str) -> tuple[Ints, list[str]]:
    array = _array(table, name)
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    return array.indices.to_numpy(zero_copy_only=False), array.dictionary.to_pylist()


def _equals(table: pa.Table, name: str, text: str) -> Bools:
    codes, names = _codes(table, name)
    matching = [code for code, known_name in enumerate(names) if known_name == text]
    return np.isin(codes, matching) if matching else np.zeros(len(codes), np.bool_)

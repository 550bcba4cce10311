"""From a table of operations to the columns the log checker works on.

Appends split in two. *Bound* ones were acknowledged by all in-sync replicas with their offset: they must be there, at
that place, by the time they returned. All others are *loose*: an append with acks < all may lawfully vanish and its
offset be reused, so it counts as one that may have happened and its offset binds nobody; one that timed out likewise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from history import ACKS_ALL, APPEND, INF, INFO, OK
from history.schemas import PHASE_FINAL

I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[Any]

UPPER_BOUNDS: Final = ("strict", "session", "lower-bound-only")


@dataclass(frozen=True)
class Bound:
    """Appends acknowledged at an offset; `part` indexes `Rows.keys`."""

    part: Ints
    inv: I64
    ret: I64
    offset: I64
    value: I64
    process: Ints


@dataclass(frozen=True)
class Loose:
    """Appends without a binding place: `type` is OK (acknowledged, offset unknown), FAIL or INFO (`ret` = INF)."""

    part: Ints
    inv: I64
    ret: I64
    value: I64
    type: Ints


@dataclass(frozen=True)
class Queries:
    """Reads and end queries that got an answer. `lo`, `hi`: bounds they show on the log's length, -1 none.

    The records they returned lie one after another in `item_offset`, `item_value`; `count` of them per query.
    """

    part: Ints
    inv: I64
    ret: I64
    start: I64
    lo: I64
    hi: I64
    process: Ints
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
    failed_queries: int


def rows_of(table: pa.Table) -> Rows:
    """Takes a table with the schema `history.OPERATIONS` apart.

    Raises KeyError when a column is missing, ValueError when a read claims a negative offset.
    """
    keys, part = _partitions(table)
    f, outcome = _ints(table, "f"), _ints(table, "type")
    is_append = f == APPEND
    value, offset, acks = _ints(table, "value"), _ints(table, "offset"), _ints(table, "acks")
    inv, ret, process = _ints(table, "inv"), _ints(table, "ret"), _ints(table, "process")
    durable = is_append & (outcome == OK) & (acks == ACKS_ALL)
    is_bound = durable & (offset >= 0)
    at = np.flatnonzero(is_bound)
    bound = Bound(part[at], inv[at], ret[at], offset[at], value[at], process[at])
    at = np.flatnonzero(is_append & ~is_bound)
    weak = (outcome[at] == OK) & (acks[at] != ACKS_ALL)
    kind = np.where(weak, INFO, outcome[at])
    loose = Loose(part[at], inv[at], np.where(kind == OK, ret[at], INF), value[at], kind)
    queries, failed = _queries(table, part, np.flatnonzero(~is_append), outcome, inv, ret, offset, process)
    return Rows(keys, bound, loose, queries, failed)


def _queries(
    table: pa.Table, part: Ints, at: Ints, outcome: Ints, inv: I64, ret: I64, offset: I64, process: Ints
) -> tuple[Queries, int]:
    starts, values = _lists(table, "values")
    _, offsets = _lists(table, "offsets")
    count = np.diff(starts)
    answered = at[outcome[at] == OK]
    counts = count[answered]
    if int(counts.sum()) != len(values):  # records of a row that is not an answered read prove nothing
        keep = np.zeros(len(count), np.bool_)
        keep[answered] = True
        mask = np.repeat(keep, count)
        values, offsets = values[mask], offsets[mask]
    if len(offsets) and int(offsets.min()) < 0:
        raise ValueError(f"a read returned a record at offset {int(offsets.min())}: the history is damaged")
    lo = _ints(table, "lo")[answered]
    if len(offsets):
        some = np.flatnonzero(counts)
        lo[some] = np.maximum(lo[some], offsets[(np.cumsum(counts) - 1)[some]] + 1)
    queries = Queries(
        part=part[answered],
        inv=inv[answered],
        ret=ret[answered],
        start=offset[answered],
        lo=lo,
        hi=_ints(table, "hi")[answered],
        process=process[answered],
        final=_equals(table, "phase", PHASE_FINAL)[answered],
        is_read=(_ints(table, "f")[answered] == 1),
        count=counts,
        item_offset=offsets,
        item_value=values,
    )
    return queries, len(at) - len(answered)


def _partitions(table: pa.Table) -> tuple[list[tuple[str, int]], Ints]:
    """The (topic, partition) keys in order, and each row's index into them."""
    topic, names = _codes(table, "topic")
    number = _ints(table, "partition")
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
    found = [(names[int(k) // width], int(k) % width + lowest) for k in present]
    order = sorted(range(len(found)), key=found.__getitem__)
    rank = np.empty(len(found), np.int64)
    rank[order] = np.arange(len(found))
    return [found[i] for i in order], (part if order == list(range(len(found))) else rank[part])


def _array(table: pa.Table, name: str) -> Any:
    column = table[name]
    if column.num_chunks == 1:
        return column.chunk(0)
    return column.unify_dictionaries().combine_chunks()


def _ints(table: pa.Table, name: str) -> Ints:
    return np.asarray(_array(table, name).to_numpy(zero_copy_only=False))


def _lists(table: pa.Table, name: str) -> tuple[I64, I64]:
    """The row boundaries (length rows + 1, from 0) and the flat items of a list column."""
    array = _array(table, name)
    bounds = array.offsets.to_numpy().astype(np.int64)
    items = array.values.to_numpy(zero_copy_only=False)[bounds[0] : bounds[-1]]
    return bounds - bounds[0], items.astype(np.int64, copy=False)


def _codes(table: pa.Table, name: str) -> tuple[Ints, list[str]]:
    array = _array(table, name)
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    return array.indices.to_numpy(zero_copy_only=False), array.dictionary.to_pylist()


def _equals(table: pa.Table, name: str, text: str) -> Bools:
    codes, names = _codes(table, name)
    wanted = [code for code, each in enumerate(names) if each == text]
    return np.isin(codes, wanted) if wanted else np.zeros(len(codes), np.bool_)

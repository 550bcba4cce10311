"""The operations of each second of a run, `tables/seconds.parquet`: rates, latencies and outages without the history.

Neighbouring bounds of the buckets of latency differ by 19 %. The longest gap is exact: acknowledgements are counted in
cells of 10 ms, of each the first and the last are kept, so the summaries of segments merge in any order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from history.columns import Int8Column, Int64Column, Int64List, schema_of
from history.record.schemas import CHANGES, INF, NAMES, OK
from history.record.shapes import SHAPES, Shape
from history.regular_files import remove

SECONDS_FILE: Final = "seconds.parquet"
BUCKETS: Final = 112
PER_OCTAVE: Final = 4

_SECOND: Final = 1_000_000_000
_CELL: Final = 10_000_000
_CELL_BITS: Final = 40  # INF / _CELL is less than 2^40
_SHAPES: Final = tuple(SHAPES)
_OF_SHAPE: Final = len(NAMES) * 3  # f, type
_KINDS: Final = len(_SHAPES) * _OF_SHAPE
_SLOTS: Final = BUCKETS + 1  # the last one: it never returned


class SecondColumns(msgspec.Struct):
    """The columns of `tables/seconds.parquet`: one row for each second, shape, kind and outcome of operations."""

    second: Int64Column
    """The second of CLOCK_MONOTONIC of the return, or of the invocation of an operation that never returned."""
    shape: str
    """`log`, `register`, or `free` for a workload of your own."""
    f: Int8Column
    """What the operations are: 0 append, 1 read, 2 end (the log's length), 3 write, 4 cas (compare and set), 5 call and
    6 query of a workload of your own."""
    type: Int8Column
    """Their outcome: 0 ok, 1 fail (it certainly did not happen), 2 info (it may have happened, or may happen later)."""
    operations: Int64Column
    """The number of these operations."""
    records: Int64Column
    """The number of records that these operations read."""
    latency: Int64List
    """A histogram: `latency[k]` counts the operations that took at least 2^(k/4) and less than 2^((k+1)/4)
    microseconds. k = 0 also has the faster ones, k = 111 also the slower ones (from 227 s). An operation that never
    returned is in no bucket."""
    longest_gap_ns: Int64Column | None
    """In rows of acknowledged changes: the longest time without an acknowledgement of such an operation that ended in
    this second. Null unless it is longer than 10 ms."""


SECONDS: Final = schema_of(SecondColumns)

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SecondCounts:
    """What some operations add to the table. `counts`: sorted codes of (second, kind, latency bucket) in its first row
    and numbers in its second; `records`: the same of (second, kind) and records read; `cells`: (kind, cell, first,
    last) of acknowledgements."""

    counts: I64
    records: I64
    cells: I64

    @classmethod
    def of(cls, rows: pa.Table, shape: Shape) -> SecondCounts:
        """Of rows with the columns of the shape."""
        f, outcome, inv, ret = (rows[name].to_numpy() for name in ("f", "type", "inv", "ret"))
        kind = _SHAPES.index(shape.name) * _OF_SHAPE + f.astype(np.int64) * 3 + outcome
        returned = ret < INF
        at = np.where(returned, ret, inv)
        code = at // _SECOND * _KINDS + kind
        slot = np.where(returned, log_buckets(ret - inv, PER_OCTAVE, BUCKETS), BUCKETS)
        records = np.empty((2, 0), np.int64)
        if "values" in rows.column_names:
            shown = pc.list_value_length(rows["values"]).to_numpy()
            positions = np.flatnonzero(shown)
            records = summed(code[positions], shown[positions].astype(np.int64))
        acknowledged = (outcome == OK) & np.isin(f, CHANGES) & returned
        return cls(_counted(code * _SLOTS + slot), records, _cells(kind[acknowledged], ret[acknowledged]))

    @classmethod
    def union(cls, parts: Iterable[SecondCounts]) -> SecondCounts:
        """The counts of all parts."""
        all_parts = list(parts)
        nothing = np.empty((2, 0), np.int64)
        counts = np.concatenate([nothing, *(part.counts for part in all_parts)], axis=1)
        records = np.concatenate([nothing, *(part.records for part in all_parts)], axis=1)
        cells = np.concatenate([np.empty((4, 0), np.int64), *(part.cells for part in all_parts)], axis=1)
        return cls(summed(*counts), summed(*records), _merged(cells))

    def table(self) -> pa.Table:
        """The rows of the schema `SECONDS`, in order."""
        keys, at = np.unique(self.counts[0] // _SLOTS, return_inverse=True)
        latency = np.zeros((len(keys), _SLOTS), np.int64)
        np.add.at(latency, (at, self.counts[0] % _SLOTS), self.counts[1])
        records = np.zeros(len(keys), np.int64)
        records[np.searchsorted(keys, self.records[0])] = self.records[1]
        second, kind = keys // _KINDS, keys % _KINDS
        lists = pa.ListArray.from_arrays(
            pa.array(np.arange(len(keys) + 1, dtype=np.int32) * BUCKETS), pa.array(latency[:, :BUCKETS].ravel())
        )
        columns: dict[str, Any] = {
            "second": second,
            "shape": [_SHAPES[code // _OF_SHAPE] for code in kind.tolist()],
            "f": (kind // 3 % len(NAMES)).astype(np.int8),
            "type": (kind % 3).astype(np.int8),
            "operations": latency.sum(axis=1),
            "records": records,
            "latency": lists.cast(SECONDS.field("latency").type),
            "longest_gap_ns": _gaps(self.cells, keys),
        }
        return pa.table(columns, SECONDS)


def write_seconds(counts: SecondCounts, tables: Path) -> None:
    """Write `tables/seconds.parquet`, replacing whatever has the name."""
    tables.mkdir(parents=True, exist_ok=True)
    remove(tables / SECONDS_FILE)
    pq.write_table(counts.table(), tables / SECONDS_FILE, compression="zstd")


def log_buckets(took: I64, per_octave: int, buckets: int) -> I64:
    """The bucket of each duration in ns: k for at least 2^(k/per_octave) and less than 2^((k+1)/per_octave)
    microseconds. The first one also has the faster ones, the last one the slower ones."""
    microseconds = np.maximum(took, 1_000) / 1e3
    return np.minimum((per_octave * np.log2(microseconds)).astype(np.int64), buckets - 1)


def _counted(codes: I64) -> I64:
    """Each code and how often it is there, in order."""
    if not len(codes):
        return np.empty((2, 0), np.int64)
    lowest, highest = int(codes.min()), int(codes.max())
    if highest - lowest <= 8 * len(codes) + 1_000_000:  # seconds of one run: counting is faster than sorting
        numbers = np.bincount(codes - lowest)
        places = np.flatnonzero(numbers)
        return np.stack((places + lowest, numbers[places]))
    return np.stack(np.unique(codes, return_counts=True)).astype(np.int64)


def summed(codes: I64, numbers: I64) -> I64:
    """Each code and the sum of its numbers, in order."""
    if not len(codes):
        return np.empty((2, 0), np.int64)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.concatenate(([True], np.diff(codes[order]) != 0)))
    return np.stack((codes[order][starts], np.add.reduceat(numbers[order], starts)))


def _cells(kind: I64, ret: I64) -> I64:
    return _merged(np.stack((kind, ret // _CELL, ret, ret)))


def _merged(cells: I64) -> I64:
    """One column for each kind and cell, in order, with its first and last acknowledgement."""
    if not cells.shape[1]:
        return cells
    code = cells[0] << _CELL_BITS | cells[1]
    if (np.diff(code) < 0).any():
        order = np.argsort(code, kind="stable")
        cells, code = cells[:, order], code[order]
    kind, cell, first, last = cells
    starts = np.flatnonzero(np.concatenate(([True], np.diff(code) != 0)))
    return np.stack((kind[starts], cell[starts], np.minimum.reduceat(first, starts), np.maximum.reduceat(last, starts)))


def _gaps(cells: I64, keys: I64) -> pa.Array:
    """The longest gap of each key (second and kind) that ends in it; null for other keys."""
    kind, _, first, last = cells
    gap = np.where(np.diff(kind) == 0, first[1:] - last[:-1], 0) if cells.shape[1] else np.empty(0, np.int64)
    long_gaps = np.flatnonzero(gap > _CELL)
    at = np.searchsorted(keys, first[1:][long_gaps] // _SECOND * _KINDS + kind[1:][long_gaps])
    longest = np.zeros(len(keys), np.int64)
    np.maximum.at(longest, at, gap[long_gaps])
    return pa.array(longest, pa.int64(), mask=longest == 0)

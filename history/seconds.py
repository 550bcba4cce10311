"""The operations of each second of a run, `tables/seconds.parquet`: rates, latencies and outages without the history.

Neighbouring bounds of the buckets of latency differ by 19 %. The longest gap is exact: acknowledgements are counted in
cells of 10 ms, of each the first and the last are kept, so the summaries of segments merge in any order.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from history.columns import Int8Column, Int64Column, Int64List, schema_of
from history.grouped import grouped, ordered
from history.record.schemas import CHANGES, INF, OK
from history.record.shapes import LOG, SHAPES, Shape
from history.regular_files import remove

SECONDS_FILE: Final = "seconds.parquet"
BUCKETS: Final = 112
PER_OCTAVE: Final = 4

_SECOND: Final = 1_000_000_000
CELL_NS: Final = 10_000_000
_CELL_BITS: Final = 40  # INF / CELL_NS is less than 2^40
_SHAPES: Final = tuple(SHAPES)
_KEY: Final = ("second", "shape", "f", "type")


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
    """What some operations add to the table. `counts`: the numbers of operations and records by the columns of the key
    and the bucket of latency, BUCKETS for an operation that never returned. `cells`: the acknowledgements of changes,
    by `f`; see `cells_of`."""

    counts: pa.Table
    cells: I64

    @classmethod
    def of(cls, rows: pa.Table, shape: Shape) -> "SecondCounts":
        """Of rows with the columns of the shape."""
        f, outcome, inv, ret = (rows[name].to_numpy() for name in ("f", "type", "inv", "ret"))
        returned = ret < INF
        is_acknowledged = (outcome == OK) & np.isin(f, CHANGES) & returned
        acknowledged = np.stack((f, ret, ret))[:, is_acknowledged]
        counts = {
            "second": np.where(returned, ret, inv) // _SECOND,
            "shape": np.full(rows.num_rows, _SHAPES.index(shape.name), np.int8),
            "f": f,
            "type": outcome,
            "bucket": np.where(returned, log_buckets(ret - inv, PER_OCTAVE, BUCKETS), BUCKETS).astype(np.int8),
            "operations": np.ones_like(inv),
            "records": pc.list_value_length(rows["values"]) if "values" in rows.column_names else np.zeros_like(inv),
        }
        return cls._joined([pa.table(counts)], [acknowledged])

    @classmethod
    def union(cls, parts: Iterable["SecondCounts"]) -> "SecondCounts":
        """The counts of all parts."""
        all_parts = [cls.of(LOG.columns.empty_table(), LOG), *parts]
        return cls._joined([part.counts for part in all_parts], [part.cells for part in all_parts])

    @classmethod
    def _joined(cls, counts: Iterable[pa.Table], cells: Sequence[I64]) -> "SecondCounts":
        return cls(
            grouped(counts, [*_KEY, "bucket"], operations="sum", records="sum"),
            cells_of(np.concatenate(cells, axis=1), CELL_NS),
        )

    def table(self) -> pa.Table:
        """The rows of the schema `SECONDS`, in order."""
        buckets = np.ones(self.counts.num_rows, np.int64)
        counts = ordered(self.counts, [*_KEY, "bucket"]).append_column("buckets", [buckets])
        rows = grouped([counts], _KEY, operations="sum", records="sum", buckets="sum")
        rows = ordered(rows.join(self._gaps(), ["second", "f", "type"], use_threads=False), _KEY)
        latency = np.zeros((rows.num_rows, BUCKETS + 1), np.int64)
        latency[np.repeat(np.arange(rows.num_rows), rows["buckets"]), counts["bucket"]] = counts["operations"]
        lists = pa.FixedSizeListArray.from_arrays(latency[:, :BUCKETS].ravel(), BUCKETS)
        columns = {name: rows[name] for name in rows.column_names}
        columns |= {
            "shape": pa.array(_SHAPES).take(rows["shape"]),
            "latency": lists.cast(SECONDS.field("latency").type),
        }
        return pa.table(columns, SECONDS)

    def _gaps(self) -> pa.Table:
        """The longest gap of each key that ends in its second, if it is longer than a cell."""
        f, first, last = self.cells
        gap = np.where(np.diff(f) == 0, first[1:] - last[:-1], 0)
        codes = {"f": f[1:].astype(np.int8), "type": np.full(len(gap), OK, np.int8)}
        gaps = pa.table({"second": first[1:] // _SECOND, **codes, "longest_gap_ns": gap}).filter(gap > CELL_NS)
        return grouped([gaps], ["second", "f", "type"], longest_gap_ns="max")


def write_seconds(seconds: pa.Table, tables: Path) -> None:
    """Write `tables/seconds.parquet`, replacing whatever has the name."""
    tables.mkdir(parents=True, exist_ok=True)
    remove(tables / SECONDS_FILE)
    pq.write_table(seconds, tables / SECONDS_FILE, compression="zstd")


def log_buckets(took: I64, per_octave: int, buckets: int) -> I64:
    """The bucket of each duration in ns: k for at least 2^(k/per_octave) and less than 2^((k+1)/per_octave)
    microseconds. The first one also has the faster ones, the last one the slower ones."""
    microseconds = np.maximum(took, 1_000) / 1e3
    return np.minimum((per_octave * np.log2(microseconds)).astype(np.int64), buckets - 1)


def cells_of(moments: I64, cell: int) -> I64:
    """The first and the last moment of each cell of time. Rows of `moments` and of the result: a kind, the first moment
    and the last one, so cells can be joined. The result has one column for each kind and cell, in order. Kinds other
    than 0 need cells of at least CELL_NS."""
    kind, first, last = moments
    code = kind << _CELL_BITS | first // cell
    if (np.diff(code) < 0).any():
        order = np.argsort(code, kind="stable")
        kind, first, last, code = kind[order], first[order], last[order], code[order]
    starts = np.flatnonzero(np.diff(code, prepend=-1))
    if not len(starts):
        return moments
    return np.stack((kind[starts], np.minimum.reduceat(first, starts), np.maximum.reduceat(last, starts)))

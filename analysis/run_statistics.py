"""The statistics of a verdict: counts and latencies of a run, from parts of its history.

Theory of operation. Counts are sums of the table of seconds. The times of changes are read once and stay in memory if
these are few. If they are many, each figure that depends on all of them takes passes of its own. A pass opens every
file of the tables, which for many small files takes longer than the arithmetic.

The quantiles and the longest gap of numbers that are not in memory at once are exact, by several passes. A pass counts
numbers in buckets whose order is that of the numbers. The next one counts only the numbers of the buckets that the
figure depends on one by one. The buckets of quantiles are the highest bits of the floating-point representation: a
bucket is 1/256 wide, relative to its numbers. The buckets of moments are cells of time, of each the first and the last
moment are kept: two moments of one cell are less than its length apart, so a gap that is longer is between two cells.
If the longest of these gaps is shorter than a cell, it is the length of the next pass's cells.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from analysis.plots.view import PlotData
from history.grouped import grouped, ordered
from history.journal.timeline import NS
from history.reader import History
from history.record.schemas import CHANGES, FAIL, INFO, OK, READ
from history.record.shapes import LOG, REGISTER
from history.seconds import CELL_NS, cells_of

Floats = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

_SHIFT: Final = 44


def quantiles(numbers: Callable[[], Iterable[Floats]], fractions: Sequence[float]) -> list[float] | None:
    """As `numpy.quantile` of all numbers, which are 0 or more; None without numbers. Calls `numbers` twice."""
    coarse = _counted(numbers(), np.empty(0, np.int64))
    last = int(coarse["count"].to_numpy().sum()) - 1
    if last < 0:
        return None
    places = [fraction * last for fraction in fractions]
    ranks = [[min(int(place) + step, last) for step in (0, 1)] for place in places]
    pairs = _at(ranks, _counted(numbers(), np.unique(_at(ranks, coarse, "bucket"))), "number")
    return [float(np.quantile(pair, place - int(place))) for place, pair in zip(places, pairs, strict=True)]


def _counted(chunks: Iterable[Floats], wanted: I64) -> pa.Table:
    """How often each number of the wanted buckets is there, in order; numbers of other buckets are 0."""

    def columns(chunk: Floats) -> dict[str, npt.NDArray[Any]]:
        bucket = np.ascontiguousarray(chunk).view(np.int64) >> _SHIFT
        number = np.where(np.isin(bucket, wanted), chunk, 0.0)
        return {"bucket": bucket, "number": number, "count": np.ones_like(bucket)}

    parts = map(pa.table, map(columns, chain([np.empty(0)], chunks)))
    return ordered(grouped(parts, ("bucket", "number"), count="sum"), ("bucket", "number"))


def _at(ranks: Sequence[Sequence[int]], counted: pa.Table, column: str) -> npt.NDArray[Any]:
    """The values of these ranks."""
    places = np.searchsorted(np.cumsum(counted["count"].to_numpy()), ranks, side="right")
    values: npt.NDArray[Any] = counted[column].to_numpy()[places]
    return values


def gaps_with_the_longest(moments: Callable[[], Iterable[I64]], start: int, end: int) -> tuple[I64, I64]:
    """Starts and ends of gaps between neighbouring moments from `start` to `end`, both included as moments, in order.
    The longest gaps are among them. `start` is before `end`."""
    cell = CELL_NS
    while True:
        cells = np.empty((3, 0), np.int64)
        for chunk in moments():
            inside = chunk[(chunk >= start) & (chunk <= end)]
            cells = cells_of(np.concatenate((cells, (np.zeros_like(inside), inside, inside)), axis=1), cell)
        gap_starts, gap_ends = np.concatenate(([start], cells[2])), np.concatenate((cells[1], [end]))
        longest = int((gap_ends - gap_starts).max())
        if longest >= cell or cell == 1:
            return gap_starts, gap_ends
        cell = max(longest, 1)


MOST_KEPT: Final = 1 << 22
"""The most changes whose times stay in memory: 71 MB."""
_LATENCIES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
Parts = Callable[[], Iterable[pa.Table]]


def statistics(history: History, view: PlotData) -> dict[str, Any]:
    """Counts and latencies of a run; times in seconds and milliseconds as the names say. All figures are exact. A
    figure whose operations no client invoked has the value None."""
    rows = grouped([history.seconds], ("shape", "f", "type"), operations="sum", records="sum").to_pylist()
    changes, queries = ([row for row in rows if (row["f"] in CHANGES) is is_change] for is_change in (True, False))
    of_logs, of_registers = ([row for row in queries if row["shape"] == shape.name] for shape in (LOG, REGISTER))
    records = [row["records"] for row in of_logs if row["f"] == READ]
    parts: Parts = partial(_changes, history)
    if _number(changes) <= MOST_KEPT:
        parts = list(parts()).copy
    origin = view.clock.origin_ns
    stats: dict[str, Any] = {
        "operations": history.size,
        "appends": _number(changes),
        "failed": _number(changes, FAIL) if changes else None,
        "failed_queries": _number(queries, FAIL) if queries else None,
        "indeterminate": _number(changes, INFO) if changes else None,
        "unfinished": history.unfinished,
        "records_read": sum(records) if records else None,
        "reads": _number(of_registers, OK),
        "duration_s": round(view.end, 3),
        "origin_ns": origin,
        "longest_outage_s": _longest_outage(parts, origin),
    }
    exact = quantiles(lambda: _latencies(parts, origin), list(_LATENCIES.values()))
    rounded = [None] * len(_LATENCIES) if exact is None else [round(latency, 3) for latency in exact]
    return stats | {f"latency_{name}_ms": latency for name, latency in zip(_LATENCIES, rounded, strict=True)}


def _number(rows: Iterable[Mapping[str, Any]], outcome: int | None = None) -> int:
    """The number of operations, of one outcome if given."""
    return sum(row["operations"] for row in rows if outcome in (None, row["type"]))


def _changes(history: History) -> Iterator[pa.Table]:
    """Outcome and times of the operations that change something."""
    for part in history.parts("f", "type", "inv", "ret"):
        yield part.filter(pc.is_in(part["f"], pa.array(CHANGES, pa.int8()))).drop_columns("f")


def _acknowledged(parts: Parts) -> Iterator[tuple[I64, I64]]:
    """Invocations and returns of the acknowledged changes, part by part."""
    for part in parts():
        acknowledged = part.filter(pc.equal(part["type"], OK))
        yield acknowledged["inv"].to_numpy(), acknowledged["ret"].to_numpy()


def _latencies(parts: Parts, origin: int) -> Iterator[Floats]:
    """The latencies of acknowledged changes in milliseconds."""
    for inv, ret in _acknowledged(parts):
        yield ((ret - origin) / NS - (inv - origin) / NS) * 1e3


def _longest_outage(parts: Parts, origin: int) -> float | None:
    """The longest time without an acknowledgement, between the first and the last append; None if both have the same
    time, because an outage would not be visible."""
    invoked = [pc.min_max(part["inv"]).as_py() for part in parts() if part.num_rows]
    first, last = min((cell["min"] for cell in invoked), default=0), max((cell["max"] for cell in invoked), default=0)
    if first == last:
        return None
    starts, ends = gaps_with_the_longest(lambda: (ret for _, ret in _acknowledged(parts)), first, last)
    return round(float(((ends - origin) / NS - (starts - origin) / NS).max()), 3)

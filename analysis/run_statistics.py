"""The statistics of a verdict: counts and latencies of a run, from parts of its history.

Theory of operation. The first pass over the history counts, and keeps the times of the acknowledged changes if these
are few. If they are many, each figure that depends on all of them takes passes of its own. A pass opens every file of
the tables, which for many small files takes longer than the arithmetic.

The quantiles and the longest gap of numbers that are not in memory at once are exact, by several passes. A pass counts
numbers in buckets whose order is that of the numbers; the next one looks only at the buckets that the figure depends
on. The buckets of quantiles are the highest bits of the floating-point representation: a bucket is 1/256 wide, relative
to its numbers. The buckets of moments are cells of time, of each the first and the last moment are kept: two moments of
one cell are less than its length apart, so a gap that is longer is between two cells. If the longest of these gaps is
shorter than a cell, it is the length of the next pass's cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from analysis.plots.view import PlotData
from history.journal.timeline import NS
from history.reader import History
from history.record.schemas import CHANGES, FAIL, INF, INFO, OK, READ
from history.record.shapes import FREE

Floats = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

_SHIFT: Final = 44
_BUCKETS: Final = 1 << (63 - _SHIFT)
CELL_NS: Final = 10_000_000


def quantiles(numbers: Callable[[], Iterable[Floats]], fractions: Sequence[float]) -> list[float] | None:
    """As `numpy.quantile` of all numbers, which are 0 or more; None without numbers. Calls `numbers` twice."""
    counts = np.zeros(_BUCKETS, np.int64)
    for chunk in numbers():
        counts += np.bincount(_bucket(chunk), minlength=_BUCKETS)
    cumulative = np.cumsum(counts)
    last = int(cumulative[-1]) - 1
    if last < 0:
        return None
    places = [fraction * last for fraction in fractions]
    ranks = np.array(sorted({min(int(place) + step, last) for place in places for step in (0, 1)}), np.int64)
    buckets = np.unique(np.searchsorted(cumulative, ranks, side="right"))
    ranked = _ranked(numbers(), ranks, buckets, cumulative - counts)
    pairs = [(place, ranked[int(place)], ranked[min(int(place) + 1, last)]) for place in places]
    return [float(np.quantile([low, high], place - int(place))) for place, low, high in pairs]


def _bucket(numbers: Floats) -> I64:
    buckets: I64 = np.ascontiguousarray(numbers).view(np.int64) >> _SHIFT
    return buckets


def _ranked(numbers: Iterable[Floats], ranks: I64, buckets: I64, counts_below: I64) -> dict[int, float]:
    """The numbers of these ranks, which are in these buckets. `counts_below`: of the numbers below each bucket."""
    ranked_values, counts = [np.empty(0)], [np.empty(0, np.int64)]
    for chunk in numbers:
        values, count = np.unique(chunk[np.isin(_bucket(chunk), buckets)], return_counts=True)
        ranked_values.append(values)
        counts.append(count)
    values, count = np.concatenate(ranked_values), np.concatenate(counts)
    order = np.argsort(values, kind="stable")
    values, cumulative = values[order], np.cumsum(count[order])
    of_bucket = np.searchsorted(buckets, _bucket(values))
    # Ranks count all numbers, `cumulative` only those of the buckets: add what the buckets in between have.
    firsts = np.searchsorted(of_bucket, np.arange(len(buckets)))
    skipped = counts_below[buckets] - np.concatenate(([0], cumulative))[firsts]
    at = np.searchsorted(cumulative + skipped[of_bucket], ranks, side="right")
    return dict(zip(ranks.tolist(), values[at].tolist(), strict=True))


def gaps_with_the_longest(moments: Callable[[], Iterable[I64]], start: int, end: int) -> tuple[I64, I64]:
    """Starts and ends of gaps between neighbouring moments from `start` to `end`, both included as moments, in order.
    The longest gaps are among them. `start` is before `end`."""
    cell = CELL_NS
    while True:
        first, last = _cells(moments(), start, end, cell)
        gap_starts, gap_ends = np.concatenate(([start], last)), np.concatenate((first, [end]))
        longest = int((gap_ends - gap_starts).max())
        if longest >= cell or cell == 1:
            return gap_starts, gap_ends
        cell = max(longest, 1)


def _cells(moments: Iterable[I64], start: int, end: int, cell: int) -> tuple[I64, I64]:
    """The first and the last moment of each cell that has one, in order."""
    first = last = np.empty(0, np.int64)
    for chunk in moments:
        inside = chunk[(chunk >= start) & (chunk <= end)]
        first, last = _merged(np.concatenate((first, inside)), np.concatenate((last, inside)), cell)
    return first, last


def _merged(first: I64, last: I64, cell: int) -> tuple[I64, I64]:
    order = np.argsort(first, kind="stable")
    first, last = first[order], last[order]
    starts = np.flatnonzero(np.diff(first // cell, prepend=-1))
    if not len(starts):
        return first, last
    return first[starts], np.maximum.reduceat(last, starts)


MOST_KEPT: Final = 1 << 22
"""The most acknowledged changes whose times stay in memory: 64 MB."""
_LATENCIES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}


def statistics(history: History, view: PlotData) -> dict[str, Any]:
    """Counts and latencies of a run; times in seconds and milliseconds as the names say. All figures are exact. A
    figure whose operations no client invoked has the value None."""
    counted = _counted(history)
    stats: dict[str, Any] = {
        "operations": history.size,
        "appends": counted.changes,
        "failed": counted.failed if counted.changes else None,
        "failed_queries": counted.failed_queries if history.size > counted.changes else None,
        "indeterminate": counted.indeterminate if counted.changes else None,
        "unfinished": history.unfinished,
        "records_read": counted.records,
        "reads": sum(map(_reads, history.registers.parts("f", "type"))),
        "duration_s": round(view.end, 3),
        "origin_ns": view.clock.origin_ns,
        "longest_outage_s": _longest_outage(history, counted, view.clock.origin_ns),
    }
    found = quantiles(lambda: _latencies(history, counted, view.clock.origin_ns), list(_LATENCIES.values()))
    rounded = [None] * len(_LATENCIES) if found is None else [round(each, 3) for each in found]
    return stats | {f"latency_{name}_ms": each for name, each in zip(_LATENCIES, rounded, strict=True)}


@dataclass
class _Counted:
    """Operations that change something by outcome, the failed others, the records that reads of logs returned (None
    without reads), the first and the last invocation of a change, and the times of the acknowledged changes, None
    if they are more than MOST_KEPT."""

    changes: int = 0
    failed: int = 0
    failed_queries: int = 0
    indeterminate: int = 0
    records: int | None = None
    first: int = INF
    last: int = -1
    kept: list[tuple[I64, I64]] | None = field(default_factory=list)

    def add(self, part: pa.Table) -> None:
        f, kind, inv = (part[name].to_numpy() for name in ("f", "type", "inv"))
        changes = np.isin(f, CHANGES)
        self.changes += int(changes.sum())
        self.failed += int((changes & (kind == FAIL)).sum())
        self.failed_queries += int((~changes & (kind == FAIL)).sum())
        self.indeterminate += int((changes & (kind == INFO)).sum())
        self.first = min(self.first, int(inv[changes].min(initial=INF)))
        self.last = max(self.last, int(inv[changes].max(initial=-1)))
        if self.kept is not None:
            self.kept.append(_acknowledged_of(part))
            self.kept = self.kept if sum(len(ret) for _, ret in self.kept) <= MOST_KEPT else None


def _counted(history: History) -> _Counted:
    found = _Counted()
    for part in history.logs.parts("f", "type", "inv", "ret", "values"):
        found.add(part)
        read = part["f"].to_numpy() == READ
        if read.any():
            found.records = (found.records or 0) + int(pc.list_value_length(part["values"]).to_numpy()[read].sum())
    for operations in (history.registers, history.of(FREE)):
        for part in operations.parts("f", "type", "inv", "ret"):
            found.add(part)
    return found


def _acknowledged(history: History, counted: _Counted) -> Iterator[tuple[I64, I64]]:
    """Invocations and returns of the acknowledged changes, part by part."""
    if counted.kept is not None:
        yield from counted.kept
        return
    yield from map(_acknowledged_of, history.parts("f", "type", "inv", "ret"))


def _acknowledged_of(part: pa.Table) -> tuple[I64, I64]:
    f, kind, inv, ret = (part[name].to_numpy() for name in ("f", "type", "inv", "ret"))
    some = np.isin(f, CHANGES) & (kind == OK)
    return inv[some], ret[some]


def _latencies(history: History, counted: _Counted, origin: int) -> Iterator[Floats]:
    """The latencies of acknowledged changes in milliseconds."""
    for inv, ret in _acknowledged(history, counted):
        yield ((ret - origin) / NS - (inv - origin) / NS) * 1e3


def _longest_outage(history: History, counted: _Counted, origin: int) -> float | None:
    """The longest time without an acknowledgement, between the first and the last append; None if both have the same
    time, because an outage would not be visible."""
    if counted.first >= counted.last:
        return None
    returns = lambda: (ret for _, ret in _acknowledged(history, counted))  # noqa: E731
    starts, ends = gaps_with_the_longest(returns, counted.first, counted.last)
    return round(float(((ends - origin) / NS - (starts - origin) / NS).max()), 3)


def _reads(registers: pa.Table) -> int:
    """The number of answered reads of registers."""
    return int(((registers["f"].to_numpy() == READ) & (registers["type"].to_numpy() == OK)).sum())

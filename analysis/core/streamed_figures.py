"""Quantiles of numbers, and the longest gap between moments, that are not in memory at once: exact, by several passes.

Theory of operation. A pass counts numbers in buckets whose order is that of the numbers; the next one looks only at
the buckets that the figure depends on. The buckets of quantiles are the highest bits of the floating-point
representation: a bucket is 1/256 wide, relative to its numbers. The buckets of moments are cells of time, of each the
first and the last moment are kept: two moments of one cell are less than its length apart, so a gap that is longer is
between two cells. If the longest of these gaps is shorter than a cell, it is the length of the next pass's cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

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

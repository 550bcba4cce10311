"""Joins and groups of columns of integers, without loops over their rows."""

import numpy as np
import numpy.typing as npt

from history.value_runs import I64


def ranges(starts: I64, counts: I64) -> I64:
    """The integers from each start on, as many as its count, one range after the other."""
    places_before = np.cumsum(counts) - counts
    return np.repeat(starts - places_before, counts) + np.arange(int(counts.sum()), dtype=np.int64)


def joined(left: I64, right: I64) -> tuple[I64, I64]:
    """The places of all pairs of equal integers, in the order of the left ones."""
    order = np.argsort(right, kind="stable")
    ordered = right[order]
    first = np.searchsorted(ordered, left, side="left")
    counts = np.searchsorted(ordered, left, side="right") - first
    return np.repeat(np.arange(len(left)), counts), order[ranges(first, counts)]


def places_in(ordered: I64, integers: I64) -> I64:
    """The place of each integer in the ascending ones, or -1."""
    if not len(ordered):
        return np.full(len(integers), -1, np.int64)
    places = np.minimum(np.searchsorted(ordered, integers), len(ordered) - 1)
    return np.where(ordered[places] == integers, places, -1)


def preceding(group: I64, is_known: npt.NDArray[np.bool_]) -> tuple[I64, I64]:
    """For each place in columns that are sorted by group: the last known place before it in its group, and the place
    itself; without the places that have none."""
    at = np.arange(len(group))
    latest = np.concatenate(([-1], np.maximum.accumulate(np.where(is_known, at, -1))))[: len(group)]
    has_one = (latest >= 0) & (group[latest] == group)
    return latest[has_one], at[has_one]

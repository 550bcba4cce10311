"""The plan of the register check: tasks of whole keys, from what the index states of the row groups.

Keys are independent, so any division of the keys into ranges gives the same result. A range starts at the lowest key of
some row group. A key with many operations has row groups of its own, so it is a task of its own; ranges of keys with
few operations are joined.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from history.record.operation_tables import IndexedGroup

TASK_ROWS: Final = 1 << 15
"""Ranges of keys are joined up to this number of operations: some 20 MB as objects of Python."""


@dataclass(frozen=True)
class KeyTask:
    """The keys from `start` on and below `stop` (None: no bound). `rows`: about how many operations they have;
    `groups`: the row groups that may have some of them."""

    start: str
    stop: str | None
    rows: int
    groups: tuple[IndexedGroup, ...]


def plan_keys(groups: Sequence[IndexedGroup], most_rows: int = TASK_ROWS) -> list[KeyTask]:
    """Tasks that cover all keys, each key in one of them: the ones with the most operations first."""
    starts = sorted({group.lowest for group in groups})
    first = np.array([bisect_left(starts, group.lowest) for group in groups], np.int64)
    last = np.array([bisect_left(starts, group.highest + "\0") - 1 for group in groups], np.int64)
    weights = _weights(groups, first, last, len(starts))
    tasks = []
    for low, high in _joined(weights, most_rows):
        mine = np.flatnonzero((first < high) & (last >= low)).tolist()
        stop = starts[high] if high < len(starts) else None
        rows = round(sum(weights[low:high]))
        tasks.append(KeyTask(starts[low], stop, rows, tuple(groups[number] for number in mine)))
    return sorted(tasks, key=lambda task: (-task.rows, task.start))


def _weights(groups: Sequence[IndexedGroup], first: Any, last: Any, ranges: int) -> list[float]:
    """The operations of each range, if those of a row group are spread evenly over the ranges that it reaches."""
    share = np.array([group.rows for group in groups], np.float64) / (last - first + 1)
    change = np.zeros(ranges + 1, np.float64)
    np.add.at(change, first, share)
    np.add.at(change, last + 1, -share)
    sums: list[float] = np.cumsum(change)[:-1].tolist()
    return sums


def _joined(weights: Iterable[float], most: int) -> list[tuple[int, int]]:
    """Consecutive ranges, as the first one and the one behind the last, with at most `most` operations together, or a
    single range."""
    bounds = [0]
    total = 0.0
    number = -1
    for number, weight in enumerate(weights):
        if total and total + weight > most:
            bounds.append(number)
            total = 0.0
        total += weight
    return list(zip(bounds, [*bounds[1:], number + 1], strict=True)) if number >= 0 else []

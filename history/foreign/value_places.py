"""Places of integers among all different ones, in ascending order: consecutive ones take the memory of one run."""

from typing import Final

import numpy as np

from history.value_runs import I64, ValueRuns

_LEAST_RUNS: Final = 1 << 16


class JoinedRuns:
    """The runs of integers that come in parts."""

    def __init__(self) -> None:
        self._all = ValueRuns()
        self._recent: list[ValueRuns] = []
        self._recent_runs = 0

    def add(self, integers: I64) -> None:
        runs = ValueRuns.of(integers)
        self._recent.append(runs)
        self._recent_runs += len(runs.first)
        if self._recent_runs >= max(_LEAST_RUNS, len(self._all.first)):
            self.all()

    def all(self) -> ValueRuns:
        """All runs. `repeated` counts the integers that were there before."""
        self._all = ValueRuns.union([self._all, *self._recent])
        self._recent, self._recent_runs = [], 0
        return self._all


class ValuePlaces:
    """The places of the integers of some runs: 0, 1, ..."""

    def __init__(self, runs: ValueRuns) -> None:
        self._first = runs.first
        self._before = np.concatenate(([0], np.cumsum(runs.last - runs.first + 1)))

    def __len__(self) -> int:
        return int(self._before[-1])

    def of(self, integers: I64) -> I64:
        """The place of each of these integers, which must be in the runs."""
        run = np.searchsorted(self._first, integers, side="right") - 1
        places: I64 = self._before[run] + (integers - self._first[run])
        return places

    def integers(self, places: I64) -> I64:
        """The integers at these places."""
        run = np.searchsorted(self._before, places, side="right") - 1
        integers: I64 = self._first[run] + (places - self._before[run])
        return integers

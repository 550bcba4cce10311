"""Sets of written values as runs of consecutive ones: a producer's values are nearly consecutive, so a set of millions
is a few runs."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]

PIECE = 1 << 20
"""The number of values that are sorted at a time. Each temporary copy has this size."""


@dataclass(frozen=True)
class ValueRuns:
    """The values first[i] .. last[i], both included, in ascending order. `repeated`: how many of the values that it was
    made of were there before."""

    first: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    last: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    repeated: int = 0

    @classmethod
    def of(cls, values: npt.NDArray[Any]) -> "ValueRuns":
        """The runs of some values in any order."""
        if not len(values):
            return cls()
        if len(values) > PIECE:
            return cls.union(cls.of(values[at : at + PIECE]) for at in range(0, len(values), PIECE))
        ordered = np.sort(values.astype(np.int64, copy=False), kind="stable")  # fast for what is mostly sorted
        step = np.diff(ordered.view(np.uint64))  # the difference of two integers of 64 bits may need 64 bits
        ends = np.flatnonzero(step > 1)
        first, last = np.concatenate(([0], ends + 1)), np.concatenate((ends, [len(ordered) - 1]))
        return cls(ordered[first], ordered[last], int((step == 0).sum()))

    @classmethod
    def union(cls, parts: Iterable["ValueRuns"]) -> "ValueRuns":
        """The values of all parts. Those that several parts have count as repeated."""
        all_parts = list(parts)
        first = np.concatenate([np.empty(0, np.int64), *(part.first for part in all_parts)])
        last = np.concatenate([np.empty(0, np.int64), *(part.last for part in all_parts)])
        repeated = sum(part.repeated for part in all_parts)
        if not len(first):
            return cls(repeated=repeated)
        order = np.argsort(first, kind="stable")
        first, last = first[order], last[order]
        reach = np.maximum.accumulate(last)
        starts = np.flatnonzero(np.concatenate(([True], first[1:] - 1 > reach[:-1])))
        merged = cls(first[starts], reach[np.concatenate((starts[1:] - 1, [len(first) - 1]))])
        repeated += sum(len(part) for part in all_parts) - len(merged)
        return cls(merged.first, merged.last, repeated)

    def __len__(self) -> int:
        """The number of different values."""
        return int((self.last - self.first + 1).sum())

    def __contains__(self, value: int) -> bool:
        at = int(self.first.searchsorted(value, side="right")) - 1
        return at >= 0 and value <= int(self.last[at])

    def within(self, first: int, count: int) -> int:
        """How many of the values first .. first + count - 1 it has."""
        low, high = np.maximum(self.first, first), np.minimum(self.last, first + count - 1)
        return int(np.maximum(high - low + 1, 0).sum())

    def missing(self, values: I64) -> npt.NDArray[np.bool_]:
        """Which of these values it does not have."""
        if not len(self.first):
            return np.ones(len(values), np.bool_)
        at = np.searchsorted(self.first, values, side="right") - 1
        absent: npt.NDArray[np.bool_] = (at < 0) | (values > self.last[np.maximum(at, 0)])
        return absent

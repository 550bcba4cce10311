"""Sets of integers and of names that mostly count up: consecutive values take the memory of one run."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

import numpy as np

from history.value_runs import I64, ValueRuns

_LEAST: Final = -(1 << 63)
_MOST_RECENT: Final = 1 << 14
_MOST_FAMILIES: Final = 1 << 10
_MOST_DIGITS: Final = 19
_DIGITS: Final = "0123456789"


class GrowingRuns:
    """A set of integers of 64 bits, each above -2^63.

    Most values are one above the highest, so this case is the fast one. `_first` .. `_behind` - 1: the highest run;
    `_closed`: earlier runs as first and last values, ascending; `_recent`: values that came after higher ones. When
    there are many of these, they become columns."""

    def __init__(self) -> None:
        self._first = self._behind = _LEAST
        self._closed: tuple[list[int], list[int]] = ([], [])
        self._recent: set[int] = set()
        self._runs = ValueRuns()
        self._most_recent = _MOST_RECENT

    def __contains__(self, value: int) -> bool:
        if value >= self._first:
            return value < self._behind
        at = bisect_right(self._closed[0], value) - 1
        return (at >= 0 and value <= self._closed[1][at]) or value in self._recent or value in self._runs

    def add(self, value: int) -> None:
        """Adds a value that is not in the set."""
        if value == self._behind:
            self._behind += 1
            return
        if value < self._behind:
            self._recent.add(value)
        else:
            if self._first < self._behind:
                self._closed[0].append(self._first)
                self._closed[1].append(self._behind - 1)
            self._first, self._behind = value, value + 1
        if len(self._recent) + len(self._closed[0]) >= self._most_recent:
            self._merge()

    def has_any(self, values: I64) -> bool:
        """Whether one of these values is in the set."""
        self._merge()
        in_highest = (values >= self._first) & (values <= self._behind - 1)
        return bool(in_highest.any()) or not self._runs.missing(values).all()

    def _merge(self) -> None:
        first, last = (np.array(each, np.int64) for each in self._closed)
        recent = ValueRuns.of(np.array(list(self._recent), np.int64))
        self._runs = ValueRuns.union([self._runs, ValueRuns(first, last), recent])
        self._recent, self._closed = set(), ([], [])
        # A share of the runs, so that values without consecutive ones are merged in a time that is linear in them.
        self._most_recent = max(_MOST_RECENT, len(self._runs.first) // 4)


class GrowingNames:
    """A set of names, each an integer or a text. Texts with equal prefixes before a final number are stored as runs of
    these numbers, all other texts as they are."""

    def __init__(self) -> None:
        self._families: dict[str, GrowingRuns] = {}
        self._others: set[int | str] = set()

    def __contains__(self, name: int | str) -> bool:
        family, number = _split(name) or ("", -1)
        return number in self._families[family] if family in self._families and number >= 0 else name in self._others

    def add(self, name: int | str) -> None:
        """Adds a name that is not in the set."""
        split = _split(name)
        if split is None or (split[0] not in self._families and len(self._families) >= _MOST_FAMILIES):
            self._others.add(name)
            return
        family, number = split
        self._families.setdefault(family, GrowingRuns()).add(number)


def _split(name: int | str) -> tuple[str, int] | None:
    """What precedes the number at the end of a name, and the number; None without one that is small enough."""
    if isinstance(name, int):
        return ("", name) if 0 <= name < 1 << 62 else None
    family = name.rstrip(_DIGITS)
    digits = name[len(family) :].lstrip("0") or name[len(family) :][-1:]
    if not 0 < len(digits) < _MOST_DIGITS:
        return None
    return f"text {name[: len(name) - len(digits)]}", int(digits)

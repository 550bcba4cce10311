"""Sets of integers and of names that grow one by one and mostly count up: of millions, a few runs are in memory."""

from __future__ import annotations

from typing import Final

import numpy as np

from history.value_runs import I64, ValueRuns

_MOST_RECENT: Final = 1 << 14
_MOST_FAMILIES: Final = 1 << 10
_MOST_DIGITS: Final = 19
_DIGITS: Final = "0123456789"


class GrowingRuns:
    """A set of integers of 64 bits. The latest ones are objects of Python; all others are runs of consecutive ones."""

    def __init__(self) -> None:
        self._runs = ValueRuns()
        self._recent: set[int] = set()
        self._most_recent = _MOST_RECENT

    def __contains__(self, value: int) -> bool:
        return value in self._recent or value in self._runs

    def add(self, value: int) -> None:
        """Adds a value that it does not have."""
        self._recent.add(value)
        if len(self._recent) >= self._most_recent:
            self._merge()

    def has_any(self, values: I64) -> bool:
        """Whether it has one of these values."""
        self._merge()
        return not self._runs.missing(values).all()

    def _merge(self) -> None:
        self._runs = ValueRuns.union([self._runs, ValueRuns.of(np.array(list(self._recent), np.int64))])
        self._recent = set()
        # A share of the runs, so that values without consecutive ones are merged in a time that is linear in them.
        self._most_recent = max(_MOST_RECENT, len(self._runs.first) // 4)


class GrowingNames:
    """A set of names, each an integer or a text. Texts that end with a number and begin alike are runs of numbers; all
    other texts are kept as they are."""

    def __init__(self) -> None:
        self._families: dict[str, GrowingRuns] = {}
        self._others: set[int | str] = set()

    def __contains__(self, name: int | str) -> bool:
        family, number = _split(name) or ("", -1)
        return number in self._families[family] if family in self._families and number >= 0 else name in self._others

    def add(self, name: int | str) -> None:
        """Adds a name that it does not have."""
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

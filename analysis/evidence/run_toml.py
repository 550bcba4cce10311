"""Typed access to the keys of run.toml: a missing or wrong value is recorded as a defect and replaced by a default."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from installation.sanitize import brief

T = TypeVar("T")

_NOTHING: Final = object()


class Described:
    """The keys of `run.toml`. `defects` collects what is missing or invalid, as sentences.

    A key is given by its path, such as `("checks", "min_ok")`. Every method returns `otherwise` for a defect.
    """

    def __init__(self, content: Mapping[str, Any]) -> None:
        self._content = content
        self.defects: list[str] = []

    def has(self, *path: str) -> bool:
        return self._find(path) is not _NOTHING

    def only(self, table: str, *known: str) -> None:
        """Any other key of this table is a defect."""
        there = self._find((table,))
        for key in sorted(there.keys() - set(known)) if isinstance(there, dict) else ():
            self.defects.append(f"run.toml: {_name((table, key))} is not known")

    def text(self, *path: str, otherwise: str = "", choices: Sequence[str] = ()) -> str:
        """A text; with `choices` one of these."""
        value = self._typed(path, str, otherwise, "a text")
        if choices and value not in choices and value != otherwise:
            return self._refuse(path, value, f"one of {', '.join(choices)}", otherwise)
        return value

    def number(self, *path: str, otherwise: int = 0, minimum: int = 0) -> int:
        """An integer, at least `minimum`."""
        value = self._typed(path, int, otherwise, "a whole number")
        return value if value >= minimum else self._refuse(path, value, f"at least {minimum}", otherwise)

    def boolean(self, *path: str, otherwise: bool) -> bool:
        """A boolean. The key may be missing."""
        return self._typed(path, bool, otherwise, "true or false") if self.has(*path) else otherwise

    def factor(self, *path: str) -> float:
        """A number above 0. The key may be missing and is then 1."""
        value = self._find(path)
        if value is _NOTHING:
            return 1.0
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if is_number and 0 < value < math.inf else self._refuse(path, value, "a factor", 1.0)

    def share(self, *path: str, otherwise: float) -> float:
        """A number from 0 to 1. The key may be missing."""
        value = self._find(path)
        if value is _NOTHING:
            return otherwise
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if is_number and 0 <= value <= 1 else self._refuse(path, value, "a share", otherwise)

    def texts(self, *path: str) -> tuple[str, ...]:
        """A list of texts."""
        value = self._typed(path, list, [], "a list of texts")
        if not all(isinstance(each, str) for each in value):
            return self._refuse(path, value, "a list of texts", ())
        return tuple(value)

    def names(self, *path: str) -> Mapping[str, str]:
        """A table of texts."""
        value = self._typed(path, dict, {}, "a table of texts")
        if not all(isinstance(each, str) for each in value.values()):
            return self._refuse(path, value, "a table of texts", {})
        return dict(value)

    def layers(self, *path: str) -> tuple[Mapping[str, str], ...]:
        """The values of a table as texts, and for each table in it those values overlaid with its own. Empty tables are
        left out. The table may be missing."""
        value = self._find(path)
        content = value if isinstance(value, dict) else {}
        common = {key: str(each) for key, each in content.items() if not isinstance(each, dict)}
        inside = [layer for key, each in content.items() if isinstance(each, dict) for layer in self.layers(*path, key)]
        return (*([common] if common else []), *({**common, **layer} for layer in inside))

    def settings_of(self, role: str, node: str) -> Mapping[str, str]:
        """The settings of a node: those of its role, overridden by those of the node itself, as texts."""
        common, own = (self._find(path) for path in (("settings", role), ("settings", role, node)))
        tables = [each for each in (common, own) if isinstance(each, dict)]
        return {key: str(value) for table in tables for key, value in table.items() if not isinstance(value, dict)}

    def line_tables(self, name: str) -> Mapping[str, Mapping[str, tuple[str, ...]]]:
        """A table of tables of lists of texts. It may be missing."""
        if not self.has(name):
            return {}
        outer = self._typed((name,), dict, {}, "a table of tables")
        return {
            key: {file: self.texts(name, key, file) for file in self._typed((name, key), dict, {}, "a table")}
            for key in outer
        }

    def rows(self, *path: str) -> tuple[tuple[int, ...], ...]:
        """A list of lists of integers."""
        value = self._typed(path, list, [], "a list of lists of numbers")
        if not all(isinstance(row, list) and all(type(each) is int for each in row) for row in value):
            return self._refuse(path, value, "a list of lists of numbers", ())
        return tuple(tuple(row) for row in value)

    def _find(self, path: Sequence[str]) -> Any:
        value: Any = self._content
        for key in path:
            if not isinstance(value, dict) or key not in value:
                return _NOTHING
            value = value[key]
        return value

    def _typed(self, path: Sequence[str], kind: type[T], otherwise: T, needed: str) -> T:
        value = self._find(path)
        if value is _NOTHING:
            self.defects.append(f"run.toml: {_name(path)} is missing")
            return otherwise
        # A boolean is an int in Python, not in TOML.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            return self._refuse(path, value, needed, otherwise)
        return value

    def _refuse(self, path: Sequence[str], value: Any, needed: str, otherwise: T) -> T:
        self.defects.append(f"run.toml: {_name(path)} is {brief(repr(value), 60)}: {needed} is needed")
        return otherwise


def _name(path: Sequence[str]) -> str:
    *tables, key = path
    return f"[{'.'.join(tables)}] {key}" if tables else key

"""Decodes TOML whose every value can be compared, shown and stored again.

TOML has integers of 64 bits. Python also accepts larger ones, which it then refuses to print, and a key with a thousand
dots, whose table is nested deeper than Python's functions can follow. Each of these is an error here.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from typing import Any, Final

from installation.sanitize import visible_line

MOST_LEVELS: Final = 100
_NUMBERS: Final = range(-(1 << 63), 1 << 63)


def decode(text: str) -> dict[str, Any]:
    """The tables of a TOML document. Raises ValueError."""
    try:
        content = tomllib.loads(text)
    except RecursionError as error:
        raise ValueError(_DEEP) from error
    level: Iterable[tuple[str, Any]] = [("", content)]
    for _ in range(MOST_LEVELS):
        level = [inner for path, value in level for inner in _inside(path, value)]
        if not level:
            return content
    raise ValueError(_DEEP)


_DEEP: Final = f"a list or a table in it is nested deeper than {MOST_LEVELS} levels"


def _inside(path: str, value: Any) -> Iterable[tuple[str, Any]]:
    """The values in a table or list, each with its path; none in another value. Raises ValueError for an integer of
    more than 64 bits."""
    if isinstance(value, int) and value not in _NUMBERS:
        raise ValueError(f"{visible_line(path)} has more than 64 bits: TOML has no such whole number")
    if isinstance(value, dict):
        return [(f"{path}.{key}" if path else key, inner) for key, inner in value.items()]
    return [(path, inner) for inner in value] if isinstance(value, list) else ()

"""Decodes TOML whose every value can be compared, shown and stored again, and writes values as TOML has them.

TOML has integers of 64 bits. Python also accepts larger ones, which it then refuses to print, and a key with a thousand
dots, whose table is nested deeper than Python's functions can follow. Each of these is an error here.
"""

import json
import tomllib
from collections.abc import Iterable, Mapping
from datetime import date, time
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


def written(value: Any) -> str:
    """A value as a TOML document has it, also on pages and in messages. Raises `TypeError` for a value that TOML cannot
    express."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        fields = ", ".join(f"{written_key(key)} = {written(part)}" for key, part in value.items() if part is not None)
        return f"{{ {fields} }}" if fields else "{}"
    if isinstance(value, list | tuple | set | frozenset):
        return f"[{', '.join(map(written, value))}]"
    raise TypeError(f"TOML cannot express {value!r}")


def written_key(key: str) -> str:
    """A key as a TOML document has it."""
    return key if key and all(c.isascii() and (c.isalnum() or c in "-_") for c in key) else json.dumps(key)

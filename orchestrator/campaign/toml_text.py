"""Writes a mapping as TOML, for the types of values in a run's description and a campaign."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def dump(data: Mapping[str, Any]) -> str:
    """The text of a TOML document; a list of mappings becomes an array of tables, and mappings in it inline tables.

    Keys with the value None are omitted. Raises `TypeError` for a value that TOML cannot express."""
    return "\n".join(_table(data, ())).strip() + "\n"


def _table(data: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    tables = {key: value for key, value in data.items() if isinstance(value, Mapping) or _is_array_of_tables(value)}
    plain = [line for key, value in data.items() if key not in tables for line in _line(key, value)]
    lines = [f"[{_path(path)}]"] if path and (plain or not data) else []
    lines += plain
    for key, value in tables.items():
        if isinstance(value, Mapping):
            lines += ["", *_table(value, (*path, key))]
            continue
        for element in value:
            lines += ["", f"[[{_path((*path, key))}]]"]
            lines += [line for inner, held in element.items() for line in _line(inner, held)]
    return lines


def _is_array_of_tables(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(each, Mapping) for each in value)


def _line(key: str, value: Any) -> list[str]:
    return [] if value is None else [f"{_key(key)} = {_value(value)}"]


def _path(path: tuple[str, ...]) -> str:
    return ".".join(map(_key, path))


def _key(key: str) -> str:
    return key if key and all(c.isascii() and (c.isalnum() or c in "-_") for c in key) else json.dumps(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        held = ", ".join(f"{_key(key)} = {_value(each)}" for key, each in value.items() if each is not None)
        return f"{{ {held} }}" if held else "{}"
    if isinstance(value, list | tuple | set | frozenset):
        return f"[{', '.join(_value(item) for item in value)}]"
    raise TypeError(f"TOML cannot express {value!r}")

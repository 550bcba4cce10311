"""Writes a mapping as TOML, for the types of values in a run's description and a campaign."""

from collections.abc import Mapping
from typing import Any

from history.strict_toml import written, written_key


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
    return [] if value is None else [f"{written_key(key)} = {written(value)}"]


def _path(path: tuple[str, ...]) -> str:
    return ".".join(map(written_key, path))

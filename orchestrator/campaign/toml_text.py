"""Writes a mapping as TOML: the few kinds of values that a run's description holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def dump(data: Mapping[str, Any]) -> str:
    """The text of a TOML document. Values that are None are left out. Raises `TypeError` for what TOML cannot say."""
    return "\n".join(_table(data, ())).strip() + "\n"


def _table(data: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    plain = {key: value for key, value in data.items() if not isinstance(value, Mapping)}
    lines = [f"{_key(key)} = {_value(value)}" for key, value in plain.items() if value is not None]
    if path and (lines or not data):
        lines.insert(0, f"[{'.'.join(map(_key, path))}]")
    for key, value in data.items():
        if isinstance(value, Mapping):
            lines += ["", *_table(value, (*path, key))]
    return lines


def _key(key: str) -> str:
    return key if key and all(c.isascii() and (c.isalnum() or c in "-_") for c in key) else json.dumps(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple | set | frozenset):
        return f"[{', '.join(_value(item) for item in value)}]"
    raise TypeError(f"TOML cannot say {value!r}")

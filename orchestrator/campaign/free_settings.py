"""Reads tables of settings whose keys only the system knows."""

from __future__ import annotations

from systems.toml_tables import Table


def read_settings(table: Table, key: str) -> dict[str, str]:
    """A table of settings below `key`, as texts; empty without one. Raises `InputError`."""
    settings: dict[str, str] = {}
    inner = table.table(key)
    for name in inner.data:
        value = inner.raw(name, None)
        if not isinstance(value, str | int | float):
            table.refuse(
                f"{key}: {name}: {value!r} is neither a text nor a number; put a name with dots in quotes", key
            )
        settings[name] = str(value).lower() if isinstance(value, bool) else str(value)
    inner.done()
    return settings

"""Writes campaigns that differ in few values."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

IMPATIENT: Final = {
    "log.flush.interval.messages": 1,
    "min.insync.replicas": 2,
    "replica.lag.time.max.ms": 2000,
    "broker.session.timeout.ms": 2500,
    "broker.lease.ms": 1800,
}
"""Brokers that sync every record and replace an absent one soon."""


def campaign_text(name: str, description: str = "", /, **tables: Mapping[str, Any]) -> str:
    """The TOML of a campaign with these tables, a line for each key."""
    lines = ["", f"name = {_value(name)}", *([f"description = {_value(description)}"] if description else [])]
    for table, keys in tables.items():
        lines += [f"[{table}]", *(f"{_key(key)} = {_value(value)}" for key, value in keys.items())]
    return "\n".join([*lines, ""])


def random_faults(*faults: str, interval_s: Sequence[float], duration_s: Sequence[float]) -> dict[str, Any]:
    return {"kind": "random", "faults": list(faults), "interval_s": interval_s, "duration_s": duration_s}


def _key(key: str) -> str:
    return key if re.fullmatch(r"[\w-]+", key) else json.dumps(key)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_key(key)} = {_value(inner)}' for key, inner in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value)

"""The operations of a witness as text, in one notation for pages and plots."""

from collections.abc import Mapping
from typing import Any, Final

from analysis.core.explain import name_of
from analysis.core.register_witness import describe
from history.record.schemas import INF
from history.record.values import decode_value

RECORDS_NAMED: Final = 3


def record_text(value: int) -> str:
    """A record's value as `session.producer.sequence`; a dash for a record without one."""
    return "–" if value < 0 else ".".join(map(str, decode_value(value)))


def operation_text(row: Mapping[str, Any]) -> str:
    """One line that says what an operation did and showed, without its client."""
    kind, offset = row.get("op"), row.get("offset", -1)
    outcome = str(row.get("type", "")) + (f" ({row['error']})" if row.get("error") else "")
    if "text" in row:
        return f"{row['text']}: {outcome}"
    if "key" in row:
        return f"{describe(row)}: {outcome}"
    if kind == "append":
        at = f" at offset {offset}" if offset >= 0 else ""
        return f"append of {name_of(row['value'])}{at}: {outcome}"
    if kind == "read":
        records = row.get("records", [])
        shown = ", ".join(f"{name_of(value)} at offset {at}" for at, value in records[:RECORDS_NAMED])
        final = "final read" if row.get("phase") == "final" else "read"
        count = row.get("record_count", len(records))
        return f"{final} from offset {offset} shows {count} record{'' if count == 1 else 's'}: {shown}"
    if kind == "end":
        return f"query of the log's end: {row.get('hi', row.get('lo'))}"
    at = f" at offset {offset}" if offset >= 0 else ""
    return f"{kind or 'record'}: {name_of(row.get('value', -1))}{at}"


def ends_at(row: Mapping[str, Any]) -> int | None:
    """When the operation returned, in ns of the monotonic clock; None if it never did or has no times."""
    returned = row.get("ret")
    return returned if isinstance(returned, int) and 0 <= returned < INF else None


def begins_at(row: Mapping[str, Any]) -> int | None:
    """When the operation was invoked, in ns of the monotonic clock; None for a row without times."""
    invoked = row.get("inv")
    return invoked if isinstance(invoked, int) and 0 <= invoked < INF else None

"""What the methods of a user's client class may return. Anything else breaks the contract and ends the client.

A result of the right type may still be impossible, such as offsets that fall: that can be an answer of the system, so
it counts as a mistake of one operation.
"""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from history.record.values import NOT_A_VALUE
from history.strict_json import decode
from installation.sanitize import brief
from workloads.api import NO_OFFSET

MOST_BYTES: Final = 1_000_000
"""Of the argument, and of the result, of an operation of a user's own workload: both are texts in the record."""
_INT64: Final = range(-(1 << 63), 1 << 63)


class ContractError(Exception):
    """A result that a method must not return; the message says what it returned and what it returns."""

    def __init__(self, value: Any, demand: str) -> None:
        super().__init__(f"returned {brief(repr(value), 100)}, not {demand}")


def appended(value: Any) -> int:
    """The offset that `append` returned, -1 for `NO_OFFSET`."""
    return -1 if value is NO_OFFSET else _place(value, "the record's offset or NO_OFFSET")


def ended(value: Any) -> int:
    """The length that `end` returned."""
    return _place(value, "the log's length")


def records(answer: Any) -> list[tuple[int, int]]:
    """The records that a log's `read` returned. Raises TypeError for offsets that do not rise."""
    demand = "a list of (offset, value)"
    if not isinstance(answer, Sequence) or isinstance(answer, str | bytes | bytearray):
        raise ContractError(answer, demand)
    pairs = []
    for record in answer:
        if not isinstance(record, Sequence) or isinstance(record, str | bytes | bytearray) or len(record) != 2:
            raise ContractError(answer, demand)
        pairs.append((_place(record[0], f"{demand}, with an offset"), _shown(record[1], f"{demand}, with a value")))
    for (before, _), (after, _) in pairwise(pairs):
        if after <= before:
            raise TypeError(f"read returned offset {after} after {before}: they must rise")
    return pairs


def shows_ends(value: Any) -> bool:
    """The attribute `reads_show_ends`."""
    return _truth(value, "True or False, as reads_show_ends must be")


def held(value: Any) -> int | None:
    """The value that a register's `read` returned; None if the key is absent."""
    return None if value is None else _shown(value, "the key's value or None")


def written(value: Any) -> None:
    """The result of `write`, which has none."""
    if value is not None:
        raise ContractError(value, "None: a write that did not happen raises Refused")


def was_set(value: Any) -> bool:
    """The result of `compare_and_set`."""
    return _truth(value, "True or False")


def json_text(value: Any) -> str:
    """A JSON value as text. Raises ValueError for any other value, and for one that is too large."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        size = len(text.encode())
        decode(text)  # two keys of a dict may be one key of JSON
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"it is not a JSON value: {error}") from None
    if size > MOST_BYTES:
        raise ValueError(f"it has {size:,} bytes as JSON; {MOST_BYTES:,} are allowed")
    return text


def answered(value: Any) -> str:
    """The result of a function of a user's own workload, as JSON text."""
    try:
        return json_text(value)
    except ValueError as error:
        raise ContractError(value, f"a JSON value of at most {MOST_BYTES:,} bytes: {error}") from None


def _truth(value: Any, demand: str) -> bool:
    if not isinstance(value, bool):
        raise ContractError(value, demand)
    return value


def _place(value: Any, demand: str) -> int:
    from history.record.schemas import INF

    place = _whole_number(value, f"{demand}: a whole number from 0")
    if place < 0:
        raise ContractError(value, f"{demand}: a whole number from 0")
    if place >= INF:
        raise TypeError(f"returned {place}, which is not an offset")
    return place


def _shown(value: Any, demand: str) -> int:
    """`NOT_A_VALUE` for a number that is too large to have been written."""
    shown = _whole_number(value, f"{demand}: a whole number")
    return shown if shown in _INT64 else NOT_A_VALUE


def _whole_number(value: Any, demand: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ContractError(value, demand)
    return value

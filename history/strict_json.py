"""JSON that can be read in one way only.

The standard leaves open what a repeated key means, and readers differ: two of them could see different evidence in one
file. Python also takes NaN and infinities, which JSON does not have, numbers that no float holds, and text in UTF-16.
What a run left is decoded here, and any of these is an error.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final


def decode(text: bytes | str) -> Any:
    """One JSON value, in UTF-8. Raises ValueError, also for what is nested too deep."""
    try:
        return _DECODER.decode(text if isinstance(text, str) else text.decode("utf-8"))
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} is given twice")
    return found


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} is too large a number")
    return value


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_refuse, parse_float=_finite)
"""Made once: to make one takes as long as to read a line."""

"""Decodes JSON that has only one reading.

The standard leaves the meaning of a repeated key open, so two readers could see different evidence in one file. Python
also accepts NaN and infinities, which JSON does not have, numbers that exceed a float, and text in UTF-16. All evidence
is decoded here, and each of these is an error.
"""

import json
import math
from typing import Any, Final


def decode(text: bytes | str) -> Any:
    """One JSON value, in UTF-8. Raises ValueError, also for too deep nesting."""
    try:
        return _DECODER.decode(text if isinstance(text, str) else text.decode("utf-8"))
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} is given twice")
    return members


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} is too large a number")
    return value


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_refuse, parse_float=_finite)
"""Created once: creating one takes as long as decoding a line."""

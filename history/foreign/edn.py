"""Reads the forms of an EDN file, one per line, with the library `edn_format` (the extra [edn])."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from history.foreign.history import ForeignError
from history.foreign.text_lines import lines_of

_AT_ONCE: Final = 256
"""Lines per call of the library, which makes a parser in each call."""
_TAG: Final = re.compile(r"#([A-Za-z][\w.*+!?$%&=<>/-]*)")
_SURROGATE: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u[dD][89a-fA-F]")
_BUILT_IN: Final = ("inst", "uuid", "_")


def forms_of(path: Path) -> Iterator[tuple[int, Any]]:
    """The number of each line that is not blank, and its form. Tags are dropped. Raises ForeignError."""
    tags: set[str] = set(_BUILT_IN)
    left = lines_of(path)
    while lines := list(islice(left, _AT_ONCE)):
        text = "\n".join(line for _, line in lines)
        _accept_tags(text, tags)
        try:
            forms = _parsed(text)
        except ValueError:
            forms = []
        if len(forms) != len(lines):  # one of them is not one form: find it
            forms = [_form(path, number, line) for number, line in lines]
        yield from zip((number for number, _ in lines), forms, strict=True)


def text_of(form: Any) -> str:
    """A form as EDN."""
    import edn_format

    return str(edn_format.dumps(form))


def _form(path: Path, number: int, line: str) -> Any:
    try:
        forms = _parsed(line)
    except ValueError as error:
        raise ForeignError(path, number, f"is not EDN ({error}): one event per line, as in history.edn") from error
    if len(forms) != 1:
        raise ForeignError(path, number, f"has {len(forms)} forms: one event per line, as in history.edn")
    return forms[0]


def _parsed(text: str) -> list[Any]:
    """All forms in a text. Raises ValueError."""
    import edn_format

    if _SURROGATE.search(text):  # half a character, which no file can hold
        raise ValueError("it has an escape in \\ud800 .. \\udfff: write the character itself in UTF-8")
    try:
        return list(edn_format.loads_all(text, write_ply_tables=False))
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    except Exception as error:  # the library raises errors of many kinds, those of its parser generator too
        raise ValueError(" ".join(str(error).split())[:80] or type(error).__name__) from error


def _accept_tags(text: str, known: set[str]) -> None:
    """Make the library read tagged forms of any tag as the form itself, such as `#jepsen.history.Op{...}`."""
    import edn_format

    for tag in set(_TAG.findall(text)) - known:
        known.add(tag)
        edn_format.add_tag(tag, _untagged)


def _untagged(form: Any) -> Any:
    return form

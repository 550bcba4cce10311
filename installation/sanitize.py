"""Makes text from other sources (a broker's log line, a file name) safe to show on a terminal or in a document.

Characters that a terminal would interpret, or that XML forbids, are escaped: a log line can neither repaint the screen
nor make a document unreadable.
"""

import re
from collections.abc import Mapping
from typing import Any

# Control characters except tab and line feed, characters that reverse the direction of text, halves of surrogate pairs
# (bytes that were not UTF-8), and the two code points that are not characters.
_UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_BREAKS = str.maketrans({"\n": "\\n", "\t": "\\t"})


def visible(text: str) -> str:
    """The text with every unsafe character as an escape such as `\\x1b`; lines and tabs stay."""
    return _UNFIT.sub(_escape, text)


def visible_line(text: str) -> str:
    """The same, on one line."""
    return visible(text).translate(_BREAKS)


def brief(text: str, most: int) -> str:
    """At most `most` characters: the start of a longer text, with `...` at its end."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def shortened(text: str, most: int) -> str:
    """At most `most` characters: the start and the end of a longer text, and how many characters were left out."""
    if len(text) <= most:
        return text
    kept = max(most // 2, 1)
    return f"{text[:kept]} ... ({len(text) - 2 * kept} characters left out) ... {text[-kept:]}"


def plain(value: Any) -> str:
    """A value from a file as text for people, without the notation of a programming language: `none` for a missing
    value, `true` and `false` as in TOML, items of a list with commas, and fields of a mapping as `key: value`."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping):
        separator = "; " if any(isinstance(each, Mapping | list | tuple) for each in value.values()) else ", "
        return separator.join(f"{plain(key)}: {plain(each)}" for key, each in value.items()) or "nothing"
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(map(plain, value)) or "nothing"
    return str(value) or "empty"


def quoted(value: Any) -> str:
    """The same, with a text between quotation marks and its control characters escaped."""
    return repr(value) if isinstance(value, str) else plain(value)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

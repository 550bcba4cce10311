"""Text that others wrote - a broker's log line, a name in a file - made fit to be shown: on a terminal, in a document.

What a terminal would obey, or XML forbids, is written as its escape: a line of a log can neither repaint the screen nor
make a document unreadable.
"""

from __future__ import annotations

import re

# Control characters but tab and line feed, what reverses the direction of text, halves of surrogate pairs (bytes that
# were no UTF-8), and the two code points that are no characters.
_UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_BREAKS = str.maketrans({"\n": "\\n", "\t": "\\t"})


def visible(text: str) -> str:
    """The text with every unfit character as an escape such as `\\x1b`; lines and tabs stay."""
    return _UNFIT.sub(_escape, text)


def visible_line(text: str) -> str:
    """The same, on one line."""
    return visible(text).translate(_BREAKS)


def shortened(text: str, most: int) -> str:
    """At most `most` characters: the begin and the end of what is longer, and how much was left out between."""
    if len(text) <= most:
        return text
    kept = max(most // 2, 1)
    return f"{text[:kept]} ... ({len(text) - 2 * kept} characters left out) ... {text[-kept:]}"


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

"""Finds values in Python's notation in texts for people."""

import re
from collections.abc import Iterable
from typing import Final

_LITERAL: Final = re.compile(r"""\[['{(]|\{'|\(['"]|\b(?:None|True|False)\b|\b\w+=[\[{(]""")


def literals_in(texts: Iterable[str]) -> list[str]:
    """The texts that have the notation of a list, mapping, tuple, None or a truth value. TOML has `["a"]`, `[[1]]`,
    `[]` and `{}`, too."""
    return [text for text in texts if _LITERAL.search(text)]

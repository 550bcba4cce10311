"""Reads the texts that stand below the fields of a class, from its source.

A pattern finds them: a running broker, which answers with them, must not wait for a parser of Python.
"""

import inspect
import re
from pathlib import Path
from typing import Final

_DEEPER: Final = r"(?:\n(?: {5,}|    [)\]])[^\n]*)*"
"""The further lines of a field."""
_TEXT: Final = re.compile(rf'^    (\w+): [^\n]*{_DEEPER}\n    """(.*?)"""$', re.MULTILINE | re.DOTALL)


def field_texts(declared: type) -> dict[str, str]:
    """By the names of the fields; those of its base classes, too."""
    owners = (owner for owner in reversed(declared.__mro__) if vars(owner).get("__annotations__"))
    return {name: " ".join(text.split()) for owner in owners for name, text in _TEXT.findall(_source(owner))}


def _source(declared: type) -> str:
    """The body of a class that is defined at the top of a module."""
    text = Path(inspect.getfile(declared)).read_text(encoding="utf-8")
    declaration = re.search(rf"^class {declared.__name__}\b.*?(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL)
    assert declaration is not None
    return declaration[0]

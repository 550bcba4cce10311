"""Types of the keys of TOML files, with bounds, for the structs that declare tables.

The bounds are those of msgspec, so one declaration serves the reader of a campaign (`systems.declared_tables`), the
reader of run.toml, the JSON Schema and the documents.
"""

from collections.abc import Iterable
from typing import Annotated, Final

from msgspec import Meta

LONGEST_S: Final = 10_000_000
"""The longest time that a file may name, a third of a year: a longer wait would not end."""

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
AtLeastZero = Annotated[float, Meta(ge=0)]
Int64 = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""A document with a larger integer is damaged; tables have none."""
Share = Annotated[float, Meta(ge=0, le=1)]
Seconds = Annotated[float, Meta(ge=0, le=LONGEST_S)]
WholeSeconds = Annotated[int, Meta(ge=1, le=LONGEST_S)]

ONE_OR_MORE: Final = {"instead": {"type": ["array", "string"]}}
"""Beside the type of a list of texts: a campaign may have a single text instead of a list of one."""
SETTINGS: Final = {"instead": {"additionalProperties": {"type": ["string", "number", "boolean"]}}}
"""Beside the type of a mapping of texts: a campaign may have numbers and truth values, which are read as texts."""
COMPUTED: Final = Meta(extra_json_schema={"computed": True})
"""A field that is not a key of the file."""


def one_of(texts: Iterable[str]) -> Meta:
    """A text that is one of these words."""
    choices = list(texts)
    # `$` would also accept a line feed behind the text.
    return Meta(pattern=rf"^({'|'.join(choices)})\Z", extra_json_schema={"enum": choices})

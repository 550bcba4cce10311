"""The announcements of a client: the lines that it writes, and syncs, before it sends operations.

A line that is damaged converts to no type. Numbers are those that the tables of operations can hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

from history.field_types import Int64
from history.schemas import CAS, INF, WRITE
from history.topic_folders import is_topic
from history.values import PRODUCERS

LARGEST_BLOCK: Final = 1 << 20

Int32 = Annotated[int, Meta(ge=0, lt=1 << 31)]
Natural = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Time = Annotated[int, Meta(ge=0, lt=INF)]
Count = Annotated[int, Meta(gt=0, le=LARGEST_BLOCK)]

A = TypeVar("A", bound=msgspec.Struct)


class RecordHeader(msgspec.Struct):
    """The first line: whose record it is. `producer`: of the client's values; None if it writes none."""

    client: str
    process: Int32
    session: Int32
    producer: Annotated[int, Meta(ge=0, lt=PRODUCERS)] | None = None


class AnnouncedBlock(msgspec.Struct):
    """`count` values from `first` that the client may append to a partition from time `t` on."""

    topic: str
    partition: Int32
    first: Natural
    count: Count
    t: Time

    def __post_init__(self) -> None:
        if not is_topic(self.topic) or self.first + self.count >= 1 << 63:
            raise ValueError(f"not a block of values: {self}")


class UnusedValues(msgspec.Struct):
    """`count` announced values, from `unused` on, that the client gives back."""

    unused: Natural
    count: Count


class Invocation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An operation on a register in progress. `value` is what it would write: a write's value, a compare-and-set's new
    one."""

    id: Natural
    f: int
    key: str
    value: Int64 | None
    expected: Int64 | None
    inv: Time
    phase: str

    @property
    def is_announced(self) -> bool:
        """Reads are not announced."""
        return self.f in (WRITE, CAS) and self.value is not None


def converted(lines: Iterable[Mapping[str, Any]], kind: type[A]) -> tuple[list[A], int]:
    """The lines of this kind, and the number of lines that are damaged."""
    announcements, damaged = [], 0
    for line in lines:
        try:
            announcements.append(msgspec.convert(line, kind))
        except msgspec.ValidationError:
            damaged += 1
    return announcements, damaged

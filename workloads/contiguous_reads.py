"""Splits records into runs of consecutive offsets; each run is recorded as one read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def contiguous_runs(items: Sequence[T], offset: Callable[[T], int]) -> Iterator[list[T]]:
    """Split the records of one partition where an offset does not follow its predecessor."""
    run: list[T] = []
    for item in items:
        if run and offset(item) != offset(run[-1]) + 1:
            yield run
            run = []
        run.append(item)
    if run:
        yield run

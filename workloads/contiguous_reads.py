"""Splits records into runs of consecutive offsets, and records each run as one read."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

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


def columns_of_read(start: int, offsets: Sequence[int], values: Sequence[int]) -> dict[str, Any]:
    """The columns of a read that requested `start` and got this run of records, which shows the log's least length."""
    return {"offset": start, "offsets": offsets, "values": values, "lo": offsets[-1] + 1}

"""Runs of records whose offsets follow one another: what one read may claim to have seen whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def contiguous_runs(items: Sequence[T], offset: Callable[[T], int]) -> Iterator[list[T]]:
    """Split records of one partition where an offset does not follow the one before."""
    run: list[T] = []
    for item in items:
        if run and offset(item) != offset(run[-1]) + 1:
            yield run
            run = []
        run.append(item)
    if run:
        yield run

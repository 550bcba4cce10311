"""Finds data that is only in memory, and lets a power cut write part of it to the disk.

A kernel writes pages back in any order. Writing a random subset back just before the cut, with or without the metadata
that makes them part of a file, leaves the same as real disks: clean prefixes, holes of zeros, torn records.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from orchestrator.machine import syscalls

PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Torn:
    """What was done before the cut. `dropped`: None if the kernel cannot report it (before Linux 6.5)."""

    written_back: int
    dropped: int | None
    journal_flushed: bool


def tear(root: Path, rng: Random | None) -> Torn:
    """Write back a random part of the dirty pages below `root` (none without `rng`), and count the rest."""
    written = left = 0
    try:
        for descriptor, size in _files(root):
            pages = list(dirty_pages(descriptor, size))
            chosen = _choose(pages, rng) if rng is not None else []
            for page in chosen:
                syscalls.write_back(descriptor, page * PAGE, PAGE)
            written += len(chosen)
            left += syscalls.dirty_pages(descriptor, 0, _whole(size)) if chosen else len(pages)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        return Torn(0, None, False)
    # Written pages belong to a file only if the journal, with its length and extents, is written, too.
    return Torn(written, left, rng is not None and rng.random() < 2 / 3)


def dirty_pages(descriptor: int, size: int) -> Iterator[int]:
    """The numbers of a file's dirty pages, found by bisection. Raises `OSError` (ENOSYS before Linux 6.5)."""
    pending = [(0, _whole(size) // PAGE)]
    while pending:
        first, count = pending.pop()
        dirty = syscalls.dirty_pages(descriptor, first * PAGE, count * PAGE) if count else 0
        if dirty == count:
            yield from range(first, first + count)
        elif dirty:
            half = count // 2
            pending += [(first + half, count - half), (first, half)]


def _whole(size: int) -> int:
    return -(-size // PAGE) * PAGE


def _choose(pages: list[int], rng: Random) -> list[int]:
    """None, few, half or all: different cases break logs."""
    count = rng.choice((0, 1, 2, len(pages) // 2, len(pages)))
    return sorted(rng.sample(pages, min(count, len(pages))))


def _files(root: Path) -> Iterator[tuple[int, int]]:
    """Every regular file below `root`, open, with its size, in the order of their paths. Files may disappear
    meanwhile."""
    for directory, names, files in os.walk(root):
        names.sort()
        for name in sorted(files):
            with contextlib.suppress(FileNotFoundError):
                descriptor = os.open(f"{directory}/{name}", os.O_RDONLY | os.O_NOATIME | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    yield descriptor, os.fstat(descriptor).st_size
                finally:
                    os.close(descriptor)

"""Finds data that is only in memory, and lets a power cut write part of it to the disk.

A kernel writes pages back in any order. Writing a random subset back just before the cut, with or without the metadata
that makes them part of a file, leaves the same as real disks: clean prefixes, holes of zeros, torn records.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
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
    """Every regular file on the filesystem of `root`, open, with its size, in the order of their paths; a file with
    several names once. Links, pipes, sockets and devices have no pages here. Files may disappear meanwhile."""
    top, seen = os.stat(root), set[int]()
    for _, names, files, directory in os.fwalk(root):
        names[:] = [name for name in sorted(names) if _is_on(top.st_dev, name, directory)]
        for name in sorted(files):
            with contextlib.suppress(FileNotFoundError, _OtherKindError):
                descriptor = _open_regular(name, directory)
                try:
                    status = os.fstat(descriptor)
                    if status.st_dev == top.st_dev and status.st_ino not in seen:
                        seen.add(status.st_ino)
                        yield descriptor, status.st_size
                finally:
                    os.close(descriptor)


class _OtherKindError(Exception):
    """The name belongs to something else than a regular file."""


def _open_regular(name: str, directory: int) -> int:
    """Open a regular file of a directory. The kind is read before the opening, because a pipe would block
    and a device may react, and after it, because the name may belong to another file by then."""
    if not stat.S_ISREG(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
        raise _OtherKindError
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOATIME | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=directory)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, or a socket, since a moment ago
            raise _OtherKindError from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _OtherKindError
    return descriptor


def _is_on(device: int, name: str, directory: int) -> bool:
    """Whether a directory belongs to this filesystem: another one that is mounted in it is not cut."""
    with contextlib.suppress(FileNotFoundError):
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_dev == device
    return False

"""The ports through which the broker reaches a disk.

Time, timers and connections come from the running asyncio loop, randomness from an injected `random.Random`; together
with `Disk` these are the only ways out of the broker. Reality (`broker.disk`) and simulation implement the same ports.

What survives a power cut is the contract of this module: bytes are durable once `sync` of their file has returned, a
name (a created, renamed or removed file) once `sync_directory` of its directory has returned. Nothing else is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview

ASIDE = ".tmp"
"""Behind the name of a file that is being replaced: where its new bytes are written first."""


def parent(path: str) -> str:
    """The directory of a path, `""` for the disk's root."""
    return path.rpartition("/")[0]


class File(Protocol):
    """An open file. Offsets and sizes are in bytes. Errors of the disk surface as `OSError`."""

    @property
    def path(self) -> str:
        """The path under which the file was opened."""
        ...

    def size(self) -> int:
        """The current length, page cache included."""
        ...

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write all buffers at the end of the file, vectored, and return the new length. Not durable before `sync`."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """At most `length` bytes from `offset`; shorter at the end of the file."""
        ...

    def truncate(self, length: int) -> None:
        """Cut the file to `length`. Not durable before `sync`."""
        ...

    async def sync(self, *, in_background: bool = False) -> None:
        """Return once everything written before the call is durable (a group commit). Raises `OSError` if it is not,
        and for a file that is closed. What the metadata quorum rests on waits for no sync of a partition.
        `in_background`: a sync of another file does not wait for this one, which may take seconds."""
        ...

    async def sync_again(self, start: int) -> None:
        """`sync`, of bytes that another process wrote, from `start` on: they are written once more before. Where a sync
        of that process failed, the kernel takes them for clean, and would write none of them. Nobody may change the
        file meanwhile."""
        ...

    def send_to(self, transport: asyncio.WriteTransport, offset: int, length: int) -> int:
        """Hand up to `length` bytes from `offset` to a connection without copying them; the number of bytes taken.

        Raises `BlockingIOError` when the connection takes none now: try again when it is writable.
        """
        ...

    def close(self) -> None:
        """Close the file. Nothing becomes durable by it."""
        ...


class Disk(Protocol):
    """A directory tree. Paths are relative to the disk's root, with `/` between their parts."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and appending. Raises `FileNotFoundError` when it does not exist and `create` is false."""
        ...

    def exists(self, path: str) -> bool: ...

    def list(self, directory: str) -> list[str]:
        """The names in a directory, sorted; empty when there is no such directory."""
        ...

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents; no error when it exists."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Replace `target` by `source`, atomically. Durable after `sync_directory`."""
        ...

    async def replace_file(self, path: str, content: bytes) -> None:
        """Return once a file durably holds these bytes and no others; a power cut before that leaves those it had, or
        these. Written aside (`ASIDE`), synced, renamed, and the directory synced. Of one path one at a time. Raises
        `OSError`."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file. Durable after `sync_directory`."""
        ...

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    async def sync_directory(self, path: str) -> None:
        """Return once the names in this directory are durable."""
        ...

    def lock(self, path: str) -> None:
        """Take the exclusive lock `path` while this process lives. Raises `BlockingIOError` when another holds it."""
        ...

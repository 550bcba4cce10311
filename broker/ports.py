"""The interface through which the broker uses a disk.

Time, timers and connections come from the running asyncio loop, randomness from an injected `random.Random`. Together
with `Disk` these are all of the broker's I/O. The real disk (`broker.disk`) and the simulation implement it.

The interface defines what survives a power loss: bytes are durable once `sync` of their file has returned, and a name
(of a created, renamed or removed file) once `sync_directory` of its directory has returned. Nothing else is.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview

ASIDE = ".tmp"
"""Suffix of the temporary file to which the new content of a replaced file is written."""


def parent(path: str) -> str:
    """The directory of a path, `""` for the disk's root."""
    return path.rpartition("/")[0]


class File(Protocol):
    """An open file. Offsets and sizes are in bytes. Disk errors are raised as `OSError`."""

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
        and for a closed file. Syncs of the metadata quorum never wait for those of partitions.
        `in_background`: syncs of other files do not wait for this one, which may take seconds."""
        ...

    async def sync_again(self, start: int) -> None:
        """`sync` for bytes from `start` on that another process wrote: they are rewritten first. If a sync of that
        process failed, the kernel regards them as clean, and would not write them. The file must not change
        meanwhile."""
        ...

    def send_to(self, transport: asyncio.WriteTransport, offset: int, length: int) -> int:
        """Send up to `length` bytes from `offset` to a connection without copying. Returns how many were taken.

        Raises `BlockingIOError` when the connection takes none now: try again when it is writable.
        """
        ...

    def close(self) -> None:
        """Close the file. This makes nothing durable."""
        ...


class Disk(Protocol):
    """A directory tree. Paths are relative to the disk's root, with `/` between their parts."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and appending. Raises `FileNotFoundError` for a missing file unless `create`."""
        ...

    def exists(self, path: str) -> bool: ...

    def list(self, directory: str) -> list[str]:
        """The names in a directory, sorted; empty without this directory."""
        ...

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents; no error when it exists."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Replace `target` by `source`, atomically. Durable after `sync_directory`."""
        ...

    async def replace_file(self, path: str, content: bytes) -> None:
        """Return once the file durably has exactly this content; after an earlier power loss it has the old content or
        the new one. Writes a temporary file (`ASIDE`), syncs and renames it, and syncs the directory. Only one call per
        path at a time. Raises `OSError`."""
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

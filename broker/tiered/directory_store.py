"""An object store in a directory of this machine, which the brokers of a cluster share.

An object is written to a file of another name, synced and renamed. So a name without `UNFINISHED` at its end always is
a whole object. File operations run in threads, because the directory may be on a slow network file system.

Invariant: when `put` returns, the object's bytes, its name, and the names of all directories above it are on disk. The
name costs one sync of its directory. The directories above are synced only if their names have changed since this
process last synced them: another broker may have created a directory, or removed it and created it again, and may have
died before it was durable. A directory's modification time shows that.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import BinaryIO, Final, TypeVar
from uuid import uuid4

from broker.tiered.object_store import MISSING, ObjectMissingError, StoredObject, StoreError

UNFINISHED: Final = ".unfinished"
"""Suffix of the files of objects that are being written, or whose writer died."""

SETTLED_S: Final = 1.0
"""The age from which a directory's modification time is trusted: two changes within the resolution of a file system's
clock have the same time."""

T = TypeVar("T")


class DirectoryStore:
    """Objects are files below `root`, with their names as relative paths. The directory must exist: a missing mount
    must not look like an empty store."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)
        self._synced: dict[Path, int] = {}
        """The modification time (ns) of each directory above those of objects, when its names were synced."""

    async def put(self, name: str, chunks: AsyncIterator[bytes]) -> None:
        path = self._path(name)
        unfinished = path.with_name(f"{path.name}.{uuid4().hex}{UNFINISHED}")
        file = await _in_thread(self._create, unfinished)
        try:
            try:
                async for chunk in chunks:
                    await _in_thread(file.write, chunk)
                await _in_thread(_sync, file)
            finally:
                file.close()
            await _in_thread(self._finish, unfinished, path)
        except BaseException:
            with contextlib.suppress(OSError):
                unfinished.unlink()
            raise

    async def get(self, name: str, start: int, length: int) -> bytes:
        return await _in_thread(_read, self._path(name), start, length)

    async def list(self, prefix: str) -> Sequence[StoredObject]:
        return await _in_thread(self._listed, prefix)

    async def delete(self, name: str) -> None:
        await _in_thread(self._delete, self._path(name))

    async def close(self) -> None:
        """There is nothing to release."""

    def _path(self, name: str) -> Path:
        parts = name.split("/")
        if not all(parts) or {".", ".."} & set(parts):
            raise ValueError(f"{name!r} is not the name of an object")
        return self._root.joinpath(*parts)

    def _create(self, path: Path) -> BinaryIO:
        self._require_root()
        path.parent.mkdir(parents=True, exist_ok=True)
        return open(path, "xb", buffering=0)

    def _finish(self, unfinished: Path, path: Path) -> None:
        os.rename(unfinished, path)
        _sync_directory(path.parent)
        for directory in path.parent.parents if path.parent != self._root else ():
            self._sync_changed_names(directory)
            if directory == self._root:
                break

    def _sync_changed_names(self, directory: Path) -> None:
        changed_ns = directory.stat().st_mtime_ns
        if self._synced.get(directory) == changed_ns:
            return
        _sync_directory(directory)
        if time.time_ns() - changed_ns > SETTLED_S * 1e9:
            self._synced[directory] = changed_ns

    def _listed(self, prefix: str) -> Sequence[StoredObject]:
        self._require_root()
        found = []
        start = self._root / prefix.rpartition("/")[0]
        for directory, _, files in os.walk(start, onerror=_raise):
            for each in files:
                path = Path(directory) / each
                name = path.relative_to(self._root).as_posix()
                if name.startswith(prefix):
                    with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                        found.append(StoredObject(name, path.stat().st_size))
        return sorted(found)

    def _delete(self, path: Path) -> None:
        self._require_root()
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # another object is in it, or another broker removes it too
            for directory in path.parents:
                if directory == self._root:
                    break
                directory.rmdir()

    def _require_root(self) -> None:
        if not self._root.is_dir():
            raise FileNotFoundError(2, "the directory does not exist", str(self._root))


async def _in_thread(work: Callable[..., T], *arguments: object) -> T:
    """Run a file operation in a thread. Raises `StoreError`."""
    try:
        return await asyncio.to_thread(work, *arguments)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise StoreError(f"{error.filename or 'the store'}: {reason}", kind=reason) from error


def _sync(file: BinaryIO) -> None:
    os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(path: Path, start: int, length: int) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            file.seek(start)
            return file.read(length)
    except FileNotFoundError:
        raise ObjectMissingError(f"{path}: {MISSING}", kind=MISSING) from None


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error

"""Reads files that another process may have put there: only regular files, and never one that could block. Replaces
files atomically.

Opening a named pipe blocks until a writer opens it, a device may have no end, and opening a device may change it.
Therefore evidence is opened without blocking, and the open file is examined before the first byte is read: a descriptor
cannot be exchanged afterwards, a name can. Every reader of evidence uses this module, including Spark's workers
(`tests/house/test_evidence_readers.py` enforces this).
"""

import errno
import hashlib
import io
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

KINDS: Final = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFLNK: "a symbolic link",
}
"""The other types that a directory entry may have."""


class NotAFileError(OSError):
    """The file with this name is not a regular one; `strerror` says what it is."""


def open_regular(path: Path | str) -> io.FileIO:
    """A regular file, unbuffered, opened for reading. Raises NotAFileError for anything else that has the name, and
    OSError as `open` does."""
    _require_regular(path, os.stat(path).st_mode)  # before open(): opening a device may have an effect
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        _require_regular(path, os.fstat(descriptor).st_mode)
        return io.FileIO(descriptor)
    except BaseException:
        os.close(descriptor)
        raise


def read_bytes(path: Path | str) -> bytes:
    """The content of a regular file. Raises as `open_regular`."""
    with open_regular(path) as file:
        return file.read()


def read_text(path: Path | str) -> str:
    """The content of a regular file in UTF-8. Raises as `open_regular`, and UnicodeDecodeError."""
    return read_bytes(path).decode("utf-8")


def sha256_of(path: Path | str) -> str:
    """The SHA-256 of a regular file's content, in hexadecimal digits. Raises as `open_regular`."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def size_and_digest(path: Path | str) -> dict[str, Any]:
    """The size of a regular file in `bytes` and its `sha256`, as the journal lists it. Raises as `open_regular`."""
    return {"bytes": os.stat(path).st_size, "sha256": sha256_of(path)}


def require_regular(path: Path | str) -> Path | str:
    """The path, for a library that opens files itself. Raises as `open_regular`."""
    open_regular(path).close()
    return path


def remove(path: Path) -> None:
    """Remove whatever has this name, if it exists. Raises OSError."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def draft_of(path: Path) -> Path:
    """The draft through which `replace_text` writes a file. Raises IsADirectoryError for a path without a name."""
    if not path.name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    return path.with_name(f"{path.name}.tmp")


def replace_text(path: Path, text: str) -> None:
    """Write a file in UTF-8, atomically: a reader sees the old content or the new one. Bytes of a file name that
    are not text appear as escapes.

    The draft is a new file: anything with its name, such as a pipe or a link, is removed first. Raises OSError, also if
    a directory has its name; no draft is left then, which would take space on a full disk."""
    draft = draft_of(path)
    draft.unlink(missing_ok=True)
    try:
        with open(draft, "x", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        os.replace(draft, path)
    except OSError:
        with suppress(OSError):
            draft.unlink()
        raise


def _require_regular(path: Path | str, mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = KINDS.get(stat.S_IFMT(mode), "no regular file")
        number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise NotAFileError(number, f"it is {kind}, not a file", str(path))

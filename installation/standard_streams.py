"""Makes the standard streams safe: they exist, accept every character, and survive the end of their reader.

Three properties of the environment must not affect how a command ends:

- The locale. Files are UTF-8 wherever they are read or written, but Python uses the locale's encoding for file names,
  arguments and the output of processes, and Java and Ansible do the same or fail. Under a locale with another encoding
  the interpreter is replaced by one that uses UTF-8, as do all processes that it starts. Output stays in the encoding
  of the user's terminal; characters that it cannot show are escaped.
- A closed stream (`>&-`). The next opened file would get its descriptor, and a child's output would go into it. The
  null device replaces such a stream.
- A reader that has ended (`| head -1`). A campaign continues, and its exit code is its result; further output is
  discarded.

Standard error has no `BufferedWriter`: that class raises RuntimeError when a signal handler writes while the
interrupted code writes, and the handlers of Ctrl-C and SIGTERM do write.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_UTF8_LOCALE = "C.UTF-8"
_ENCODING = "BROWNOUT_OUTPUT_ENCODING"
_READER_HAS_GONE = (errno.EPIPE, errno.EIO)


def prepare() -> None:
    """Make the streams of this process safe; call it once, before anything else. Under a locale that is not UTF-8 this
    process is replaced by one with the same arguments, and the function does not return."""
    _fill_gaps()
    encoding = os.environ.get(_ENCODING)  # kept in the environment for the process that replaces this one in a sandbox
    if sys.getfilesystemencoding() != "utf-8" and not sys.flags.utf8_mode:
        _become_utf8()
    sys.stdout = _safe(1, sys.stdout, encoding)
    sys.stderr = _safe(2, sys.stderr, encoding)


def discard() -> None:
    """Discard further output and unwritten buffers: for a stream that accepts nothing, such as a full disk."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def _fill_gaps() -> None:
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor, which is this one
            os.set_inheritable(opened, True)


def _become_utf8() -> None:
    encoding = sys.stdout.encoding if sys.stdout is not None else sys.getfilesystemencoding()
    changed = {"PYTHONUTF8": "1", "LC_ALL": _UTF8_LOCALE, _ENCODING: encoding}
    os.execve(sys.executable, _command(sys.executable, sys.orig_argv), {**os.environ, **changed})


def _command(executable: str, arguments: Sequence[str]) -> list[str]:
    return [executable, "-X", "utf8", *arguments[1:]]  # also works if options make Python ignore its environment


def _safe(number: int, stream: TextIO | None, encoding: str | None) -> TextIO:
    if stream is not None:
        stream.flush()
    descriptor = _Descriptor(number)
    return io.TextIOWrapper(
        descriptor if number == 2 else io.BufferedWriter(descriptor),
        encoding=encoding or (stream.encoding if stream is not None else "utf-8"),
        errors="backslashreplace",
        line_buffering=number == 2 or os.isatty(number),
    )


class _Descriptor(io.RawIOBase):
    """A descriptor that is written to until its reader has ended; then everything is discarded."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._discards = False
        self.name = ("<stdin>", "<stdout>", "<stderr>")[number]

    def fileno(self) -> int:
        return self._number

    def isatty(self) -> bool:
        return os.isatty(self._number)

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        """Write all of `data`, since a text stream does not repeat a short write."""
        rest = memoryview(data).cast("B")
        size = rest.nbytes
        while rest and not self._discards:
            rest = rest[self._written(rest) :]
        return size

    def _written(self, data: memoryview) -> int:
        try:
            return os.write(self._number, data)
        except BlockingIOError:  # another program has made the shared terminal non-blocking
            select.select([], [self._number], [])
        except OSError as error:
            if self._number != 2 and error.errno not in _READER_HAS_GONE:
                raise  # an error of standard error itself cannot be reported anywhere
            self._discards = True
        return 0

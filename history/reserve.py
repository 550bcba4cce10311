"""Reserves disk space after the end of a file, for this file only.

The journal must be able to record that the disk is full. `fallocate` with FALLOC_FL_KEEP_SIZE gives a file blocks after
its end without changing its size; a later write there needs no free space. No other process can take them.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from typing import Final

_KEEP_SIZE: Final = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Reserve:
    """Keeps space for one open file that only grows. `size`: bytes; they are reserved again whenever half are used.

    `is_short`: the last reservation failed for lack of space. A filesystem without reservation is not short: the file
    continues without it.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self._size = size
        self._kept_to = 0
        self.is_short = False

    def before_write(self, end: int) -> None:
        """Reserve space when less than half of it is left after `end`, the file's end after the next write."""
        if end + self._size // 2 > self._kept_to:
            self._keep(end)

    def release(self) -> None:
        """Give back what is reserved after the file's end."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size)

    def _keep(self, end: int) -> None:
        to = end + self._size
        done = _libc.fallocate(self._descriptor, _KEEP_SIZE, ctypes.c_long(0), ctypes.c_long(to)) == 0
        self.is_short = not done and ctypes.get_errno() in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        if done or not self.is_short:
            self._kept_to = to

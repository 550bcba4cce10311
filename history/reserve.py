"""Disk space behind the end of a file that only this file can use.

The journal must be able to say that the disk is full. `fallocate` with FALLOC_FL_KEEP_SIZE gives a file blocks behind
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
    """Keeps space for one open file that only grows. `size`: the bytes that are kept anew whenever half are used.

    `is_short`: the last attempt to keep space failed because there was none. A filesystem that cannot keep space is
    not short: there the file goes on without.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self._size = size
        self._kept_to = 0
        self.is_short = False

    def before_write(self, end: int) -> None:
        """Keep space when less than half of it is left behind `end`, the file's end after the next write."""
        if end + self._size // 2 > self._kept_to:
            self._keep(end)

    def release(self) -> None:
        """Give back what is behind the file's end."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size)

    def _keep(self, end: int) -> None:
        to = end + self._size
        done = _libc.fallocate(self._descriptor, _KEEP_SIZE, ctypes.c_long(0), ctypes.c_long(to)) == 0
        self.is_short = not done and ctypes.get_errno() in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        if done or not self.is_short:
            self._kept_to = to

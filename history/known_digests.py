"""The SHA-256 of files that were hashed before in this process, without reading them again if they are unchanged.

A campaign's documents are renewed after each of its runs, and each renewal examines the evidence of all runs. A file is
unchanged if its device, inode, size, mtime and ctime are. Nothing but the kernel sets a ctime, so a file cannot be
changed and made to look unchanged. The kernel's clock has steps of some milliseconds: a file that changed within the
last seconds could change again without a new ctime, so its digest is not kept. Neither is one with a ctime in the
future, and one of a file that changed while it was read.
"""

import os
import time
from typing import Final

from history.regular_files import sha256_of

SETTLED_NS: Final = 2_000_000_000
"""How long a file must not have changed before its digest is kept."""
MOST: Final = 1 << 17
"""Digests that are kept: 40 MB of memory."""

_State = tuple[int, int, int, int, int]
_digests: dict[str, tuple[_State, str]] = {}


def digest_of(path: str) -> str:
    """As `history.regular_files.sha256_of`."""
    state = _state(path)
    known_digest = _digests.get(path)
    if known_digest is not None and known_digest[0] == state:
        return known_digest[1]
    digest = sha256_of(path)
    _digests.pop(path, None)
    if time.time_ns() - state[-1] > SETTLED_NS and _state(path) == state:
        if len(_digests) >= MOST:
            _digests.clear()
        _digests[path] = state, digest
    return digest


def _state(path: str) -> _State:
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns

"""Identifies the version of the analysis: a digest of its source code."""

import functools
import hashlib
import socket
from pathlib import Path
from typing import Final

_ROOMS: Final = ("analysis", "history")
_ROOT: Final = Path(__file__).resolve().parents[1]


@functools.cache
def revision() -> str:
    """The digest; equal for a checkout and an installation of the same code. A verdict with another one is
    recomputed."""
    digest = hashlib.sha256()
    for room in _ROOMS:
        for path in sorted((_ROOT / room).rglob("[!.]*.py")):
            digest.update(f"{path.relative_to(_ROOT).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


class OtherCodeError(RuntimeError):
    """A worker has other code of the analysis than the driver."""


def require_revision(expected: str) -> None:
    """Raise `OtherCodeError` unless this process, a worker's, has the driver's code. A worker may join at any time."""
    if revision() != expected:
        raise OtherCodeError(
            f"the worker at {socket.gethostname()} has other code of the analysis ({revision()}, the driver {expected})"
        )

"""Which analysis made a verdict: a digest of the code that judges."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import Final

_ROOMS: Final = ("analysis", "history")
_ROOT: Final = Path(__file__).resolve().parents[1]


@functools.cache
def revision() -> str:
    """The same for the same code, in a checkout and installed. Verdicts of another one are made anew, not believed."""
    digest = hashlib.sha256()
    for room in _ROOMS:
        for path in sorted((_ROOT / room).rglob("[!.]*.py")):
            digest.update(f"{path.relative_to(_ROOT).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]

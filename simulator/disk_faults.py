"""What is wrong with a simulated disk at the moment, and how often that was met."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass

from history.damage import Damage


def _unheard(_: Damage) -> None:
    """Nothing listens."""


@dataclass
class DamageListener:
    """What is called when a fault damages a disk: `before` the disk changes, and `after`."""

    before: Callable[[Damage], None] = _unheard
    after: Callable[[Damage], None] = _unheard


@dataclass
class DiskFaults:
    """`failing`: syncs fail with EIO, and what they should have written is forgotten ("fsyncgate"). `free_bytes`: how
    much more may be written before ENOSPC; None: as much as anybody wants. `slow_s`: how much longer each sync takes.
    `hung`: no sync returns. The counts are of what has met this since the disk was made."""

    failing: bool = False
    free_bytes: int | None = None
    slow_s: float = 0.0
    hung: bool = False
    failed_syncs: int = 0
    refused_writes: int = 0

    def take(self, size: int, path: str) -> None:
        """Use up space. Raises `OSError` where there is not so much."""
        if self.free_bytes is None:
            return
        if size > self.free_bytes:
            self.refused_writes += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        self.free_bytes -= size


@dataclass(frozen=True)
class Flip:
    """One bit that is another on the disk than was written."""

    path: str
    at: int
    bit: int

    def __str__(self) -> str:
        return f"bit {self.bit} of byte {self.at} of {self.path}"

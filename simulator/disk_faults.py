"""The current faults of a simulated disk, and how often operations met them."""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass

from history.damage import Damage


def _unheard(_: Damage) -> None:
    """Nothing listens."""


@dataclass
class DamageListener:
    """Callbacks around damage to a disk: `before` the disk changes, and `after`."""

    before: Callable[[Damage], None] = _unheard
    after: Callable[[Damage], None] = _unheard


@dataclass
class DiskFaults:
    """`failing`: syncs fail with EIO, and their data is forgotten ("fsyncgate"). `free_bytes`: how much more can be
    written before ENOSPC; None: unlimited. `slow_s`: the delay of each sync. `hung`: syncs do not return. The counts
    are of operations that met these faults since the disk was created."""

    failing: bool = False
    free_bytes: int | None = None
    slow_s: float = 0.0
    hung: bool = False
    failed_syncs: int = 0
    refused_writes: int = 0

    def take(self, size: int, path: str) -> None:
        """Use up space. Raises `OSError` if there is not enough."""
        if self.free_bytes is None:
            return
        if size > self.free_bytes:
            self.refused_writes += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        self.free_bytes -= size


@dataclass(frozen=True)
class Flip:
    """One flipped bit of a file on the disk."""

    path: str
    at: int
    bit: int

    def __str__(self) -> str:
        return f"bit {self.bit} of byte {self.at} of {self.path}"

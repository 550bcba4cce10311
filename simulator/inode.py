"""One file of a simulated disk: what its processes see, and what of that is durable."""

from __future__ import annotations

import random
from collections.abc import Sequence
from enum import Enum

from broker.ports import Buffer

PAGE = 4096


class Tear(Enum):
    """What has become of bytes that were appended but not synced when the journal was committed."""

    LOST = "lost"
    PREFIX = "a clean prefix, whole pages"
    HOLE = "a hole of zeros, then data"
    ZEROS = "zeros to the end of the file"
    RECORD = "a prefix that ends anywhere"
    COMPLETE = "complete"


# As counted in 150 power cuts of ext4, plus the most frequent one: nothing was written back.
WEIGHTS = {Tear.LOST: 75, Tear.PREFIX: 51, Tear.HOLE: 46, Tear.ZEROS: 17, Tear.RECORD: 14, Tear.COMPLETE: 22}


def choose_tear(rng: random.Random) -> Tear:
    """One way to tear, as often as it was observed."""
    (tear,) = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))
    return tear


class Inode:
    """A file's bytes in the page cache (`data`), and enough to tell what they are after a power cut.

    What is durable is `_image`, or, as long as that says the same, the first `_durable` bytes of `data`. Its first
    `_kept` bytes are still the file's; behind them the file was cut, which becomes durable with the next commit.
    """

    def __init__(self) -> None:
        self.data = bytearray()
        self.allocate_on_commit = False
        """Whether the kernel writes all bytes out before the next commit."""
        self._image: bytes | None = None
        self._durable = 0
        self._kept = 0
        self._extended = 0  # a size that was set and not filled by a sync
        self._torn: bytes | None = None
        self._sync_image: bytes | None = None
        self._sync_size = -1  # -1: no sync is under way
        self._sync_kept = 0

    @property
    def durable(self) -> bytes:
        """What a power cut would leave of it for certain."""
        return bytes(self.data[: self._durable]) if self._image is None else self._image

    @property
    def durable_size(self) -> int:
        """How many of its first bytes, as they are now, a power cut would leave for certain."""
        return self._kept

    def append(self, buffers: Sequence[Buffer]) -> int:
        for buffer in buffers:
            self.data += buffer
        return len(self.data)

    def truncate(self, length: int) -> None:
        if length > len(self.data):
            self.data += bytes(length - len(self.data))
            self._extended = length
            return
        if length < self._sync_kept and self._sync_size >= 0:
            if self._sync_image is None:
                self._sync_image = bytes(self.data[: self._sync_size])
            self._sync_kept = length
        if length < self._kept:
            if self._image is None:
                self._image = bytes(self.data[: self._durable])
            self._kept = length
        self._extended = min(self._extended, length)
        del self.data[length:]

    # --- syncs

    def begin_sync(self) -> None:
        """What is written from now on is not part of the sync."""
        self._sync_size = self._sync_kept = len(self.data)
        self._sync_image = None

    def finish_sync(self) -> None:
        """The content of the moment when the sync began is durable; a cut in the meantime is not, yet."""
        self._image = self._sync_image
        self._durable = self._sync_size
        self._kept = self._sync_kept
        if self._extended <= self._sync_size:
            self._extended = 0
        if self._image is None and len(self.data) == self._durable:
            self.allocate_on_commit = False
        self.fail_sync()

    def fail_sync(self) -> None:
        """The kernel reports the error once and forgets the pages ("fsyncgate"); a later sync would succeed."""
        self._sync_size, self._sync_image = -1, None

    # --- the journal

    def commit(self) -> None:
        """Cuts and sizes become durable; bytes only where the kernel has written them."""
        if self.allocate_on_commit:
            self._make_durable()
        elif self._torn is not None:
            self._image, self._durable = self._torn, len(self._torn)
        elif self._image is not None or self._extended > self._kept:
            # Where a size was set without a sync, zeros are what is there.
            self._image = bytes(self.data[: self._kept]) + bytes(max(0, self._extended - self._kept))
            self._durable = len(self._image)

    def write_back(self, tear: Tear, rng: random.Random) -> None:
        """The power is about to go, and the kernel has written some of the dirty bytes: a commit keeps them."""
        start, end = self._kept, len(self.data)
        if start >= end or tear is Tear.LOST:
            return
        tail = bytearray(self.data[start:])
        if tear is Tear.PREFIX:
            pages = range(PAGE * (start // PAGE + 1), end, PAGE)
            tail = tail[: (rng.choice(pages) if pages else start) - start]
        elif tear is Tear.HOLE:
            first = rng.randrange(len(tail))
            behind = rng.randint(first + 1, len(tail))
            tail[first:behind] = bytes(behind - first)
        elif tear is Tear.ZEROS:
            first = rng.randrange(len(tail))
            tail[first:] = bytes(len(tail) - first)
        elif tear is Tear.RECORD:
            tail = tail[: rng.randrange(len(tail))]
        self._torn = bytes(self.data[:start] + tail)

    def revert(self) -> None:
        """After a power cut the page cache is empty: the file is what was durable."""
        if self._image is not None:
            self.data = bytearray(self._image)
        else:
            del self.data[self._durable :]
        self._make_durable()
        self.fail_sync()

    def _make_durable(self) -> None:
        self._image = self._torn = None
        self._durable = self._kept = len(self.data)
        self._extended = 0
        self.allocate_on_commit = False

"""One file of a simulated disk: its content in the page cache, and the durable part of it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from enum import Enum

from broker.ports import Buffer

PAGE = 4096
NOWHERE = 1 << 62


class Tear(Enum):
    """The form of appended, unsynced bytes after a commit of the journal."""

    LOST = "lost"
    PREFIX = "a clean prefix, whole pages"
    HOLE = "a hole of zeros, then data"
    ZEROS = "zeros to the end of the file"
    RECORD = "a prefix that ends anywhere"
    COMPLETE = "complete"


# Frequencies counted in 150 power cuts of ext4; the most frequent result, nothing written back, is separate.
WEIGHTS = {Tear.LOST: 75, Tear.PREFIX: 51, Tear.HOLE: 46, Tear.ZEROS: 17, Tear.RECORD: 14, Tear.COMPLETE: 22}


def choose_tear(rng: random.Random) -> Tear:
    """A random form of tearing, with the observed frequencies."""
    (tear,) = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))
    return tear


class Inode:
    """A file's bytes in the page cache (`data`), and the information that determines them after a power cut.

    The durable content is `_image`, or, while it is the same, the first `_durable` bytes of `data` and zeros up to
    `_zeros_to`. Its first `_kept` bytes still belong to the file; beyond them the file was truncated, which becomes
    durable with the next commit.
    """

    def __init__(self) -> None:
        self.data = bytearray()
        self.allocate_on_commit = False
        """Whether the kernel writes all bytes before the next commit."""
        self._image: bytes | None = None
        self._durable = 0
        self._kept = 0
        self._zeros_to = 0
        self._cut_block = -1  # the block of the last truncation: it is written before that is committed
        self._extended = 0  # a size that was set and not yet filled by a sync
        self._torn: bytes | None = None
        self._sync_image: bytes | None = None
        self._sync_size = -1  # -1: no sync is in progress
        self._sync_kept = 0
        self._forgotten: list[
            tuple[int, int]
        ] = []  # ranges that the kernel considers clean, and that are not on the disk
        self._rewritten = self._sync_rewritten = (
            NOWHERE  # from here on everything is dirty again, or being synced again
        )

    @classmethod
    def holding(cls, data: bytes) -> Inode:
        """A file that is on the disk with all its bytes."""
        inode = cls()
        inode.data += data
        inode._make_durable()
        return inode

    @property
    def durable(self) -> bytes:
        """The content that is certain to remain after a power cut."""
        if self._image is not None:
            return self._image
        return bytes(self.data[: self._durable]) + bytes(max(0, self._zeros_to - self._durable))

    @property
    def durable_size(self) -> int:
        """How many of its first bytes, in their current form, are certain to remain after a power cut."""
        return min([self._kept, *(start for start, _ in self._forgotten)])

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
                self._sync_image = self._without_forgotten(self.data[: self._sync_size], self._sync_rewritten)
            self._sync_kept = length
        if length < self._kept:
            if self._image is None:
                self._image = self.durable
            self._kept = length
            self._cut_block = length // PAGE if length % PAGE else -1
        self._extended = min(self._extended, length)
        self._forgotten = [(start, min(end, length)) for start, end in self._forgotten if start < length]
        del self.data[length:]

    # --- syncs

    def begin_sync(self) -> None:
        """Start a sync: later writes are not part of it."""
        self._sync_size = self._sync_kept = len(self.data)
        self._sync_image = None
        self._sync_rewritten, self._rewritten = self._rewritten, NOWHERE

    def finish_sync(self) -> None:
        """The content at the start of the sync becomes durable; a truncation since then does not, yet."""
        again = self._sync_rewritten
        self._forgotten = [(start, min(end, again)) for start, end in self._forgotten if start < again]
        self._image = self._sync_image
        if self._forgotten:
            image = self.data[: self._sync_size] if self._image is None else self._image
            self._image = self._without_forgotten(image)
        self._durable = self._sync_size
        self._kept = self._sync_kept
        self._zeros_to, self._torn = 0, None
        was_cut = self._sync_image is not None and self._sync_kept % PAGE
        self._cut_block = self._sync_kept // PAGE if was_cut else -1
        if self._extended <= self._sync_size:
            self._extended = 0
        if self._image is None and len(self.data) == self._durable:
            self.allocate_on_commit = False
        self.fail_sync()

    def fail_sync(self) -> None:
        """The sync in progress has no effect."""
        self._sync_size, self._sync_image = -1, None

    def forget_sync(self) -> None:
        """The kernel reports the error once and considers the pages clean ("fsyncgate"): a later sync succeeds, but the
        data of this one is not on the disk."""
        if self._sync_kept > self._kept:
            self._forgotten.append((self._kept, self._sync_kept))
        self.fail_sync()

    def write_again(self, start: int) -> None:
        """Write the bytes from `start` on again, unchanged: the kernel knows that they are not on the disk, and the
        next sync writes them unless it fails as well."""
        self._rewritten = min(self._rewritten, start)

    def flip(self, at: int, bit: int) -> None:
        """Flip a bit, on the disk and therefore in later reads."""
        self.data[at] ^= 1 << bit
        if self._image is not None and at < len(self._image):
            image = bytearray(self._image)
            image[at] ^= 1 << bit
            self._image = bytes(image)

    def _without_forgotten(self, content: bytes | bytearray, again: int = NOWHERE) -> bytes:
        """The form of this content on the disk, with zeros in place of forgotten pages. From `again` on the bytes have
        been written again."""
        written = bytearray(content)
        for start, end in self._forgotten:
            end = min(end, again, len(written))
            written[start:end] = bytes(max(0, end - start))
        return bytes(written)

    # --- the journal

    def commit(self, *, sizes_first: bool = False) -> None:
        """Truncations and sizes become durable; bytes only if the kernel has written them. `sizes_first`: as on ext4,
        bytes appended to an existing block count for the file's size before they are written, as zeros; except in the
        block of a truncation, which is written first."""
        grown_to = self._extended
        if sizes_first and self._kept % PAGE and len(self.data) > self._kept:
            grown_to = max(grown_to, min(len(self.data), self._kept + PAGE - self._kept % PAGE))
        if self.allocate_on_commit:
            self._make_durable()
            if self._forgotten:  # clean pages are never written
                self._image = self._without_forgotten(self.data)
        elif sizes_first and self._kept // PAGE == self._cut_block and grown_to > self._kept and not self._forgotten:
            self._image, self._cut_block, self._zeros_to = None, -1, 0
            self._durable = self._kept = grown_to
        elif self._torn is not None:
            self._image, self._durable = self._without_forgotten(self._torn), len(self._torn)
        elif self._image is not None:
            # A size that was set without a sync reads as zeros.
            written = bytes(self.data[: self._kept]) + bytes(max(0, grown_to - self._kept))
            self._image = self._without_forgotten(written)
            self._durable = len(self._image)
        elif grown_to > self._kept:
            self._zeros_to = grown_to

    def write_range(self, start: int, end: int) -> None:
        """The kernel writes these bytes, on its own or on request (`sync_file_range`): the next commit includes them,
        with zeros for unwritten bytes before them."""
        written = bytearray(self.data[: self._kept] if self._torn is None else self._torn)
        start, end = max(start, self._kept), min(end, len(self.data))
        if start < end:
            written += bytes(max(0, end - len(written)))
            written[start:end] = self.data[start:end]
            self._torn = bytes(written)

    def write_back(self, tear: Tear, rng: random.Random) -> None:
        """The kernel writes some of the dirty bytes just before a power cut; a commit includes them."""
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
        """After a power cut the page cache is empty: the file has its durable content."""
        if self._image is not None:
            self.data = bytearray(self._image)
        else:
            del self.data[self._durable :]
            self.data += bytes(max(0, self._zeros_to - self._durable))
        self._forgotten.clear()
        self._rewritten = NOWHERE
        self._make_durable()
        self.fail_sync()

    def _make_durable(self) -> None:
        self._image = self._torn = None
        self._durable = self._kept = len(self.data)
        self._extended = self._zeros_to = 0
        self._cut_block = -1
        self.allocate_on_commit = False

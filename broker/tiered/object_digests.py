"""Digests of a segment's objects: what binds the bytes in the store to the segment in the metadata. Pure.

Theory of operation. An object is found by its name, and a name proves nothing: a restored backup, a copy between
buckets or a defect of the store may have put another object there, also one that is valid in itself. So the metadata
state the size and the SHA-256 of each object (Kafka's custom metadata of a remote segment, KIP-405), and nothing of an
object is used before it was compared with them.

A reader of records needs a few chunks of a large `.log` object, and a SHA-256 can only be compared with the whole. So
the `.index` object, which is small and read whole, also has the CRC-32C of each block of the `.log` object. The chain
is metadata - SHA-256 - index - CRC-32C - block. A CRC detects accidents: another object passes with a probability of
2^-32 for each block. It does not detect a forged object; the SHA-256 of the `.log` object does, which the
analysis of a run compares. A CRC-32C is read from memory at 16 GB/s here, a SHA-256 at 1.7 GB/s, remote records at
0.8 GB/s: the latter would cost a third of the rate.
"""

from hashlib import sha256
from typing import Final, NamedTuple

from crc32c import crc32c

from broker.tiered.object_store import StoreError

BLOCK_BYTES: Final = 64 << 10
"""Bytes of a block of a `.log` object; the last one may be shorter."""
DIFFERENT: Final = "the object is not that of the metadata"
"""The kind of failure of an object that the store has, and that is another one."""


class ObjectDifferentError(StoreError):
    """The store has an object of this name that is not the one in the metadata."""

    def __init__(self, name: str, difference: str) -> None:
        super().__init__(f"{name}: {DIFFERENT}: {difference}", kind=DIFFERENT)
        self.difference = difference


class ObjectDigest(NamedTuple):
    """One object of a segment. `size`: bytes. `sha256`: 64 hexadecimal digits."""

    suffix: str
    size: int
    sha256: str

    @classmethod
    def of(cls, suffix: str, data: bytes) -> "ObjectDigest":
        """The digest of a whole object."""
        return cls(suffix, len(data), sha256(data).hexdigest())

    def check(self, name: str, data: bytes) -> None:
        """Raises `ObjectDifferentError` unless `data` is the whole object."""
        if len(data) != self.size:
            raise ObjectDifferentError(name, f"it has {len(data)} bytes instead of {self.size}")
        digest = sha256(data).hexdigest()
        if digest != self.sha256:
            raise ObjectDifferentError(name, f"its SHA-256 is {digest} instead of {self.sha256}")


class LogDigest:
    """Digests of a `.log` object that is made chunk by chunk."""

    def __init__(self, block_bytes: int = BLOCK_BYTES) -> None:
        self._block_bytes = block_bytes
        self._whole = sha256()
        self._size = 0
        self.block_sums: list[int] = []
        """The CRC-32C of each block; the last one grows."""

    def add(self, chunk: bytes) -> None:
        """Continue with the next bytes."""
        self._whole.update(chunk)
        view, position = memoryview(chunk), 0
        while position < len(chunk):
            within = self._size % self._block_bytes
            if not within:
                self.block_sums.append(0)
            part = view[position : position + self._block_bytes - within]
            self.block_sums[-1] = crc32c(part, self.block_sums[-1])
            position, self._size = position + len(part), self._size + len(part)

    def digest(self, suffix: str) -> ObjectDigest:
        """The digest of all chunks so far."""
        return ObjectDigest(suffix, self._size, self._whole.hexdigest())

"""The interface through which brokers use an object store. A directory, S3 and the simulation implement it.

The interface defines what survives: an object is durable, and readable as a whole, once `put` has returned. If `put`
raises, or is cancelled, or its process dies, the object may exist, be missing, or be incomplete: its name must not be
used for anything else. Names are never put twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final, NamedTuple, Protocol


class StoreError(Exception):
    """An operation of the store failed. The message has no credentials. It may succeed later. `kind`: what failed, in a
    few words that are the same for every object."""

    def __init__(self, message: str, *, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind or message


MISSING: Final = "the object does not exist"
"""The kind of `ObjectMissingError`."""


class ObjectMissingError(StoreError):
    """The store does not have the object."""


class StoredObject(NamedTuple):
    """An object in a listing. `size` in bytes."""

    name: str
    size: int


class ObjectStore(Protocol):
    """A flat set of immutable objects. Names have `/` between their parts. All methods raise `StoreError`."""

    async def put(self, name: str, chunks: AsyncIterator[bytes]) -> None:
        """Store an object: the concatenation of the chunks. Durable on return."""
        ...

    async def get(self, name: str, start: int, length: int) -> bytes:
        """At most `length` bytes from `start`; shorter at the end of the object. Raises `ObjectMissingError`."""
        ...

    async def list(self, prefix: str) -> Sequence[StoredObject]:
        """The objects whose names start with `prefix`, by name. It may lack objects that were put, and contain objects
        that were deleted, a short time ago."""
        ...

    async def delete(self, name: str) -> None:
        """Remove an object; no error when it does not exist."""
        ...

    async def close(self) -> None:
        """Release connections."""
        ...


async def chunks_of(data: Iterable[bytes]) -> AsyncIterator[bytes]:
    """Chunks in memory, as `ObjectStore.put` takes them."""
    for chunk in data:
        yield chunk

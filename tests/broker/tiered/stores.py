"""The requirements for every object store, as a test of one store."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from broker.tiered.object_store import ObjectMissingError, ObjectStore, chunks_of


async def keeps_the_contract(store: ObjectStore) -> None:
    """Put, read ranges, list by prefix, delete twice."""
    await store.put("c/t/0/one.log", chunks_of([b"abc", b"", b"defgh"]))
    await store.put("c/t/0/two.log", chunks_of([]))
    await store.put("c/t/10/three.log", chunks_of([b"x"]))
    assert await store.get("c/t/0/one.log", 2, 4) == b"cdef"
    assert await store.get("c/t/0/one.log", 6, 100) == b"gh"
    assert await store.get("c/t/0/one.log", 8, 100) == b""
    listed = [tuple(each) for each in await store.list("c/t/0/")]
    assert listed == [("c/t/0/one.log", 8), ("c/t/0/two.log", 0)]
    assert [each.name for each in await store.list("c/t/1")] == ["c/t/10/three.log"]
    assert await store.list("d/") == []
    with pytest.raises(ObjectMissingError):
        await store.get("c/t/0/four.log", 0, 1)
    for _ in range(2):
        await store.delete("c/t/0/one.log")
    assert [each.name for each in await store.list("c/")] == ["c/t/0/two.log", "c/t/10/three.log"]


async def leaves_no_object_of_a_failed_put(store: ObjectStore) -> None:
    """A source that fails, and a caller that is cancelled."""

    async def fails() -> AsyncIterator[bytes]:
        yield b"half"
        raise ValueError("the segment was removed")

    async def hangs() -> AsyncIterator[bytes]:
        yield b"half"
        await asyncio.Event().wait()

    with pytest.raises(ValueError, match="removed"):
        await store.put("c/half.log", fails())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await store.put("c/slow.log", hangs())
    assert await store.list("c/") == []

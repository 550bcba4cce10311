"""An object store whose failures are counted, and reported once per change of their kind, not once per try."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

from broker.tiered.object_store import ObjectMissingError, ObjectStore, StoredObject, StoreError
from broker.trace import Tracer

T = TypeVar("T")
NO_PROGRESS = "no progress"
"""The kind of failure of an operation that takes too long."""


class ReportingStore:
    """Passes operations to `store`. An operation without progress for `timeout_s` has failed.

    `failures`: how many operations failed, by operation and kind of failure. `failing`: the current kind for each
    failing operation. `say` gets a line for the log of the process when the kind changes: the names of objects and
    the durations in a reason differ from try to try.
    """

    def __init__(self, store: ObjectStore, tracer: Tracer, timeout_s: float, say: Callable[[str], None]) -> None:
        self._store = store
        self._tracer = tracer
        self._timeout_s = timeout_s
        self._say = say
        self.failures: Counter[tuple[str, str]] = Counter()
        self.failing: dict[str, str] = {}

    async def put(self, name: str, chunks: AsyncIterator[bytes]) -> None:
        async def work(limit: asyncio.Timeout) -> None:
            await self._store.put(name, self._moving(chunks, limit))

        await self._watched("put", work)

    async def get(self, name: str, start: int, length: int) -> bytes:
        return await self._watched("get", lambda _: self._store.get(name, start, length))

    async def list(self, prefix: str) -> Sequence[StoredObject]:
        return await self._watched("list", lambda _: self._store.list(prefix))

    async def delete(self, name: str) -> None:
        await self._watched("delete", lambda _: self._store.delete(name))

    async def close(self) -> None:
        await self._store.close()

    async def _moving(self, chunks: AsyncIterator[bytes], limit: asyncio.Timeout) -> AsyncIterator[bytes]:
        """The chunks; each that is taken is progress."""
        async for chunk in chunks:
            limit.reschedule(asyncio.get_running_loop().time() + self._timeout_s)
            yield chunk

    async def _watched(self, operation: str, work: Callable[[asyncio.Timeout], Awaitable[T]]) -> T:
        try:
            try:
                async with asyncio.timeout(self._timeout_s) as limit:
                    result = await work(limit)
            except TimeoutError:
                raise StoreError(f"no progress for {self._timeout_s:g} s", kind=NO_PROGRESS) from None
        except ObjectMissingError:
            self._worked(operation)
            raise
        except StoreError as error:
            self._failed(operation, error)
            raise
        self._worked(operation)
        return result

    def _failed(self, operation: str, error: StoreError) -> None:
        self.failures[operation, error.kind] += 1
        if self.failing.get(operation) == error.kind:
            return
        self.failing[operation], reason = error.kind, str(error)
        self._tracer.emit("remote_storage_failed", operation=operation, reason=reason)
        self._say(f"the object store fails ({operation}): {reason}; topics stay available from local segments")

    def _worked(self, operation: str) -> None:
        if self.failing.pop(operation, None) is not None:
            self._tracer.emit("remote_storage_works", operation=operation)
            self._say(f"the object store works again ({operation})")

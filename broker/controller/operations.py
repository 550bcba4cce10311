"""Executes one decision at a time: decide on the committed image, append, wait until applied, answer, then the next.

So every decision sees the effects of all earlier ones. If the outcome of an append is unknown, no further decision is
possible, because the log may hold what the image does not show. The operations end then, and start again in another
term.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, TypeVar

from broker.controller.controller import ControllerDecision
from broker.controller.image import MetadataImage
from broker.errors import AppendRefusedError, CommitUncertainError, ErrorCode, NotLeaderError, ProtocolError
from broker.protocol.messages.metadata_records import encode_record

MAX_QUEUED = 1_000

T = TypeVar("T")
Decide = Callable[[MetadataImage], ControllerDecision[T]]


class QuorumLog(Protocol):
    """The metadata quorum as the controller uses it."""

    async def append(self, records: list[bytes]) -> int:
        """Commit records together; returns the offset of the last. Raises `AppendRefusedError` for records that no
        leader could append, `NotLeaderError` when certainly nothing was written, `CommitUncertainError` when leadership
        was lost before the commit was known."""
        ...

    async def resign(self, epoch: int) -> None:
        """Resign from the leadership of this epoch, if this node still holds it."""
        ...


class _Operation(NamedTuple):
    decide: Decide[Any]
    future: asyncio.Future[Any]


class ControllerOperations:
    """The queue of one term as the active controller.

    Invariant: the leader of the quorum is the controller. When a failed append ends the operations, they also resign
    from `epoch`, the quorum's leadership. Otherwise the cluster would have no controller, and no lease would be
    renewed, while this node continues to lead.
    """

    def __init__(self, image: MetadataImage, quorum: QuorumLog, epoch: int) -> None:
        self._image = image
        self._quorum = quorum
        self._epoch = epoch
        self._loop = asyncio.get_running_loop()
        self._queue: deque[_Operation] = deque()
        self._wake = asyncio.Event()
        self._applied = asyncio.Event()
        self._closed = False
        self.proven_at = float("-inf")
        """A time at which this node certainly led: the start of the last committed append."""
        self._worker = self._loop.create_task(self._work())

    @property
    def closed(self) -> bool:
        return self._closed

    def submit(self, decide: Decide[T], *, bounded: bool = True) -> asyncio.Future[T]:
        """Queue a decision; the future gets its answer or a `ProtocolError`. A decision whose future is cancelled
        before its turn is not made.

        Decisions about sessions are not `bounded` by the length of the queue, because they must not be dropped.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        if self._closed:
            future.set_exception(NotLeaderError("this node is not the active controller"))
        elif bounded and len(self._queue) >= MAX_QUEUED:
            message = f"{MAX_QUEUED} operations wait for the controller already"
            future.set_exception(ProtocolError(ErrorCode.REQUEST_TIMED_OUT, message))
        else:
            self._queue.append(_Operation(decide, future))
            self._wake.set()
        return future

    def image_advanced(self) -> None:
        """Committed records were applied to the image."""
        self._applied.set()

    def close(self) -> None:
        """End the term: refuse waiting operations. The quorum answers an append in progress."""
        self._closed = True
        while self._queue:
            _fail(self._queue.popleft().future, NotLeaderError("this node is no longer the active controller"))
        self._wake.set()
        self._applied.set()

    async def stop(self) -> None:
        """Close, and wait for the end of the task."""
        self.close()
        self._worker.cancel()
        await asyncio.wait([self._worker])

    async def _work(self) -> None:
        while not self._closed:
            if not self._queue:
                self._wake.clear()
                await self._wake.wait()
                continue
            operation = self._queue.popleft()
            if operation.future.done():
                continue
            try:
                answer = await self._execute(operation.decide)
            except asyncio.CancelledError:
                _fail(operation.future, CommitUncertainError("the broker is shutting down"))
                raise
            except Exception as error:
                # A refusal, or a bug of a rule: it concerns only its caller, and the next operation continues.
                _fail(operation.future, error)
            else:
                if not operation.future.done():
                    operation.future.set_result(answer)

    async def _execute(self, decide: Decide[T]) -> T:
        decision = decide(self._image)
        if decision.records:
            data = [encode_record(record) for record in decision.records]
            started = self._loop.time()
            try:
                last_offset = await self._quorum.append(data)
            except AppendRefusedError:
                raise  # this request is impossible; the image still matches the log
            except Exception:
                self.close()
                with suppress(ProtocolError):  # the quorum may have ended as well
                    await self._quorum.resign(self._epoch)
                raise
            self.proven_at = started
            await self._until_applied(last_offset)
        return decision.answer(self._image)

    async def _until_applied(self, offset: int) -> None:
        while self._image.offset < offset:
            if self._closed:
                raise CommitUncertainError("leadership was lost before the records were applied here")
            self._applied.clear()
            await self._applied.wait()


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)

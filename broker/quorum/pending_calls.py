"""Pending calls of the quorum: requests that wait for an answer, and appends that wait for their commit."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple, TypeVar

from broker.errors import CommitUncertainError, ErrorCode, NotLeaderError, ProtocolError
from broker.quorum.messages import Response

T = TypeVar("T")


class _Uncommitted(NamedTuple):
    last_offset: int
    call: asyncio.Future[int]


class PendingCalls:
    """Futures by ticket. A ticket is valid while its caller waits; later results for it are dropped.

    Invariant: an append is refused only if none of it was written. From `appending` on, its outcome is committed or
    uncertain.
    """

    def __init__(self) -> None:
        self._last_ticket = 0
        self._answers: dict[int, asyncio.Future[Response]] = {}
        self._appends: dict[int, asyncio.Future[int]] = {}
        self._uncommitted: deque[_Uncommitted] = deque()

    def for_answer(self) -> tuple[int, asyncio.Future[Response]]:
        """A new ticket for a request, and the future of its answer."""
        return self._add(self._answers)

    def for_commit(self) -> tuple[int, asyncio.Future[int]]:
        """A new ticket for an append, and the future of its last offset."""
        return self._add(self._appends)

    def _add(self, waiting: dict[int, asyncio.Future[T]]) -> tuple[int, asyncio.Future[T]]:
        self._last_ticket += 1
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        waiting[self._last_ticket] = future
        return self._last_ticket, future

    def forget(self, ticket: int) -> None:
        """The caller no longer waits."""
        self._answers.pop(ticket, None)
        self._appends.pop(ticket, None)

    def wanted(self, ticket: int) -> bool:
        """Whether the caller still waits for the answer."""
        return ticket in self._answers

    def answer(self, ticket: int, response: Response) -> None:
        _settle(self._answers.get(ticket), response)

    def refuse(self, ticket: int) -> None:
        """Fail an append that wrote nothing."""
        _settle(self._appends.get(ticket), NotLeaderError("this node does not lead the quorum"))

    def appending(self, ticket: int, last_offset: int) -> None:
        """Record that an append is about to be written up to `last_offset`."""
        call = self._appends.get(ticket)
        if call is not None:
            self._uncommitted.append(_Uncommitted(last_offset, call))

    def committed(self, high_watermark: int) -> None:
        """Complete the appends whose records are all below the high watermark (K595-53)."""
        while self._uncommitted and self._uncommitted[0].last_offset < high_watermark:
            done = self._uncommitted.popleft()
            _settle(done.call, done.last_offset)

    def leadership_lost(self) -> None:
        """Fail all uncommitted appends as uncertain: another leader may still commit them."""
        while self._uncommitted:
            _settle(
                self._uncommitted.popleft().call, CommitUncertainError("leadership lost before the commit was known")
            )

    def close(self) -> None:
        """This node has stopped: fail all pending calls."""
        self.leadership_lost()
        for ticket in list(self._appends):
            self.refuse(ticket)
        for answer in self._answers.values():
            _settle(answer, stopped())


def stopped() -> ProtocolError:
    """The error for every call of a stopped quorum."""
    return ProtocolError(ErrorCode.BROKER_NOT_AVAILABLE, "the metadata quorum of this broker is not running")


def _settle(future: asyncio.Future[T] | None, outcome: T | ProtocolError) -> None:
    if future is None or future.done():
        return
    if isinstance(outcome, ProtocolError):
        future.set_exception(outcome)
        future.exception()  # mark it as retrieved: a caller that waits for a place in the queue never reads it
    else:
        future.set_result(outcome)

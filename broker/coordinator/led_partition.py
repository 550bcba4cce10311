"""One partition of `__consumer_offsets` in one leader epoch of this broker: loads it, appends to it, answers from it.

A broker that may have been replaced answers nothing: each answer needs the role with which the shard was loaded, and
the broker's lease.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from broker.errors import ErrorCode, ProtocolError
from broker.groups.group_effects import AppendEffect, Effect, GroupReply
from broker.groups.shard import Shard
from broker.protocol.decoder import DecodeError
from broker.protocol.records import (
    CorruptBatch,
    Record,
    UnsupportedCompression,
    build_batch,
    iter_batches,
    read_records,
)
from broker.protocol.schema import Message
from broker.replica.background import Background
from broker.replica.leader import PartitionLeader
from broker.replica.partition import ALL, Partition

LOAD_BYTES = 1 << 18  # of one log, read per turn of the loop
WAIT_AGAIN_S = 60.0  # for an append that was not committed in time
STALL_S = 0.1  # a timer that is later than this shows that the loop was stalled: heartbeats may be unread

Refuse = Callable[[ErrorCode], Message]
"""Makes the response of an API that refuses the request with an error."""

_ERRORS = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.MESSAGE_TOO_LARGE,
}


@dataclass(slots=True)
class _Pending:
    """An append that is not committed yet; `end` is the offset after it."""

    token: int
    end: int
    late: bool = False


@dataclass(slots=True)
class _Waiting:
    """A request that is not answered yet."""

    answer: asyncio.Future[Message]
    refuse: Refuse


class LedPartition:
    """Runs a shard. `loaded` is false while the log is read; `failed` is true when it could not be."""

    def __init__(
        self,
        partition: Partition,
        role: PartitionLeader,
        shard: Shard,
        *,
        lease_valid: Callable[[], bool],
        wall_ms: Callable[[], int],
        commit_timeout_s: float,
        max_batch_bytes: int,
        background: Background,
        reading: asyncio.Lock,
        acknowledges_early: bool,
    ) -> None:
        """`reading` is shared by all partitions of a broker: a partition reads its log only while it holds it."""
        self.role = role
        self.shard = shard
        self.loaded = False
        self.failed = False
        self._partition = partition
        self._lease_valid = lease_valid
        self._wall_ms = wall_ms
        self._commit_timeout_s = commit_timeout_s
        self._max_batch_bytes = max_batch_bytes
        self._reading = reading
        self._acknowledges_early = acknowledges_early
        self._waiting: dict[int, _Waiting] = {}
        self._last_ticket = 0
        self._pending: deque[_Pending] = deque()
        self._effects: deque[Effect] = deque()
        self._running = False
        self._timer: asyncio.TimerHandle | None = None
        self._stalled = False
        self._gone: list[str] = []
        shard.holdings.evict = self._evict
        self._loading = background.run(self._load(), f"loading {partition.topic}-{partition.index}")

    # --- life

    def forget(self, topics: Collection[str]) -> None:
        """Topics were deleted: remove their offsets, now or once the log is loaded."""
        if not self.loaded:
            self._gone += topics
        elif topics:
            self.run(self.shard.topics_deleted(frozenset(topics)))

    @property
    def leads(self) -> bool:
        """Whether this broker still has the role for which the shard was made, and its lease."""
        return self._partition.role is self.role and self._lease_valid()

    def close(self) -> None:
        """The leadership is over: all pending requests are answered with NOT_COORDINATOR."""
        self._loading.cancel()
        self.shard.holdings.close()
        if self._timer is not None:
            self._timer.cancel()
        self._pending.clear()
        waiting, self._waiting = self._waiting, {}
        for request in waiting.values():
            if not request.answer.done():
                request.answer.set_result(request.refuse(ErrorCode.NOT_COORDINATOR))

    async def _load(self) -> None:
        """Replay the log up to the start of this epoch, once all of it is known to be committed."""
        end = self.role.epoch_start_offset
        while self._partition.role is self.role and not self.role.high_watermark_is_known:
            await self._partition.commits.wait(end, WAIT_AGAIN_S)
        if self._partition.role is not self.role:
            return
        log, offset, count = self._partition.log, self._partition.log.log_start_offset, 0
        try:
            while offset < end:
                async with self._reading:
                    if self._partition.role is not self.role:
                        return  # its files may be closed by now, or used by another role
                    data = log.read(offset, LOAD_BYTES, end)
                    if not data:
                        break  # compaction has removed everything below the end
                    offset, records = self._replay(data)
                    count += records
                    await asyncio.sleep(0)  # keep the lock until the turn is over: no other partition reads in it
        except (DecodeError, CorruptBatch, UnsupportedCompression) as error:
            self.failed = True
            self._partition.trace("coordinator_load_failed", leader_epoch=self.role.leader_epoch, reason=str(error))
            return
        self.shard.begin(_now())
        self.loaded = True
        self._partition.trace("coordinator_loaded", leader_epoch=self.role.leader_epoch, records=count)
        self.forget(self._gone)
        self.shard.holdings.account.make_room()
        self._set_timer()

    def _replay(self, data: bytes) -> tuple[int, int]:
        """Returns the offset after these batches, and the number of records replayed."""
        offset, count = -1, 0
        for position, header in iter_batches(data):
            offset = header.next_offset
            if header.is_control:
                continue
            for record in read_records(data, position):
                self.shard.replay(record.key or b"", record.value)
                count += 1
        return offset, count

    # --- requests

    def check(self) -> None:
        """Raises `ProtocolError` unless the shard may answer."""
        if not self.leads:
            raise ProtocolError(ErrorCode.NOT_COORDINATOR)
        if self.failed:
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if not self.loaded:
            raise ProtocolError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def ask(self, call: Callable[[float, int], Iterable[Effect]], refuse: Refuse) -> asyncio.Future[Message]:
        """The shard's answer to `call(now, ticket)`. Raises `ProtocolError` as `check` does."""
        self.check()
        self._last_ticket += 1
        ticket = self._last_ticket
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = _Waiting(answer, refuse)
        try:
            self.run(call(_now(), ticket))
        except BaseException:
            self._waiting.pop(ticket, None)  # and with it the request, which may be large
            raise
        return answer

    # --- effects

    def run(self, effects: Iterable[Effect]) -> None:
        """Execute the shard's effects in order; effects that result from them are executed after them."""
        self._effects += effects
        if self._running:
            return
        self._running = True
        try:
            while self._effects:
                effect = self._effects.popleft()
                if isinstance(effect, GroupReply):
                    self._reply(effect)
                else:
                    self._append(effect)
        finally:
            self._running = False
        self.shard.holdings.account.make_room()
        self._set_timer()

    def _evict(self, group: str, member: str) -> None:
        """Evict a newcomer to free memory for others of this broker."""
        self.run(self.shard.evict(_now(), group, member))

    def _reply(self, effect: GroupReply) -> None:
        waiting = self._waiting.pop(effect.ticket, None)
        if waiting is None or waiting.answer.done():
            return  # it was answered as late before, or the peer is gone
        waiting.answer.set_result(effect.response if self.leads else waiting.refuse(ErrorCode.NOT_COORDINATOR))

    def _append(self, effect: AppendEffect) -> None:
        now_ms = self._wall_ms()
        batch = build_batch([Record(0, now_ms, record.key, record.value) for record in effect.records])
        try:
            if self._partition.role is not self.role:
                raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if len(batch) > self._max_batch_bytes:
                raise ProtocolError(ErrorCode.MESSAGE_TOO_LARGE)
            appended = self._partition.append(bytearray(batch), ALL, self._commit_timeout_s)
        except ProtocolError as error:
            code = _ERRORS.get(error.code, ErrorCode.UNKNOWN_SERVER_ERROR)
            self._effects += self.shard.refused(_now(), effect.token, code)
            return
        pending = _Pending(effect.token, appended.base_offset + len(effect.records))
        self._pending.append(pending)
        if appended.done is None or self._acknowledges_early:
            self._commit_up_to(pending.end)
        else:
            self._watch(pending, appended.done)

    def _watch(self, pending: _Pending, done: asyncio.Future[ErrorCode]) -> None:
        def settled(future: asyncio.Future[ErrorCode]) -> None:
            if future.cancelled() or not self._pending or self._partition.role is not self.role:
                return
            code = future.result()
            self._commit_up_to(self.role.high_watermark)  # it may have advanced since the wait ended
            self.run(())
            if pending.end <= self.role.high_watermark:
                return
            # The batch is in the log and may still be committed: the pending request gets an uncertain error.
            self._watch(pending, self._partition.commits.wait(pending.end, WAIT_AGAIN_S))
            if not pending.late:
                pending.late = True
                self.run(self.shard.late(_now(), pending.token, _ERRORS.get(code, ErrorCode.COORDINATOR_NOT_AVAILABLE)))

        done.add_done_callback(settled)

    def _commit_up_to(self, high_watermark: int) -> None:
        """Report committed appends to the shard, in log order."""
        while self._pending and self._pending[0].end <= high_watermark:
            self._effects += self.shard.committed(_now(), self._pending.popleft().token)

    # --- time

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.shard.deadline()
        if due is not None and self._partition.role is self.role:
            self._timer = asyncio.get_running_loop().call_at(due, self._tick, due)

    def _tick(self, due: float) -> None:
        self._timer = None
        if self._partition.role is not self.role:
            return
        now = _now()
        if now - due > STALL_S and not self._stalled:
            self._stalled = True
            self._timer = asyncio.get_running_loop().call_later(STALL_S, self._tick, due)
            return
        self._stalled = False
        self.run(self.shard.tick(now))


def _now() -> float:
    return asyncio.get_running_loop().time()

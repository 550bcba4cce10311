"""Fetches records from leaders: one loop per leader with one Fetch in flight; first the truncation dialogue, then long
polls.

A loop holds all partitions that this broker follows at one leader. A partition with an error backs off, shortly at
first (most often its leader does not know the new epoch yet), at most for `replica.fetch.backoff.ms`. A new leader
epoch, which resolves all other errors, puts a new role into the loop.

Decides how many bytes to request from a leader at once. Pure.

All partitions that follow one leader wait for one response. On a slow link the response must be
small enough that no replica leaves the ISR before its turn; on a fast link, small responses would cost round trips.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial

from broker.config import BrokerConfig
from broker.errors import ErrorCode
from broker.peers import Peers
from broker.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from broker.protocol.messages.offset_apis import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from broker.replica.background import Background, end
from broker.replica.followed_partition import FollowedPartition
from broker.replica.follower import AskEpochEnd, PartitionFollower, Phase
from broker.replica.partition import Partition
from broker.replica.partition_work import PartitionWork
from broker.replica.tiered_start import TieredStart

LEAST_BYTES = 64 << 10
MOST_BYTES = 10 << 20


class AnswerSize:
    """Halves after a response that took longer than `long_s` seconds; doubles after a full one that took less than half
    of that."""

    def __init__(self, long_s: float) -> None:
        self.bytes = MOST_BYTES
        self._long_s = long_s

    def answered(self, size: int, took_s: float) -> None:
        """A response has arrived. A small one may have been parked at the leader: its time says nothing about the
        link."""
        if size < self.bytes // 2:
            return
        if took_s > self._long_s:
            self.bytes = max(LEAST_BYTES, self.bytes // 2)
        elif took_s < self._long_s / 2:
            self.bytes = min(MOST_BYTES, 2 * self.bytes)


BELOW_LOCAL = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE)
BACKOFF_MIN = 0.01  # seconds; doubles with every consecutive error


class LeaderFetcher:
    """Follows one leader. Invariant: at most one Fetch to it is in flight, so no response overtakes another."""

    def __init__(
        self,
        leader_id: int,
        *,
        config: BrokerConfig,
        peers: Peers,
        broker_epoch: Callable[[], int],
        background: Background,
        move_start: Callable[[Partition, int], Awaitable[None]],
        tiered_start: TieredStart,
        work: PartitionWork,
    ) -> None:
        self.leader_id = leader_id
        self._config = config
        self._peers = peers
        self._broker_epoch = broker_epoch
        self._background = background
        self._move_start = move_start
        self._tiered_start = tiered_start
        self._work = work
        self._starts: dict[asyncio.Task[None], None] = {}
        self._backoff_max = config.replica_fetch_backoff_ms / 1000
        self._timeout = config.replica_socket_timeout_ms / 1000
        self._size = AnswerSize(self._timeout / 2)
        self._followed: dict[tuple[str, int], FollowedPartition] = {}
        self._turn = 0
        self._changed = asyncio.Event()
        self._polling = False
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._followed)

    def add(self, partition: Partition, follower: PartitionFollower) -> None:
        """Follow a partition in a new leader epoch; replaces its earlier role in the loop."""
        self._followed[partition.key] = FollowedPartition(partition, follower)
        self._changed.set()
        if self._polling:
            self._nudge()
        if self._task is None:
            self._task = self._background.run(self._run(), f"fetcher of leader {self.leader_id}")

    def remove(self, key: tuple[str, int]) -> None:
        """Stop following a partition; a response in flight for it is dropped."""
        self._followed.pop(key, None)

    async def stop(self) -> None:
        """End the loop."""
        self._followed.clear()
        await asyncio.gather(*map(end, (self._task, *self._starts)))
        self._task = None

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            ready = self._ready()
            if not ready:
                await self._idle()
                continue
            try:
                if any(followed.follower.phase is Phase.TRUNCATING for followed in ready):
                    await self._match(ready)
                    ready = self._ready()
                await self._fetch([followed for followed in ready if followed.follower.phase is Phase.FETCHING])
            except (ConnectionError, TimeoutError):
                self._stand_back(ready)

    def _ready(self) -> list[FollowedPartition]:
        now = asyncio.get_running_loop().time()
        return [followed for followed in self._followed.values() if followed.sends and followed.not_before <= now]

    async def _idle(self) -> None:
        """Wait until a partition is added, or the first back-off ends."""
        try:
            async with asyncio.timeout(self._rest()):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _rest(self, polled: Collection[FollowedPartition] = ()) -> float | None:
        """Seconds until a partition outside the poll may send a request; None if the poll contains all of them."""
        moments = [
            followed.not_before for followed in self._followed.values() if followed not in polled and followed.sends
        ]
        return max(0.0, min(moments) - asyncio.get_running_loop().time()) if moments else None

    def _stand_back(self, partitions: Iterable[FollowedPartition]) -> None:
        now = asyncio.get_running_loop().time()
        for followed in partitions:
            followed.not_before = now + min(BACKOFF_MIN * 2**followed.failures, self._backoff_max)
            followed.failures = min(followed.failures + 1, 16)

    # -- the truncation dialogue --------------------------------------------------------------------------------

    async def _match(self, ready: list[FollowedPartition]) -> None:
        """Ask the leader about all partitions whose logs do not match its logs yet, repeatedly until they do."""
        while questions := await self._questions(ready):
            request = OffsetForLeaderEpochRequest(
                replica_id=self._config.node_id,
                topics=[
                    OffsetForLeaderTopic(
                        topic=followed.partition.topic,
                        partitions=[
                            OffsetForLeaderPartition(
                                partition=followed.partition.index,
                                current_leader_epoch=followed.follower.leader_epoch,
                                leader_epoch=question.epoch,
                            )
                        ],
                    )
                    for followed, question in questions
                ],
            )
            response = await self._peers.request(self.leader_id, request, self._timeout)
            answers = {(t.topic, p.partition): p for t in response.topics for p in t.partitions}
            for followed, _ in questions:
                answer = answers.get(followed.partition.key)
                if answer is None or answer.error_code != ErrorCode.NONE:
                    self._stand_back([followed])
                else:
                    await followed.epoch_end_answered(answer.leader_epoch, answer.end_offset)

    async def _questions(self, ready: list[FollowedPartition]) -> list[tuple[FollowedPartition, AskEpochEnd]]:
        now = asyncio.get_running_loop().time()
        questions = []
        for followed in ready:
            if followed.not_before > now:
                continue
            question = await followed.next_question()
            if question is not None:
                questions.append((followed, question))
        return questions

    # -- fetching -----------------------------------------------------------------------------------------------

    async def _fetch(self, ready: list[FollowedPartition]) -> None:
        if unflushed := [followed.partition for followed in ready if _claims_too_much(followed.partition)]:
            await asyncio.gather(*(partition.make_durable() for partition in unflushed))
        ready = [followed for followed in ready if followed.current]
        if not ready:
            return
        # If the response has no room for all, the first partitions of a request get the bytes: rotate the order.
        self._turn = (self._turn + 1) % len(ready)
        ready = ready[self._turn :] + ready[: self._turn]
        response = await self._long_poll(ready)
        if response.error_code != ErrorCode.NONE:
            self._stand_back(ready)
            return
        answers = {(t.topic_id, p.partition_index): p for t in response.responses for p in t.partitions}
        for followed in ready:
            answer = answers.get((followed.partition.topic_id, followed.partition.index))
            if answer is None:
                self._stand_back([followed])
            elif followed.current:
                await self._take(followed, answer)

    async def _long_poll(self, polled: list[FollowedPartition]) -> FetchResponse:
        """The response to a fetch, which the leader may park.

        A partition that is added meanwhile, or whose back-off ends, must not wait for that: see `_nudge`.
        """
        timeout = self._timeout + self._config.replica_fetch_wait_max_ms / 1000
        loop = asyncio.get_running_loop()
        remainder = self._rest(set(polled))
        timer = None if remainder is None else loop.call_later(remainder, self._nudge)
        self._polling = True
        asked_at = loop.time()
        try:
            request = self._request(polled)
            response = await self._peers.request(self.leader_id, request, timeout)
            size = sum([len(p.records or b"") for t in response.responses for p in t.partitions])
            self._size.answered(size, loop.time() - asked_at)
            return response
        finally:
            self._polling = False
            if timer is not None:
                timer.cancel()

    def _nudge(self) -> None:
        """Make the leader answer its parked fetch of this broker, by an empty OffsetForLeaderEpoch request."""

        async def ask() -> None:
            request = OffsetForLeaderEpochRequest(replica_id=self._config.node_id)
            # A lost connection ends the fetch too, which is sufficient.
            with contextlib.suppress(ConnectionError, TimeoutError):
                await self._peers.request(self.leader_id, request, self._timeout)

        self._background.run(ask(), f"nudge of leader {self.leader_id}")

    def _request(self, ready: list[FollowedPartition]) -> FetchRequest:
        topics: dict[bytes, FetchTopic] = {}
        for followed in ready:
            partition = followed.partition
            followed.fetch_offset = partition.log.log_end_offset
            topic = topics.setdefault(
                partition.topic_id, FetchTopic(topic=partition.topic, topic_id=partition.topic_id, partitions=[])
            )
            topic.partitions.append(
                FetchPartition(
                    partition=partition.index,
                    current_leader_epoch=followed.follower.leader_epoch,
                    fetch_offset=followed.fetch_offset,
                    last_fetched_epoch=followed.follower.last_fetched_epoch(partition.log),
                    log_start_offset=partition.log.log_start_offset,
                    partition_max_bytes=self._config.replica_fetch_max_bytes,
                )
            )
        return FetchRequest(
            replica_state=ReplicaState(replica_id=self._config.node_id, replica_epoch=self._broker_epoch()),
            max_wait_ms=self._config.replica_fetch_wait_max_ms,
            min_bytes=1,
            max_bytes=self._size.bytes,
            topics=list(topics.values()),
        )

    async def _take(self, followed: FollowedPartition, answer: PartitionData) -> None:
        if answer.error_code in BELOW_LOCAL and followed.partition.settings.remote_storage:
            self._start_from_remote(followed, ErrorCode(answer.error_code), answer.log_start_offset)
        elif answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if not await followed.out_of_range(answer.log_start_offset):
                self._stand_back([followed])
        elif answer.error_code != ErrorCode.NONE:
            self._stand_back([followed])
        elif answer.diverging_epoch is not None:
            followed.follower.diverged()
            self._stand_back([followed])
        else:
            try:
                await followed.in_range(answer.log_start_offset)
                await followed.append(answer.records or b"", answer.high_watermark)
                if answer.log_start_offset > followed.partition.log.log_start_offset:
                    await self._move_start(followed.partition, answer.log_start_offset)
                followed.failures = 0
            except ValueError as error:
                followed.partition.trace("fetched_batches_refused", leader=self.leader_id, reason=str(error))
                self._stand_back([followed])

    def _start_from_remote(self, followed: FollowedPartition, refusal: ErrorCode, leader_log_start: int) -> None:
        """The leader may have the offset in remote storage only (KIP-405, KIP-1023)."""
        partition = followed.partition

        async def start() -> None:
            try:
                work = partial(self._tiered_start.run, followed, refusal, leader_log_start)
                fetches_at_once = await self._work.attempt("start from remote storage", partition, work)
            finally:
                followed.starting = False
            if fetches_at_once:
                followed.failures = 0
            else:
                self._stand_back([followed])
            self._changed.set()
            if self._polling:
                self._nudge()

        followed.starting = True
        task = self._background.run(start(), f"start of {partition.topic}-{partition.index} from remote storage")
        self._starts[task] = None
        task.add_done_callback(lambda ended: self._starts.pop(ended, None))


def _claims_too_much(partition: Partition) -> bool:
    """If a flush is required, a fetch must not claim records that a power loss could remove: the leader counts it."""
    return partition.flush_before_commit and not partition.durable

"""Reads from partitions for Fetch: checks the request, reads, and waits while there is not enough data."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from broker.errors import ErrorCode
from broker.log.reading import Slice
from broker.mutants import Mutants
from broker.ports import Buffer
from broker.replica.leader import PartitionLeader
from broker.replica.log_view import UNDEFINED, EpochEnd, divergence
from broker.replica.partition import Partition
from broker.replica.purgatory import FetchWaiters

CONSUMER = -1


@dataclass(slots=True)
class FetchPosition:
    """One partition of a Fetch. `topic_id` is None when the request named the topic (up to version 12).
    `log_start_offset`: of the replica that fetches, -1 if not given."""

    topic: str
    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = UNDEFINED
    last_fetched_epoch: int = UNDEFINED
    log_start_offset: int = UNDEFINED
    topic_id: bytes | None = None


@dataclass(slots=True)
class FetchLimits:
    """The part of a Fetch that applies to all its partitions: the fetcher and the limits. `max_wait` is in seconds.

    `replica_id` is -1 for a consumer; `replica_epoch` is the broker epoch of a replica (KIP-903), -1 if not given.
    """

    replica_id: int = CONSUMER
    replica_epoch: int = UNDEFINED
    max_wait: float = 0.0
    min_bytes: int = 1
    max_bytes: int = 0x7FFFFFFF

    @property
    def is_replica(self) -> bool:
        return self.replica_id >= 0


@dataclass(slots=True)
class PartitionRead:
    """One partition's part of the answer: whole batches as ranges of files, to be sent without copying.

    `high_watermark` is -1 if unknown: for errors, and for consumers of a new leader whose high watermark has not
    reached the start of its epoch, and so must not be taken for the end of the log (KIP-207).
    """

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = UNDEFINED
    log_start_offset: int = UNDEFINED
    slices: Sequence[Slice] = ()
    size: int = 0
    diverging: EpochEnd | None = None
    remote: Sequence[Buffer] = ()
    """Whole batches from remote storage, instead of slices: parts to be concatenated."""
    is_loading: bool = False
    """Whether records are being loaded from remote storage."""
    start_moved: bool = False
    """Whether the fetching replica's log must start later."""

    @property
    def settled(self) -> bool:
        """Whether waiting cannot improve the answer: an error, a divergence or a new log start is reported at once."""
        return self.error is not ErrorCode.NONE or self.diverging is not None or self.start_moved


@dataclass(slots=True, eq=False)
class ParkedFetch:
    """A waiting fetch. `woken` makes it read again; `expired`: for the last time."""

    limits: FetchLimits
    positions: Sequence[FetchPosition]
    woken: asyncio.Future[None]
    timer: asyncio.TimerHandle | None = None
    expired: bool = False


Led = tuple[Partition, PartitionLeader]
Checked = Led | PartitionRead
"""The partition and role that serve a fetch, or the answer with the reason why not."""


def epoch_error(leader_epoch: int, current_leader_epoch: int) -> ErrorCode:
    """Compare the leader epoch in a request with the leader's own (H3)."""
    if current_leader_epoch < leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if current_leader_epoch > leader_epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE


class PartitionReader:
    """Serves Fetch for partitions that this broker leads: consumers up to the high watermark, replicas to the log's
    end."""

    def __init__(
        self,
        find: Callable[[str, int], Partition | ErrorCode],
        lease_valid: Callable[[], bool],
        on_replica_fetch: Callable[[Partition, int], None],
        mutants: Mutants,
    ) -> None:
        self._find = find
        self._lease_valid = lease_valid
        self._on_replica_fetch = on_replica_fetch
        self._skips_fencing = mutants.active("no_fence_fetch")
        self._counts_diverging = mutants.active("diverging_updates_leo")
        self._serves_past_high_watermark = mutants.active("consume_past_hw")
        self._parked: dict[int, dict[ParkedFetch, None]] = {}

    def fetch_now(self, limits: FetchLimits, positions: Sequence[FetchPosition]) -> list[PartitionRead] | None:
        """Count a replica's fetch, then read. None: there is not enough yet, continue with `wait_for_fetch`."""
        checked = [self._checked(limits, position) for position in positions]
        if limits.is_replica:
            for position, checked_position in zip(positions, checked, strict=True):
                self._count(limits, position, checked_position)
        reads = self._read_all(limits, positions, checked)
        return reads if limits.max_wait <= 0 or _enough(limits, reads) else None

    def wait_for_fetch(self, limits: FetchLimits, positions: Sequence[FetchPosition]) -> Awaitable[list[PartitionRead]]:
        """The answer when it has `min_bytes` or an error, at the latest after `max_wait` seconds.

        Call it directly after `fetch_now` returned None. On return the fetch is parked, so that it misses no news and
        reads again only after news. An append wakes parked replicas, a rise of the high watermark wakes parked
        consumers, the end of leadership wakes both.
        """
        loop = asyncio.get_running_loop()
        fetch = ParkedFetch(limits, positions, loop.create_future())
        fetch.timer = loop.call_later(limits.max_wait, self._expire, fetch)
        self._parked.setdefault(limits.replica_id, {})[fetch] = None
        self._park(fetch)
        return self._answer(fetch)

    async def _answer(self, fetch: ParkedFetch) -> list[PartitionRead]:
        limits, positions = fetch.limits, fetch.positions
        try:
            while True:
                await fetch.woken
                reads = self._read_all(limits, positions, [self._checked(limits, position) for position in positions])
                if fetch.expired or _enough(limits, reads):
                    return reads
                self._leave(fetch)
                fetch.woken = asyncio.get_running_loop().create_future()
                self._park(fetch)
        finally:
            self._forget(fetch)

    def _expire(self, fetch: ParkedFetch) -> None:
        """Answer a fetch with what there is. No effect if its caller no longer waits."""
        fetch.expired = True
        if not fetch.woken.done():
            fetch.woken.set_result(None)
        self._forget(fetch)

    def _forget(self, fetch: ParkedFetch) -> None:
        if fetch.timer is not None:
            fetch.timer.cancel()
        self._leave(fetch)
        replica_id = fetch.limits.replica_id
        parked = self._parked.get(replica_id)
        if parked is not None:
            parked.pop(fetch, None)
            if not parked:
                del self._parked[replica_id]

    def answer_parked(self, replica_id: int) -> None:
        """Answer the parked fetches of a replica with what there is."""
        for fetch in list(self._parked.get(replica_id, ())):
            self._expire(fetch)

    def _read_all(
        self, limits: FetchLimits, positions: Sequence[FetchPosition], checked: Sequence[Checked]
    ) -> list[PartitionRead]:
        fenced = not limits.is_replica and not self._lease_valid()
        remaining = limits.max_bytes
        reads: list[PartitionRead] = []
        empty = True
        for position, checked_position in zip(positions, checked, strict=True):
            if fenced:
                read = PartitionRead(position.topic, position.partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif isinstance(checked_position, PartitionRead):
                read = checked_position
            else:
                read = self._read(limits, position, checked_position, remaining, at_least_one=empty)
            remaining -= read.size
            empty = empty and not read.size
            reads.append(read)
        return reads

    def _read(
        self, limits: FetchLimits, position: FetchPosition, led: Led, budget: int, *, at_least_one: bool
    ) -> PartitionRead:
        """`budget`: the remaining bytes of the whole answer, negative if it has too many."""
        partition, leader = led
        log = partition.log
        is_known = limits.is_replica or leader.high_watermark_is_known
        read = PartitionRead(
            position.topic,
            position.partition,
            high_watermark=leader.high_watermark if is_known else UNDEFINED,
            log_start_offset=log.log_start_offset,
            start_moved=limits.is_replica and UNDEFINED < position.log_start_offset < log.log_start_offset,
        )
        unbounded = limits.is_replica or self._serves_past_high_watermark
        upper_bound = log.log_end_offset if unbounded else leader.high_watermark
        if position.fetch_offset >= upper_bound:
            return read
        if min(limits.max_bytes, position.max_bytes) < 0:  # as in Kafka, which also checks it only if there is data
            return PartitionRead(position.topic, position.partition, ErrorCode.UNKNOWN_SERVER_ERROR)
        max_bytes = max(0, min(budget, position.max_bytes))
        if position.fetch_offset < log.local_start_offset:
            return _read_remotely(partition, position, read, max_bytes, at_least_one)
        if max_bytes > 0 or at_least_one:
            try:
                read.slices = log.locate(position.fetch_offset, max_bytes, upper_bound, min_one=at_least_one)
            except OSError as error:
                partition.fail(error)
                return PartitionRead(position.topic, position.partition, ErrorCode.KAFKA_STORAGE_ERROR)
            for part in read.slices:
                read.size += part.length
        return read

    def _checked(self, limits: FetchLimits, position: FetchPosition) -> Checked:
        """The partition and its leader role, or the answer with the reason: error or divergence."""
        partition = self._find(position.topic, position.partition)
        if isinstance(partition, ErrorCode):
            return PartitionRead(position.topic, position.partition, partition)
        leader = partition.serving
        error = partition.error if leader is None else self._refusal(limits, position, partition, leader)
        if leader is None or error is not ErrorCode.NONE:
            return PartitionRead(position.topic, position.partition, error)
        log, offset = partition.log, position.fetch_offset
        start, error = log.log_start_offset, ErrorCode.OFFSET_OUT_OF_RANGE
        diverging = None if offset < start else divergence(log, offset, position.last_fetched_epoch)
        if diverging is not None:
            error = ErrorCode.NONE
        elif start <= offset < log.local_start_offset and limits.is_replica:
            error = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
        elif start <= offset <= log.log_end_offset:
            return partition, leader
        return PartitionRead(position.topic, position.partition, error, log_start_offset=start, diverging=diverging)

    def _refusal(
        self, limits: FetchLimits, position: FetchPosition, partition: Partition, leader: PartitionLeader
    ) -> ErrorCode:
        """Why this leader refuses the request, independent of its log; NONE if it does not."""
        replica = limits.replica_id
        if limits.is_replica and (replica not in leader.replicas or replica == leader.node_id):
            return ErrorCode.REPLICA_NOT_AVAILABLE
        if position.topic_id is not None and position.topic_id != partition.topic_id:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        if limits.is_replica and limits.replica_epoch == UNDEFINED and not self._skips_fencing:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER  # whose log it is, and what it may have lost, is unknown (H15)
        # A replica must name the epoch that it follows: only fetches in the leader's own epoch count. Fetch takes any
        # negative epoch as missing; ListOffsets and OffsetForLeaderEpoch take only -1 of a client so, as in Kafka.
        fenced = not self._skips_fencing if limits.is_replica else position.current_leader_epoch >= 0
        return epoch_error(leader.leader_epoch, position.current_leader_epoch) if fenced else ErrorCode.NONE

    def shown_by(self, limits: FetchLimits, position: FetchPosition) -> Partition | None:
        """The partition for which this fetch would prove that the replica has everything below its offset."""
        return self._shown_by(position, self._checked(limits, position))

    def _shown_by(self, position: FetchPosition, check: Checked) -> Partition | None:
        # H6: a fetch that diverges or is out of range does not show what the follower shares with this log.
        if not isinstance(check, PartitionRead):
            return check[0]
        lagging = self._find(position.topic, position.partition)
        if not self._counts_diverging or check.diverging is None or isinstance(lagging, ErrorCode):
            return None
        return lagging

    def _count(self, limits: FetchLimits, position: FetchPosition, check: Checked) -> None:
        partition = self._shown_by(position, check)
        if partition is not None:
            partition.replica_fetched(
                limits.replica_id, limits.replica_epoch, position.fetch_offset, position.log_start_offset
            )
            self._on_replica_fetch(partition, limits.replica_id)

    def _park(self, fetch: ParkedFetch) -> None:
        for waiters in self._waiters(fetch):
            waiters.park(fetch.woken)

    def _leave(self, fetch: ParkedFetch) -> None:
        for waiters in self._waiters(fetch):
            waiters.leave(fetch.woken)

    def _waiters(self, fetch: ParkedFetch) -> Iterator[FetchWaiters]:
        for position in fetch.positions:
            partition = self._find(position.topic, position.partition)
            if isinstance(partition, Partition):
                yield partition.replica_fetches if fetch.limits.is_replica else partition.consumer_fetches


def _read_remotely(
    partition: Partition, position: FetchPosition, read: PartitionRead, max_bytes: int, at_least_one: bool
) -> PartitionRead:
    """Complete a read of records that are only in remote storage."""
    remote = partition.remote
    if remote is None:
        return PartitionRead(position.topic, position.partition, ErrorCode.KAFKA_STORAGE_ERROR)
    if max_bytes > 0 or at_least_one:
        records = remote.read(position.fetch_offset, max_bytes, min_one=at_least_one)
        if isinstance(records, ErrorCode):
            return PartitionRead(position.topic, position.partition, records)
        read.is_loading = records is None
        read.remote = records or ()
        read.size = sum(map(len, read.remote))
    return read


def _enough(limits: FetchLimits, reads: list[PartitionRead]) -> bool:
    if not reads or any(read.settled for read in reads):
        return True
    size = sum(read.size for read in reads)
    return size >= limits.min_bytes and (size > 0 or not any(read.is_loading for read in reads))

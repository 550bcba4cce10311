"""Starts followers whose next offset is not in the leader's local log (KIP-405, KIP-1023).

Theory of operation. The leader's log has four borders: the log start (LSO), the local log start (LLSO), the earliest
pending upload (EPUO: the offset after the last tiered one) and the log end; LSO <= LLSO <= EPUO <= end. A fetch below
LSO is answered with OFFSET_OUT_OF_RANGE, a fetch from LSO to LLSO with OFFSET_MOVED_TO_TIERED_STORAGE. `next_step` is
pure: it takes all that the follower has asked and been answered since then, and returns the next question, or the place
to start from. `TieredStart` asks, and does what is decided. The follower changes nothing before that, so it may ask
again at any time. A start above LSO (`StartAbove`) needs the state of the log below: epochs and producers, from remote
storage.

Each start is a task, so that remote storage delays no other partition of the same leader. The partition sends no fetch
meanwhile. Nothing of the replica changes before the last step, which is crash-safe (`PartitionLog.start_above`).
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from broker.config import BrokerConfig
from broker.errors import ErrorCode
from broker.log.epochs import UNDEFINED, EpochEntry
from broker.log.remote_start import StateBelow
from broker.mutants import Mutants
from broker.peers import Peers
from broker.producers.producer_state import MAX_ID, ProducerState
from broker.protocol.messages.broker_apis import TieredStarts
from broker.protocol.messages.offset_apis import (
    EpochEndOffset,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from broker.protocol.request import Request, Response
from broker.protocol.schema import Topic
from broker.replica.followed_partition import FollowedPartition
from broker.replica.partition import Partition
from broker.replica.remote_state import RemoteState, RemoteStateError
from broker.topic_settings import FROM_LAST_TIERED, is_on

# ---- Where a follower starts.

UNKNOWN = -1
NO_MUTANTS = Mutants()
EARLIEST, EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD = -2, -4, -6
"""The special timestamps of ListOffsets that a bootstrap asks for."""


class LogPlace(NamedTuple):
    """An offset of the leader's log and the epoch there; both -1 if the leader does not know them."""

    offset: int
    epoch: int


@dataclass(frozen=True)
class Bootstrap:
    """What a follower has asked and been answered. None: not asked yet.

    `refusal`: the error of the fetch at `log_end`. `enabled`: `follower.fetch.last.tiered.offset.enable`. `tiered`: the
    topic uses remote storage and is not compacted. `log_start`, `local_start`, `pending`: the leader's LSO, LLSO and
    EPUO. `earlier`: the end of the epochs below that of the chosen start, from OffsetForLeaderEpoch. `waited_ms`: the
    time since the leader first did not know its EPUO, `patience_ms` the longest such time (H29).
    """

    refusal: ErrorCode
    log_end: int
    enabled: bool = False
    tiered: bool = True
    log_start: int | None = None
    local_start: LogPlace | None = None
    pending: LogPlace | None = None
    earlier: LogPlace | None = None
    waited_ms: int = 0
    patience_ms: int = 0

    @property
    def jumps(self) -> bool:
        """Whether the follower may skip what is tiered: only a replica without a record loses nothing (K1023-6)."""
        return self.enabled and self.tiered and self.log_end == 0


@dataclass(frozen=True)
class AskOffset:
    """Ask the leader for an offset by its special timestamp (ListOffsets)."""

    timestamp: int


@dataclass(frozen=True)
class AskEarlierEpoch:
    """Ask the leader for the largest epoch that is not above `epoch`, and its end (OffsetForLeaderEpoch)."""

    epoch: int


@dataclass(frozen=True)
class KeepFetching:
    """The leader has the offset: append what it sent."""


@dataclass(frozen=True)
class MatchLogs:
    """The offset is past the leader's end: ask again where the logs diverge."""


@dataclass(frozen=True)
class RetryLater:
    """Change nothing, pause, and ask again."""

    reason: str


@dataclass(frozen=True)
class StartAt:
    """Drop the whole log and start it at `offset`, which is the leader's log start: nothing is below."""

    offset: int


@dataclass(frozen=True)
class StartAbove:
    """Drop the whole log and start it at `offset`, with the state of [`log_start`, `offset`) from remote storage.

    `epoch`: that of the record at `offset` - 1. The remote segment with that record is found by epoch and offset.
    """

    offset: int
    log_start: int
    epoch: int


Step = AskOffset | AskEarlierEpoch | KeepFetching | MatchLogs | RetryLater | StartAt | StartAbove


def next_step(bootstrap: Bootstrap, mutants: Mutants = NO_MUTANTS) -> Step:
    """The next step of a follower. A bootstrap ends with `KeepFetching`, `MatchLogs`, `StartAt` or `StartAbove`."""
    if bootstrap.refusal is ErrorCode.NONE:
        return KeepFetching()  # case 1 (K1023-4)
    if bootstrap.refusal not in (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE):
        return RetryLater(bootstrap.refusal.name)
    if bootstrap.log_start is None or bootstrap.log_start == UNKNOWN:
        return AskOffset(EARLIEST)  # K1023-7
    if bootstrap.refusal is ErrorCode.OFFSET_OUT_OF_RANGE and bootstrap.log_end > bootstrap.log_start:
        return MatchLogs()
    if bootstrap.jumps or (bootstrap.enabled and bootstrap.tiered and mutants.active("jump_if_nonempty")):
        return _after_tiered(bootstrap, bootstrap.log_start, mutants)
    if bootstrap.refusal is ErrorCode.OFFSET_OUT_OF_RANGE:
        return StartAt(bootstrap.log_start)  # case 2.1 (K1023-5)
    if not bootstrap.tiered:
        return RetryLater("this broker does not know yet that the topic uses remote storage")
    return _at_local_start(bootstrap, bootstrap.log_start)  # case 2.2 (K1023-5)


def _after_tiered(bootstrap: Bootstrap, log_start: int, mutants: Mutants) -> Step:
    """Start behind the last tiered offset, if the leader knows it."""
    if bootstrap.pending is None:
        return AskOffset(EARLIEST_PENDING_UPLOAD)  # K1023-7
    if bootstrap.pending.offset == UNKNOWN:
        if mutants.active("epuo_unknown_as_zero"):
            return StartAt(0)
        return _without_pending(bootstrap, log_start)
    if bootstrap.pending.offset < log_start:
        if mutants.active("epuo_no_clamp"):
            return StartAbove(bootstrap.pending.offset, log_start, bootstrap.pending.epoch)
        return _all_local(bootstrap, log_start)
    return _start(bootstrap, log_start, bootstrap.pending)


def _without_pending(bootstrap: Bootstrap, log_start: int) -> Step:
    """The leader does not know what is tiered: its log is not, or its task has not run yet, or never will (H29)."""
    if bootstrap.local_start is None:
        return AskOffset(EARLIEST_LOCAL)
    if bootstrap.local_start.offset == log_start or bootstrap.waited_ms >= bootstrap.patience_ms:
        return _start(bootstrap, log_start, bootstrap.local_start)  # K1023-8, H29
    return RetryLater("the leader does not know yet what it has in remote storage")  # K1023-9


def _all_local(bootstrap: Bootstrap, log_start: int) -> Step:
    """What is tiered ends below the log: remote storage was switched off and on again, and all of the log is local
    (K1023-10)."""
    if bootstrap.local_start is None:
        return AskOffset(EARLIEST_LOCAL)
    if bootstrap.local_start.offset > log_start:
        return RetryLater("neither the leader nor remote storage has the start of the log")
    return StartAt(log_start)


def _at_local_start(bootstrap: Bootstrap, log_start: int) -> Step:
    if bootstrap.local_start is None:
        return AskOffset(EARLIEST_LOCAL)
    return _start(bootstrap, log_start, bootstrap.local_start)


def _start(bootstrap: Bootstrap, log_start: int, place: LogPlace) -> Step:
    """Start at a place of the leader's log; above its start this needs the epoch of the record below."""
    if place.offset <= log_start:
        return StartAt(log_start)
    if place.epoch == UNKNOWN:
        return RetryLater(f"the leader does not know the epoch of offset {place.offset}")
    if place.epoch == 0:
        return StartAbove(place.offset, log_start, place.epoch)
    if bootstrap.earlier is None:
        return AskEarlierEpoch(place.epoch - 1)
    below = bootstrap.earlier.epoch if bootstrap.earlier.offset >= place.offset else place.epoch
    return StartAbove(place.offset, log_start, below)


# ---- The questions and answers, and what is done.


class _RefusedError(Exception):
    """The leader did not answer a question."""


A = TypeVar("A", ListOffsetsPartitionResponse, EpochEndOffset)


def _answer(answers: Iterable[A]) -> A:
    """The answer about the one partition of a request. Raises `_RefusedError`."""
    for answer in answers:
        if answer.error_code == ErrorCode.NONE:
            return answer
    raise _RefusedError


class TieredStart:
    """The starts of the followers of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        peers: Peers,
        remote_state: Callable[[], RemoteState | None],
        defaults: Callable[[], dict[str, str]],
        mutants: Mutants,
    ) -> None:
        """`remote_state`: None without tiered storage. `defaults`: the settings for all brokers."""
        self._config = config
        self._peers = peers
        self._remote_state = remote_state
        self._defaults = defaults
        self._mutants = mutants
        self._timeout = config.replica_socket_timeout_ms / 1000

    def run(self, followed: FollowedPartition, refusal: ErrorCode, leader_log_start: int) -> Coroutine[Any, Any, bool]:
        """Start a follower after its leader has refused its fetch; returns whether it may fetch at once."""
        bootstrap = Bootstrap(
            refusal,
            log_end=followed.partition.log.log_end_offset,
            enabled=is_on(FROM_LAST_TIERED, self._defaults(), self._config),
            tiered=followed.partition.settings.remote_storage,
            log_start=leader_log_start,
            patience_ms=self._config.follower_fetch_last_tiered_offset_timeout_ms,
        )
        return self._run(followed, bootstrap)

    async def _run(self, followed: FollowedPartition, bootstrap: Bootstrap) -> bool:
        try:
            while followed.current:
                step = next_step(bootstrap, self._mutants)
                if not isinstance(step, AskOffset | AskEarlierEpoch):
                    done = await self._finish(followed, step)
                    if done and followed.current:
                        followed.partition.jumped_to = (
                            followed.partition.log.local_start_offset if bootstrap.jumps else None
                        )
                    return done
                bootstrap = await self._answered(followed, bootstrap, step)
        except (ConnectionError, TimeoutError, _RefusedError):
            pass  # the next fetch starts this again
        return False

    async def _answered(
        self, followed: FollowedPartition, bootstrap: Bootstrap, step: AskOffset | AskEarlierEpoch
    ) -> Bootstrap:
        if isinstance(step, AskEarlierEpoch):
            return replace(bootstrap, earlier=await self._epoch_end(followed, step.epoch))
        place = await self._offset(followed, step.timestamp)
        if step.timestamp == EARLIEST:
            return replace(bootstrap, log_start=place.offset)
        if step.timestamp == EARLIEST_LOCAL:
            return replace(bootstrap, local_start=place)
        assert step.timestamp == EARLIEST_PENDING_UPLOAD
        return replace(bootstrap, pending=place, waited_ms=_waited_ms(followed, unknown=place.offset < 0))

    async def _offset(self, followed: FollowedPartition, timestamp: int) -> LogPlace:
        question = ListOffsetsPartition(followed.partition.index, followed.follower.leader_epoch, timestamp)
        topic = Topic(followed.partition.topic, [question])
        request = ListOffsetsRequest(replica_id=self._config.node_id, topics=[topic])
        response = await self._response(followed, request)
        answer = _answer(partition for topic in response.topics for partition in topic.partitions)
        return LogPlace(answer.offset, answer.leader_epoch)

    async def _epoch_end(self, followed: FollowedPartition, epoch: int) -> LogPlace:
        question = OffsetForLeaderPartition(followed.partition.index, followed.follower.leader_epoch, epoch)
        topic = OffsetForLeaderTopic(followed.partition.topic, [question])
        request = OffsetForLeaderEpochRequest(replica_id=self._config.node_id, topics=[topic])
        response = await self._response(followed, request)
        answer = _answer(partition for topic in response.topics for partition in topic.partitions)
        return LogPlace(answer.end_offset, answer.leader_epoch)

    async def _response(self, followed: FollowedPartition, request: Request[Response]) -> Response:
        return await self._peers.request(followed.follower.leader_id, request, self._timeout)

    async def _finish(self, followed: FollowedPartition, step: Step) -> bool:
        match step:
            case StartAt(offset):
                await followed.start_at(offset)
                return True
            case StartAbove():
                return await self._start_above(followed, step)
            case MatchLogs():
                followed.follower.diverged()
            case RetryLater(reason):
                followed.waits_for(reason)
        return False

    async def _start_above(self, followed: FollowedPartition, step: StartAbove) -> bool:
        remote = self._remote_state()
        if remote is None:
            followed.waits_for("this broker has no remote storage: set remote.log.storage.system.enable=true")
            return False
        try:
            below = await remote.below(followed.partition, step.offset, step.epoch, step.log_start)
            below = below._replace(epochs=await self._epochs_from(followed, step.log_start, below.epochs))
        except RemoteStateError as error:
            followed.waits_for(str(error))
            return False
        await followed.start_above(step.offset, self._mutated(below, step.offset))
        return True

    async def _epochs_from(
        self, followed: FollowedPartition, log_start: int, epochs: Sequence[EpochEntry]
    ) -> Sequence[EpochEntry]:
        """The epochs of a log from its start on; those before the first of `epochs` are the leader's.

        An uploading leader's log may have started above this leader's: a deletion that is not answered is known to one
        replica only (KIP-107). The start of an epoch is the end of the one before, which the leader is asked for.
        Raises `RemoteStateError`.
        """
        entries = list(epochs)
        while entries[0].start_offset > log_start:
            epoch, start = entries[0]
            earlier = await self._epoch_end(followed, epoch - 1) if epoch > 0 else LogPlace(log_start, UNDEFINED)
            if not (0 <= earlier.offset <= start and earlier.epoch < epoch):
                raise RemoteStateError(f"the leader has epoch {epoch} from offset {earlier.offset}, not from {start}")
            entries[0] = EpochEntry(epoch, max(earlier.offset, log_start))
            if earlier.offset > log_start:
                entries.insert(0, EpochEntry(earlier.epoch, earlier.offset))
        return entries

    def _mutated(self, below: StateBelow, offset: int) -> StateBelow:
        """The mutants lso_set_to_epuo, no_epoch_cache_from_remote and no_remote_producer_snapshot."""
        if self._mutants.active("lso_set_to_epuo"):
            below = below._replace(log_start=offset)
        if self._mutants.active("no_epoch_cache_from_remote"):
            below = below._replace(epochs=())
        if self._mutants.active("no_remote_producer_snapshot"):
            below = below._replace(producers=ProducerState(MAX_ID))
        return below


def few_local_records(partitions: Iterable[Partition]) -> list[TieredStarts]:
    """The replicas that started after the last tiered offset, for the controller."""
    starting = sorted(
        (followed for followed in partitions if followed.has_few_local_records), key=lambda followed: followed.key
    )
    return [TieredStarts(followed.topic_id, [followed.index]) for followed in starting]


def _waited_ms(followed: FollowedPartition, *, unknown: bool) -> int:
    """How long the leader of this epoch has not known what is tiered."""
    now = asyncio.get_running_loop().time()
    if not unknown:
        followed.unknown_since = None
        return 0
    if followed.unknown_since is None:
        followed.unknown_since = now
    return int((now - followed.unknown_since) * 1000)

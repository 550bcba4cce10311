"""The running controller: the node that leads the metadata quorum makes the decisions for the cluster.

Theory of operation: how a lease stays exclusive. A broker that gets the answer "not fenced" may act as a leader from
the moment it *sent* that heartbeat, for the time in the answer. This node gives such an answer only while it has a
recent *proof* that it leads: the start of its last append that a majority has accepted. If nothing else is committed,
the controller appends an empty record. The time in the answer is `broker.lease.ms` (at most 9/11 of
`broker.session.timeout.ms`) minus the age of the proof. So the lease ends at most `broker.lease.ms` after the proof,
and by any two clocks that gain or lose 10 % it ends within a session after the proof.

A new controller knows when the last proof can have started: an append counts once it is on a majority of voters, and
one of these has voted for the new controller. Each voter says in its vote for how long it has received nothing from any
leader (`quorum.messages.Predecessor`). A session after the last time that one of them heard a leader, no lease of an
earlier controller is left. The new controller cannot know when it was the turn of a broker to be heard, so it gives
each a full session from its own start; but the previous leader was silent since that time, so its session counts from
there. A broker that looks dead is fenced sooner, too, but not before its lease has ended.

The configuration files of two nodes may differ while an operator changes one after the other. Another controller must
wait for the time that this one uses. So this time is in the metadata log before any lease needs it. If the log has a
longer time than its own, a controller waits for that, and replaces it by its own only when the wait is over.

Waits until the leaders of new partitions act as leaders: CreateTopics and CreatePartitions answer then.

Theory of operation. A committed record names a leader. The named broker leads only after it has applied that record;
until then it answers NOT_LEADER_OR_FOLLOWER. A client that hears of a new partition too early gets that error for its
first requests. So the controller answers only after each named leader has reported that it acts on the record. Each
heartbeat of a broker carries the offset up to which it acts on the metadata log, and a broker sends a heartbeat at once
after a change of role (`server.lifecycle`).

The wait ends in time for the client (`active`). If a leader is fenced meanwhile and another broker is elected, the wait
continues for that broker. A partition that is deleted meanwhile ends its wait.

Broker sessions and leases: until when each broker counts as alive, and may answer as a leader. Pure: times are
seconds of one clock that the caller reads.

A closed session is not renewed: its broker is about to be fenced, and an answer that lets it continue as a leader must
wait for that decision. The session is opened again when the committed log shows that the broker is unfenced.

Invariant: no session ends before the lease that its broker may hold, so a broker that is fenced after its session no
longer answers. If a broker looks dead, its session is shortened to the end of that lease, but not further: a firewall
refuses connections just as the host of a dead process does.

The lease ends by the broker's clock, and this node waits for it by its own. Clocks are assumed to gain or lose at most
10 %. The wait is longer than the lease by the resulting factor of a fast and a slow clock, but at most a session.

Executes one decision at a time: decide on the committed image, append, wait until applied, answer, then the next.

So every decision sees the effects of all earlier ones. If the outcome of an append is unknown, no further decision is
possible, because the log may hold what the image does not show. The operations end then, and start again in another
term.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

from broker.clock_rates import PACE
from broker.config import BrokerConfig
from broker.controller.controller import Controller, ControllerDecision, caught_up, registered
from broker.controller.error_responses import refused
from broker.controller.image import Changes, MetadataImage
from broker.controller.log_comparison import LogComparison
from broker.errors import AppendRefusedError, CommitUncertainError, ErrorCode, NotLeaderError, ProtocolError
from broker.mutants import Mutants
from broker.peers import Peers
from broker.protocol.messages.acl_apis import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from broker.protocol.messages.broker_apis import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from broker.protocol.messages.config_apis import AlterConfigsRequest, IncrementalAlterConfigsRequest
from broker.protocol.messages.credential_apis import AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse
from broker.protocol.messages.metadata_records import NO_LEADER, encode_record
from broker.protocol.messages.partition_apis import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from broker.protocol.messages.producer_apis import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from broker.protocol.messages.topic_apis import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from broker.protocol.schema import Message
from broker.quorum.messages import Predecessor
from broker.quorum.runner import QuorumRunner
from broker.trace import Tracer

MAX_QUEUED = 1_000

T = TypeVar("T")
Decide = Callable[[MetadataImage], ControllerDecision[T]]


class _Operation(NamedTuple):
    decide: Decide[Any]
    future: asyncio.Future[Any]


class ControllerOperations:
    """The queue of one term as the active controller.

    Invariant: the leader of the quorum is the controller. When a failed append ends the operations, they also resign
    from `epoch`, the quorum's leadership. Otherwise the cluster would have no controller, and no lease would be
    renewed, while this node continues to lead.
    """

    def __init__(self, image: MetadataImage, quorum: QuorumRunner, epoch: int) -> None:
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


def longest_lease(timeout: float, lease: float) -> float:
    """The lease that a controller with these settings gives: it ends within a session by any clock. In the unit of the
    arguments."""
    return min(lease, timeout / PACE)


class Sessions:
    """The sessions of the brokers that are not fenced; each starts with a full timeout.

    `lease`: how long a broker acts on an answer, from the time of its request. Leases of earlier controllers last until
    `earlier_end` at the latest (see `active`). Such a lease continues if a broker asks this node and the answer is
    lost.
    """

    def __init__(self, timeout: float, lease: float, now: float, brokers: Iterable[int], earlier_end: float) -> None:
        self._timeout = timeout
        self._lease = min(timeout, PACE * lease)  # by this clock
        self._deadlines = dict.fromkeys(brokers, max(now + timeout, earlier_end))
        self._lease_ends = dict.fromkeys(brokers, earlier_end)

    def open(self, broker: int, now: float) -> None:
        self._lease_ends[broker] = max(now + self._lease, self._lease_ends.get(broker, now))
        self._deadlines[broker] = max(now + self._timeout, self._lease_ends[broker])

    def close(self, broker: int) -> None:
        self._deadlines.pop(broker, None)
        self._lease_ends.pop(broker, None)

    def is_open(self, broker: int) -> bool:
        return broker in self._deadlines

    def renew(self, broker: int, now: float) -> None:
        """The broker asked before `now` and is about to be answered. No effect on a closed session."""
        if broker in self._deadlines:
            self.open(broker, now)

    def lease_ends_at(self, broker: int) -> float | None:
        """When the last lease that the broker may hold has ended; None once its session is closed."""
        return self._lease_ends.get(broker)

    def end_with_lease(self, broker: int, not_before: float) -> None:
        """The broker looks dead: end its session with its lease, but not before a time, unless it asks again. No effect
        on a closed session."""
        if broker in self._deadlines:
            self._deadlines[broker] = min(self._deadlines[broker], max(not_before, self._lease_ends[broker]))

    def extend(self, by: float) -> None:
        """Extend all sessions: this process was blocked meanwhile, and may have missed signs of life."""
        for broker in self._deadlines:
            self._deadlines[broker] += by

    def expired(self, now: float) -> list[int]:
        return sorted(broker for broker, deadline in self._deadlines.items() if deadline <= now)

    def next_deadline(self) -> float | None:
        return min(self._deadlines.values(), default=None)


Key = tuple[str, int]


class _Reached(NamedTuple):
    """The offset up to which a registration of a broker acts on the metadata log."""

    broker_epoch: int
    offset: int


class _Named(NamedTuple):
    """A partition's leader in the metadata. It leads once it acts on the metadata up to `offset`."""

    leader: int
    leader_epoch: int
    offset: int


class Activation:
    """The offsets that brokers reported. They are kept over this node's terms as controller."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._reached: dict[int, _Reached] = {}
        self._news = asyncio.Event()

    def heard(self, broker_id: int, broker_epoch: int, offset: int) -> None:
        """A registration of a broker acts on the metadata log up to `offset`."""
        reached = self._reached.get(broker_id)
        if reached is not None and reached.broker_epoch == broker_epoch:
            offset = max(offset, reached.offset)
        self._reached[broker_id] = _Reached(broker_epoch, offset)
        self._news.set()

    def look_again(self) -> None:
        """Wake the waiting calls: the metadata have changed, or the term is over."""
        self._news.set()

    async def until_led(self, keys: Collection[Key], deadline: float, active: Callable[[], bool]) -> list[Key]:
        """Return when the leaders of all these partitions lead. At `deadline` (seconds of the loop's clock), or when
        this node stops being `active`, return the partitions whose leaders may not lead yet."""
        named: dict[Key, _Named] = {}
        waiting = list(keys)
        loop = asyncio.get_running_loop()
        while waiting := [key for key in waiting if not self._leads(key, named)]:
            if not active() or loop.time() >= deadline:
                break
            self._news.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._news.wait()
            except TimeoutError:
                break
        return waiting

    def _leads(self, key: Key, named: dict[Key, _Named]) -> bool:
        state = self._image.partition(*key)
        if state is None:
            return True
        if state.leader == NO_LEADER or not self._image.is_available(state.leader):
            return False
        named_leader = named.get(key)
        if named_leader is None or named_leader[:2] != (state.leader, state.leader_epoch):
            named_leader = named[key] = _Named(state.leader, state.leader_epoch, self._image.offset)
        reached = self._reached.get(state.leader)
        if reached is None or reached.broker_epoch != self._image.brokers[state.leader].epoch:
            return False
        return reached.offset >= named_leader.offset


# A timer that fires later than this shows that the loop was blocked, and its sockets may hold unread heartbeats.
STALL_SECONDS = 0.1
CONFIGS_TIMEOUT_MS = 10_000  # these requests have no timeout of their own
ELECTED_AT_ONCE = 1_000  # partitions; their records are far below the limit of one operation
REFUSED_PAUSE_S = 1.0  # before a refused election is tried again


class _Term:
    """The state of one term as active controller."""

    def __init__(
        self, epoch: int, operations: ControllerOperations, sessions: Sessions, comparison: LogComparison
    ) -> None:
        self.epoch = epoch
        self.operations = operations
        self.sessions = sessions
        self.comparison = comparison
        self.timer: asyncio.TimerHandle | None = None
        self.timer_at = 0.0
        self.successors: asyncio.TimerHandle | None = None
        self.earlier_over: asyncio.TimerHandle | None = None
        self.proof: asyncio.Future[None] | None = None

    def end(self) -> None:
        self.operations.close()
        self.comparison.end()
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        for timer in (self.successors, self.earlier_over):
            if timer is not None:
                timer.cancel()


class ActiveController:
    """The controller of one node; it answers NOT_CONTROLLER unless its node leads the quorum.

    The node owns the image and calls `leadership_changed` and, after each committed batch, `metadata_applied`.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        image: MetadataImage,
        quorum: QuorumRunner,
        peers: Peers,
        rng: random.Random,
        tracer: Tracer,
        mutants: Mutants,
    ) -> None:
        self._image = image
        self._quorum = quorum
        self._peers = peers
        self._node_id = config.node_id
        self._tracer = tracer
        self._rules = Controller(config, rng, mutants)
        self._activation = Activation(image)
        self._session_timeout_ms = config.broker_session_timeout_ms
        self._lease_ms = longest_lease(config.broker_session_timeout_ms, config.broker_lease_ms)
        self._heartbeat_interval_s = config.broker_heartbeat_interval_ms / 1000
        self._refused_is_dead = mutants.active("refused_is_dead")
        self._bounce_unseen = mutants.active("bounce_unseen")
        self._growth_answered_early = mutants.active("growth_answered_early")
        self._proof_lifetime = (config.broker_session_timeout_ms - self._lease_ms) / 1000
        self._term: _Term | None = None

    @property
    def is_active(self) -> bool:
        return self._term is not None and not self._term.operations.closed

    @property
    def rules(self) -> Controller:
        """The rules by which this node decides when it is the controller. A query through them decides nothing."""
        return self._rules

    @property
    def term_epoch(self) -> int:
        """The quorum's epoch in which this node decides; -1 while it does not."""
        return self._term.epoch if self._term is not None and self.is_active else -1

    @property
    def proven_at(self) -> float:
        """A time of the loop's clock, in seconds, at which this node certainly led; the far past without a proof."""
        return float("-inf") if self._term is None else self._term.operations.proven_at

    def lease_ends_at(self, broker_id: int) -> float | None:
        """When every lease that the broker may have is over, in seconds of the loop's clock; None: it has none."""
        return None if self._term is None else self._term.sessions.lease_ends_at(broker_id)

    # --- events of the node

    def leadership_changed(self, epoch: int | None, predecessor: Predecessor | None = None) -> None:
        """This node leads `epoch`, has committed its first record, and has applied all records before it. None: it no
        longer leads. `predecessor` None: earlier leaders may have acted until now.

        Every broker gets a full session, because this node does not know when it was last heard. The predecessor's
        session began when it was last heard as a leader, but it has the time for one heartbeat. Leases of earlier
        controllers last no longer than the metadata log says.
        """
        self._end_term()
        self._activation.look_again()
        if epoch is None:
            return
        now = asyncio.get_running_loop().time()
        unfenced = [broker.id for broker in self._image.brokers.values() if not broker.fenced]
        earlier = max(self._session_timeout_ms, self._image.session_timeout_ms) / 1000
        earlier_end = earlier + (now if predecessor is None else min(now, predecessor.heard_at))
        sessions = Sessions(self._session_timeout_ms / 1000, self._lease_ms / 1000, now, unfenced, earlier_end)
        if predecessor is not None and predecessor.leader_id not in (None, self._node_id):
            sessions.end_with_lease(predecessor.leader_id, now + self._heartbeat_interval_s)
        operations = ControllerOperations(self._image, self._quorum, epoch)
        term = self._term = _Term(epoch, operations, sessions, self._log_comparison(operations))
        term.operations.submit(self._rules.first_records, bounded=False).add_done_callback(_retrieve)
        if self._image.session_timeout_ms > self._session_timeout_ms:
            term.earlier_over = asyncio.get_running_loop().call_at(now + PACE * earlier, self._outlive, term)
        self._schedule(term)
        self._rules.handovers.begin_term(self._image.offset)
        for topic, index, partition in self._image.partitions():
            if partition.leader == NO_LEADER:
                # An earlier controller took the partition from an unknown leader, whose lease may not be over. The
                # replicas that may follow can be away, or have lost their logs, and return before that.
                self._rules.handovers.begin_after((topic.name, index), earlier_end)
        self._elect_successors(term)
        self._tracer.emit("controller_active", epoch=epoch)
        term.comparison.look_at((topic.name, index) for topic, index, _ in self._image.partitions())

    def metadata_applied(self, changes: Changes) -> None:
        """Committed records were applied to the image."""
        term = self._term
        if term is None:
            return
        now = asyncio.get_running_loop().time()
        for broker_id in sorted(changes.brokers):
            if self._image.is_available(broker_id):
                term.sessions.open(broker_id, now)
            else:
                term.sessions.close(broker_id)
                self._rules.handovers.lease_over(broker_id)
        self._rules.handovers.applied(self._image, term.sessions.lease_ends_at)
        self._elect_successors(term)
        self._schedule(term)
        term.comparison.look_at(changes.partitions)
        term.operations.image_advanced()
        self._activation.look_again()

    def _outlive(self, term: _Term) -> None:
        """All leases of earlier controllers have ended, by any clock."""
        term.operations.submit(self._rules.outlive_earlier_leases, bounded=False).add_done_callback(_retrieve)

    def broker_looks_dead(self, broker_id: int, broker_epoch: int) -> None:
        """The broker's address refuses connections from here. It is fenced when its lease has ended, unless it is heard
        before that."""
        term, broker = self._term, self._image.brokers.get(broker_id)
        if term is None or term.operations.closed or broker is None or broker.epoch != broker_epoch:
            return
        if self._refused_is_dead:
            self._fence(term, broker_id)
            return
        term.sessions.end_with_lease(broker_id, asyncio.get_running_loop().time())
        self._schedule(term)

    def broker_ended(self, broker_id: int, broker_epoch: int) -> None:
        """This registration of a broker holds no lease any more, as its process has ended: it is fenced at once."""
        term, broker = self._term, self._image.brokers.get(broker_id)
        if term is None or term.operations.closed or broker is None or broker.epoch != broker_epoch:
            return
        if term.sessions.is_open(broker_id) and not self._bounce_unseen:
            self._fence(term, broker_id)

    def broker_acts(self, broker_id: int, broker_epoch: int, metadata_offset: int) -> None:
        """This registration of a broker acts on the metadata log up to an offset."""
        self._activation.heard(broker_id, broker_epoch, metadata_offset)

    async def stop(self) -> None:
        """End the term and wait for its task. Requests that are not committed get an error."""
        term = self._term
        self._end_term()
        if term is not None:
            await term.operations.stop()

    def _end_term(self) -> None:
        if self._term is not None:
            self._term.end()
            self._rules.handovers.clear()
            self._tracer.emit("controller_inactive", epoch=self._term.epoch)
            self._term = None

    def _log_comparison(self, operations: ControllerOperations) -> LogComparison:
        return LogComparison(
            node_id=self._node_id,
            image=self._image,
            rules=self._rules,
            submit=partial(operations.submit, bounded=False),
            peers=self._peers,
            tracer=self._tracer,
        )

    # --- requests of brokers

    async def handle_broker_registration(
        self, request: BrokerRegistrationRequest, _version: int
    ) -> BrokerRegistrationResponse:
        try:
            return await self._run(partial(self._rules.register, request=request))
        except ProtocolError as error:
            return BrokerRegistrationResponse(error_code=_code(error))

    async def handle_broker_heartbeat(self, request: BrokerHeartbeatRequest, _version: int) -> BrokerHeartbeatResponse:
        try:
            return await self._heartbeat(self._active(), request)
        except ProtocolError as error:
            return BrokerHeartbeatResponse(error_code=_code(error))

    async def handle_alter_partition(self, request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
        """The error REQUEST_TIMED_OUT means that the change may or may not have been made."""
        try:
            return await self._run(partial(self._rules.alter_partition, request=request, version=version))
        except ProtocolError as error:
            return AlterPartitionResponse(error_code=_code(error))

    async def handle_allocate_producer_ids(
        self, request: AllocateProducerIdsRequest, _version: int
    ) -> AllocateProducerIdsResponse:
        """The error REQUEST_TIMED_OUT means that a block of ids may have been used up."""
        try:
            return await self._run(partial(self._rules.allocate_producer_ids, request=request))
        except ProtocolError as error:
            return AllocateProducerIdsResponse(error_code=_code(error))

    # --- requests of clients

    async def handle_create_topics(self, request: CreateTopicsRequest, _version: int) -> CreateTopicsResponse:
        """Answers when the leaders of the new topics lead, but in time. REQUEST_TIMED_OUT: perhaps not created."""
        started = asyncio.get_running_loop().time()
        answer = await self._answer(request, partial(self._rules.create_topics, request=request), request.timeout_ms)
        if not request.validate_only:
            created = [topic.name for topic in answer.topics if topic.error_code == ErrorCode.NONE]
            await self._until_led(dict.fromkeys(created, 0), started, request.timeout_ms)
        return answer

    async def handle_delete_topics(self, request: DeleteTopicsRequest, _version: int) -> DeleteTopicsResponse:
        return await self._answer(request, partial(self._rules.delete_topics, request=request), request.timeout_ms)

    async def handle_elect_leaders(self, request: ElectLeadersRequest, _version: int) -> ElectLeadersResponse:
        """Answers when the elected leaders lead, or at the timeout."""
        started = asyncio.get_running_loop().time()
        answer = await self._answer(request, partial(self._rules.elect_leaders, request=request), request.timeout_ms)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(started + max(0, request.timeout_ms) / 1000):
                await self._rules.handovers.all_over()
        return answer

    async def handle_create_partitions(
        self, request: CreatePartitionsRequest, _version: int
    ) -> CreatePartitionsResponse:
        """Answers when the leaders of the new partitions lead, but in time. REQUEST_TIMED_OUT: perhaps not created."""
        started = asyncio.get_running_loop().time()
        old_counts = {name: len(topic.partitions) for name, topic in self._image.topics.items()}
        decide = partial(self._rules.create_partitions, request=request)
        if self._growth_answered_early and self._term is not None and not self._term.operations.closed:
            early = decide(self._image).answer(self._image)
            self._term.operations.submit(decide).add_done_callback(_retrieve)
            return early
        answer = await self._answer(request, decide, request.timeout_ms)
        if not request.validate_only:
            enlarged = {
                result.name: old_counts.get(result.name, 0)
                for result in answer.results
                if result.error_code == ErrorCode.NONE
            }
            await self._until_led(enlarged, started, request.timeout_ms)
        return answer

    async def _until_led(self, old_counts: Mapping[str, int], started: float, timeout_ms: int) -> None:
        """Wait until the leaders of new partitions lead, at most half of the request's timeout: the partitions are
        committed, so the answer is no error, and it must arrive before the client gives up. A request that comes before
        a leader leads gets an error that clients retry.

        `old_counts`: by topic the number of partitions that it had before.
        """
        keys: list[Key] = []
        for name, count in old_counts.items():
            topic = self._image.topics.get(name)
            keys += [(name, index) for index in range(count, len(topic.partitions) if topic is not None else 0)]
        deadline = started + max(0, timeout_ms) / 2000
        await self._activation.until_led(keys, deadline, lambda: self.is_active)

    async def handle_alter_configs(
        self, request: AlterConfigsRequest | IncrementalAlterConfigsRequest, _version: int
    ) -> Message:
        return await self._answer(request, partial(self._rules.alter_configs, request=request), CONFIGS_TIMEOUT_MS)

    async def handle_alter_reassignments(
        self, request: AlterPartitionReassignmentsRequest, _version: int
    ) -> AlterPartitionReassignmentsResponse:
        decide = partial(self._rules.alter_reassignments, request=request)
        return await self._answer(request, decide, request.timeout_ms)

    async def handle_list_reassignments(
        self, request: ListPartitionReassignmentsRequest, _version: int
    ) -> ListPartitionReassignmentsResponse:
        decide = partial(self._rules.list_reassignments, request=request)
        return await self._answer(request, decide, request.timeout_ms)

    async def handle_create_acls(self, request: CreateAclsRequest, _version: int) -> CreateAclsResponse:
        return await self._answer(request, partial(self._rules.create_acls, request=request), CONFIGS_TIMEOUT_MS)

    async def handle_delete_acls(self, request: DeleteAclsRequest, _version: int) -> DeleteAclsResponse:
        return await self._answer(request, partial(self._rules.delete_acls, request=request), CONFIGS_TIMEOUT_MS)

    async def handle_alter_scram_credentials(
        self, request: AlterUserScramCredentialsRequest, _version: int
    ) -> AlterUserScramCredentialsResponse:
        decide = partial(self._rules.alter_scram_credentials, request=request)
        return await self._answer(request, decide, CONFIGS_TIMEOUT_MS)

    async def _answer(self, request: Message, decide: Decide[T], timeout_ms: int) -> T:
        """The answer to a client's request, also if the whole request is refused."""
        try:
            return await self._run_in_time(decide, timeout_ms)
        except ProtocolError as error:
            return cast(T, refused(request, ProtocolError(_code(error), str(error))))

    # --- running operations

    def _active(self) -> _Term:
        if self._term is None or self._term.operations.closed:
            raise NotLeaderError("this node is not the active controller")
        return self._term

    async def _run(self, decide: Decide[T]) -> T:
        return await self._active().operations.submit(decide)

    async def _run_in_time(self, decide: Decide[T], timeout_ms: int) -> T:
        """Wait at most `timeout_ms`. The operation itself continues: a client may ask not to wait at all."""
        operation = self._active().operations.submit(decide)
        operation.add_done_callback(_retrieve)
        try:
            return await asyncio.wait_for(asyncio.shield(operation), max(0, timeout_ms) / 1000)
        except TimeoutError:
            message = f"not committed within {timeout_ms} ms; it may still be committed"
            raise ProtocolError(ErrorCode.REQUEST_TIMED_OUT, message) from None

    # --- heartbeats

    async def _heartbeat(self, term: _Term, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        """Renew a session at once. A change of the broker's state waits for its turn among the operations."""
        broker = registered(self._image, request.broker_id, request.broker_epoch)
        self.broker_acts(broker.id, broker.epoch, request.current_metadata_offset)
        self._rules.tiered_starts.reported(broker.id, broker.epoch, request.tiered_starts)
        leaves = request.want_fence or request.want_shut_down
        if leaves:
            term.sessions.close(broker.id)
        if not term.sessions.is_open(broker.id):
            # This operation opens or fences a closed session, so it continues even if the caller is gone.
            operation = term.operations.submit(partial(self._rules.heartbeat, request=request), bounded=False)
            operation.add_done_callback(_retrieve)
            if leaves:
                operation.add_done_callback(partial(self._again_unless_fenced, term, broker.id))
            await asyncio.shield(operation)
        if self._image.is_available(request.broker_id):
            await self._prove_leadership(term)
        # The state may have changed during the waits above: check again, and do not wait from here on.
        broker = registered(self._image, request.broker_id, request.broker_epoch)
        knows = self._rules.handovers.heard(broker.id, request.current_metadata_offset)
        self._elect_successors(term)
        stays = term.sessions.is_open(broker.id)
        if stays and not knows:
            message = f"broker {broker.id} has lost a leadership and has not applied that yet: its lease is not renewed"
            raise ProtocolError(ErrorCode.REQUEST_TIMED_OUT, message)
        if stays:
            term.sessions.renew(broker.id, asyncio.get_running_loop().time())
        return BrokerHeartbeatResponse(
            is_caught_up=caught_up(broker, request),
            is_fenced=not stays,
            should_shut_down=request.want_shut_down,
            lease_ms=int(self._lease_ms - 1000 * self._proof_age(term)) if stays else 0,
        )

    async def _prove_leadership(self, term: _Term) -> None:
        """Return when the last proof is recent enough; renew it first if needed. Raises `NotLeaderError` without proof,
        and while the metadata log does not contain the duration of leases."""
        age = self._proof_age(term)
        if age > self._proof_lifetime / 2:
            if term.proof is None or term.proof.done():
                term.proof = term.operations.submit(self._rules.prove_leadership, bounded=False)
                term.proof.add_done_callback(_retrieve)
            if age > self._proof_lifetime:
                await asyncio.shield(term.proof)
                age = self._proof_age(term)
        timeout_applies = self._image.session_timeout_ms >= self._session_timeout_ms
        if age > self._proof_lifetime or term.operations.closed or not timeout_applies:
            raise NotLeaderError("it is not certain that this node still leads")

    def _proof_age(self, term: _Term) -> float:
        return asyncio.get_running_loop().time() - term.operations.proven_at

    # --- transfers of leadership

    def _elect_successors(self, term: _Term) -> None:
        """Elect for the partitions whose leaders no longer act, and set a timer for the end of the next lease."""
        if term.operations.closed:
            return
        loop, handovers = asyncio.get_running_loop(), self._rules.handovers
        if keys := handovers.take_over(loop.time()):
            for position in range(0, len(keys), ELECTED_AT_ONCE):
                elected_keys = keys[position : position + ELECTED_AT_ONCE]
                electing = partial(self._rules.elect_successors, keys=elected_keys)
                operation = term.operations.submit(electing, bounded=False)
                operation.add_done_callback(partial(self._again_unless_elected, term, elected_keys))
        if term.successors is not None:
            term.successors.cancel()
        ends_at = handovers.next_end()
        if ends_at is not None:
            term.successors = loop.call_at(ends_at, self._elect_successors, term)

    def _again_unless_elected(self, term: _Term, keys: list[tuple[str, int]], operation: asyncio.Future[None]) -> None:
        """Repeat a refused election. The refusal of one operation does not end the term, and nothing else would repeat
        it."""
        if _failed(operation) and not term.operations.closed:
            self._rules.handovers.put_off(keys, asyncio.get_running_loop().time() + REFUSED_PAUSE_S)
            self._elect_successors(term)

    # --- sessions

    def _schedule(self, term: _Term) -> None:
        """Keep one timer, set to the earliest deadline or earlier."""
        deadline = term.sessions.next_deadline()
        if deadline is None or (term.timer is not None and term.timer_at <= deadline):
            return
        if term.timer is not None:
            term.timer.cancel()
        term.timer_at = deadline
        term.timer = asyncio.get_running_loop().call_at(deadline, self._sweep, term)

    def _sweep(self, term: _Term) -> None:
        """Fence the brokers whose sessions have expired."""
        term.timer = None
        if term.operations.closed:
            return
        now = asyncio.get_running_loop().time()
        late = now - term.timer_at
        if late > STALL_SECONDS:
            term.sessions.extend(late)
        for broker_id in term.sessions.expired(now):
            self._fence(term, broker_id)
        self._schedule(term)

    def _fence(self, term: _Term, broker_id: int) -> None:
        epoch = self._image.brokers[broker_id].epoch
        term.sessions.close(broker_id)
        self._tracer.emit("session_expired", broker=broker_id, broker_epoch=epoch)
        fencing = partial(self._rules.fence, broker_id=broker_id, broker_epoch=epoch)
        operation = term.operations.submit(fencing, bounded=False)
        operation.add_done_callback(partial(self._again_unless_fenced, term, broker_id))

    def _again_unless_fenced(self, term: _Term, broker_id: int, operation: asyncio.Future[None]) -> None:
        """A broker that could not be fenced is still registered: it gets another session and is fenced after that."""
        error = _failed(operation)
        if error is None or term.operations.closed:
            return
        self._tracer.emit("fencing_refused", broker=broker_id, reason=str(error))
        if self._image.is_available(broker_id):
            term.sessions.open(broker_id, asyncio.get_running_loop().time())
            self._schedule(term)


def _code(error: ProtocolError) -> ErrorCode:
    return ErrorCode.NOT_CONTROLLER if isinstance(error, NotLeaderError) else error.code


def _failed(future: asyncio.Future[Any]) -> BaseException | None:
    """The error of a failed operation; None if it has not failed."""
    return None if future.cancelled() else future.exception()


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Mark the error as retrieved: the caller may be gone, and the next caller gets the same error."""
    _failed(future)

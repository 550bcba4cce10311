"""The running controller: the node that leads the metadata quorum decides for the cluster.

How a lease stays exclusive. A broker that gets the answer "not fenced" may act as a leader for `broker.lease.ms` after
it *sent* that heartbeat. Another controller fences it no earlier than `broker.session.timeout.ms` after it came to
power. So such an answer is given only when this node is known to have led at most the difference of the two ago; the
proof is the begin of its last append that a majority has taken since. While nothing else is committed, an empty record
serves.
"""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import Any, TypeVar

from broker.config import BrokerConfig
from broker.controller.controller import Controller, caught_up, registered
from broker.controller.image import Changes, MetadataImage
from broker.controller.operations import Decide, Operations, QuorumLog
from broker.controller.sessions import Sessions
from broker.controller.topics import deletion_refused, topic_refused, topics_to_delete
from broker.errors import ErrorCode, NotLeaderError, ProtocolError
from broker.mutants import Mutants
from broker.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from broker.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from broker.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from broker.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from broker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from broker.trace import Tracer

# A timer that fires later than this means that the loop stood still, and heartbeats may lie unread in its sockets.
STALL_SECONDS = 0.1

T = TypeVar("T")


class _Term:
    """What lives from becoming the active controller until that ends."""

    def __init__(self, epoch: int, operations: Operations, sessions: Sessions) -> None:
        self.epoch = epoch
        self.operations = operations
        self.sessions = sessions
        self.timer: asyncio.TimerHandle | None = None
        self.timer_at = 0.0
        self.proof: asyncio.Future[None] | None = None

    def end(self) -> None:
        self.operations.close()
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class ActiveController:
    """The controller of one node; it answers NOT_CONTROLLER unless its node leads the quorum.

    The node owns the image and calls `leadership_changed` and, after each committed batch, `metadata_applied`.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        image: MetadataImage,
        quorum: QuorumLog,
        rng: random.Random,
        tracer: Tracer,
        mutants: Mutants,
    ) -> None:
        self._image = image
        self._quorum = quorum
        self._tracer = tracer
        self._rules = Controller(config, rng, mutants)
        self._session_timeout = config.broker_session_timeout_ms / 1000
        self._proof_lifetime = (config.broker_session_timeout_ms - config.broker_lease_ms) / 1000
        self._term: _Term | None = None

    @property
    def is_active(self) -> bool:
        return self._term is not None and not self._term.operations.closed

    # --- what the node tells

    def leadership_changed(self, epoch: int | None) -> None:
        """This node leads `epoch`, its first record committed and all before it applied; or it leads no more (None).

        Every broker gets a full session: nothing is known about when it was last heard of.
        """
        self._end_term()
        if epoch is None:
            return
        now = asyncio.get_running_loop().time()
        unfenced = [broker.id for broker in self._image.brokers.values() if not broker.fenced]
        sessions = Sessions(self._session_timeout, now, unfenced)
        term = _Term(epoch, Operations(self._image, self._quorum, epoch), sessions)
        self._term = term
        term.operations.submit(self._rules.first_records, bounded=False).add_done_callback(_retrieve)
        self._schedule(term)
        self._tracer.emit("controller_active", epoch=epoch)

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
        self._schedule(term)
        term.operations.image_advanced()

    async def stop(self) -> None:
        """End the term and wait for its task. What was asked and not committed is answered with an error."""
        term = self._term
        self._end_term()
        if term is not None:
            await term.operations.stop()

    def _end_term(self) -> None:
        if self._term is not None:
            self._term.end()
            self._tracer.emit("controller_inactive", epoch=self._term.epoch)
            self._term = None

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
        """REQUEST_TIMED_OUT means that the change may or may not have been made."""
        try:
            return await self._run(partial(self._rules.alter_partition, request=request, version=version))
        except ProtocolError as error:
            return AlterPartitionResponse(error_code=_code(error))

    # --- requests of clients

    async def handle_create_topics(self, request: CreateTopicsRequest, _version: int) -> CreateTopicsResponse:
        try:
            return await self._run_in_time(partial(self._rules.create_topics, request=request), request.timeout_ms)
        except ProtocolError as error:
            refusal = ProtocolError(_code(error), str(error))
            return CreateTopicsResponse(topics=[topic_refused(topic.name, refusal) for topic in request.topics])

    async def handle_delete_topics(self, request: DeleteTopicsRequest, _version: int) -> DeleteTopicsResponse:
        try:
            return await self._run_in_time(partial(self._rules.delete_topics, request=request), request.timeout_ms)
        except ProtocolError as error:
            refusal = ProtocolError(_code(error), str(error))
            states = topics_to_delete(request)
            return DeleteTopicsResponse(responses=[deletion_refused(state, refusal) for state in states])

    # --- running operations

    def _active(self) -> _Term:
        if self._term is None or self._term.operations.closed:
            raise NotLeaderError("this node is not the active controller")
        return self._term

    async def _run(self, decide: Decide[T]) -> T:
        return await self._active().operations.submit(decide)

    async def _run_in_time(self, decide: Decide[T], timeout_ms: int) -> T:
        """Wait so long and no longer. The operation itself goes on: a client may ask not to wait at all."""
        operation = self._active().operations.submit(decide)
        operation.add_done_callback(_retrieve)
        try:
            return await asyncio.wait_for(asyncio.shield(operation), max(0, timeout_ms) / 1000)
        except TimeoutError:
            message = f"not committed within {timeout_ms} ms; it may happen yet"
            raise ProtocolError(ErrorCode.REQUEST_TIMED_OUT, message) from None

    # --- heartbeats

    async def _heartbeat(self, term: _Term, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        """Renew a session at once; whatever changes the broker's state waits its turn among the operations."""
        broker = registered(self._image, request.broker_id, request.broker_epoch)
        if request.want_fence or request.want_shut_down:
            term.sessions.close(broker.id)
        if not term.sessions.is_open(broker.id):
            # A closed session is opened or fenced by this operation: it goes on even when nobody waits any more.
            operation = term.operations.submit(partial(self._rules.heartbeat, request=request), bounded=False)
            operation.add_done_callback(_retrieve)
            await asyncio.shield(operation)
        if self._image.is_available(request.broker_id):
            await self._prove_leadership(term)
        # Others may have acted during the waits above: look again, and from here on wait for nothing.
        broker = registered(self._image, request.broker_id, request.broker_epoch)
        stays = term.sessions.is_open(broker.id)
        if stays:
            term.sessions.renew(broker.id, asyncio.get_running_loop().time())
        return BrokerHeartbeatResponse(
            is_caught_up=caught_up(broker, request),
            is_fenced=not stays,
            should_shut_down=request.want_shut_down,
        )

    async def _prove_leadership(self, term: _Term) -> None:
        """Return once the last proof is young enough; renew it beforehand. Raises `NotLeaderError` without proof."""
        age = self._proof_age(term)
        if age > self._proof_lifetime / 2:
            if term.proof is None or term.proof.done():
                term.proof = term.operations.submit(self._rules.prove_leadership, bounded=False)
                term.proof.add_done_callback(_retrieve)
            if age > self._proof_lifetime:
                await asyncio.shield(term.proof)
                age = self._proof_age(term)
        if age > self._proof_lifetime or term.operations.closed:
            raise NotLeaderError("it is not certain that this node still leads")

    def _proof_age(self, term: _Term) -> float:
        return asyncio.get_running_loop().time() - term.operations.proven_at

    # --- sessions

    def _schedule(self, term: _Term) -> None:
        """Keep one timer, at the earliest deadline or before it."""
        deadline = term.sessions.next_deadline()
        if deadline is None or (term.timer is not None and term.timer_at <= deadline):
            return
        if term.timer is not None:
            term.timer.cancel()
        term.timer_at = deadline
        term.timer = asyncio.get_running_loop().call_at(deadline, self._sweep, term)

    def _sweep(self, term: _Term) -> None:
        """Fence the brokers that were not heard of in time."""
        term.timer = None
        if term.operations.closed:
            return
        now = asyncio.get_running_loop().time()
        late = now - term.timer_at
        if late > STALL_SECONDS:
            term.sessions.extend(late)
        for broker_id in term.sessions.expired(now):
            epoch = self._image.brokers[broker_id].epoch
            term.sessions.close(broker_id)
            self._tracer.emit("session_expired", broker=broker_id, broker_epoch=epoch)
            fencing = partial(self._rules.fence, broker_id=broker_id, broker_epoch=epoch)
            term.operations.submit(fencing, bounded=False).add_done_callback(_retrieve)
        self._schedule(term)


def _code(error: ProtocolError) -> ErrorCode:
    return ErrorCode.NOT_CONTROLLER if isinstance(error, NotLeaderError) else error.code


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Perhaps nobody waits for this one: if it fails, whoever comes next is told the same."""
    if not future.cancelled():
        future.exception()

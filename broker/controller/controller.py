"""The decisions of the controller. Pure: each reads the committed image and says which records to commit, and what to
answer once they are. What it does not say it does not do; `active` runs one decision at a time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from broker.config import BrokerConfig
from broker.controller.image import BrokerImage, MetadataImage
from broker.controller.isr_decisions import alter_partitions
from broker.controller.partition_elections import broker_leaves, broker_returns, same_leader_in_next_epoch
from broker.controller.topics import create_topics, delete_topics
from broker.errors import ErrorCode, ProtocolError
from broker.mutants import Mutants
from broker.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from broker.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from broker.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from broker.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from broker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from broker.protocol.messages.metadata_records import (
    OWN_OFFSET,
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ClusterIdRecord,
    MetadataRecord,
    NoOpRecord,
    RegisterBrokerRecord,
)

FENCE = 1
UNFENCE = -1

T = TypeVar("T")


@dataclass(frozen=True)
class Decision(Generic[T]):
    """Records to commit together, and the answer from the image in which they are applied."""

    records: Sequence[MetadataRecord]
    answer: Callable[[MetadataImage], T]


class Controller:
    """The rules. Raises `ProtocolError` where a whole request is refused."""

    def __init__(self, config: BrokerConfig, rng: random.Random, mutants: Mutants) -> None:
        self._config = config
        self._rng = rng
        self._bounce_unseen = mutants.active("bounce_unseen") or mutants.active("truncate_to_hw")

    # --- the life of a broker

    def register(
        self, image: MetadataImage, request: BrokerRegistrationRequest
    ) -> Decision[BrokerRegistrationResponse]:
        """A process announces itself. Its broker epoch is the offset of its registration.

        Another incarnation on the same data directory means that the old process is gone, whether or not its session
        has run out: only one process at a time holds the directory's lock. It starts fenced and without its old places
        (H12), so that nothing it lost with the old process is counted on. Another directory may be a second process
        that was given the same number by mistake: it is refused while the first one's session lasts. Raises
        `ProtocolError`.
        """
        if image.cluster_id is not None and request.cluster_id != image.cluster_id:
            message = f"this cluster is {image.cluster_id!r}, not {request.cluster_id!r}"
            raise ProtocolError(ErrorCode.INCONSISTENT_CLUSTER_ID, message)
        if not request.listeners:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, "a broker needs a listener")
        known = image.brokers.get(request.broker_id)
        record = RegisterBrokerRecord(
            broker_id=request.broker_id,
            incarnation_id=request.incarnation_id,
            broker_epoch=OWN_OFFSET,
            end_points=[
                BrokerEndpoint(listener.name, listener.host, listener.port, listener.security_protocol)
                for listener in request.listeners
            ],
            rack=request.rack,
            log_dirs=request.log_dirs,
        )
        records: list[MetadataRecord] = [record]
        if known is not None and known.incarnation == request.incarnation_id:
            # A retry, whose first answer was lost: the same registration, not a new one.
            record.broker_epoch, record.fenced = known.epoch, known.fenced
        elif known is not None:
            if not known.fenced and known.directories != tuple(request.log_dirs):
                message = f"broker {request.broker_id} is alive at {known.host}:{known.port}, on another data directory"
                raise ProtocolError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, message)
            records += self._bounce(image, known, record)

        def answer(after: MetadataImage) -> BrokerRegistrationResponse:
            return BrokerRegistrationResponse(broker_epoch=after.brokers[request.broker_id].epoch)

        return Decision(records, answer)

    def _bounce(
        self, image: MetadataImage, known: BrokerImage, record: RegisterBrokerRecord
    ) -> Sequence[MetadataRecord]:
        """What the end of the old incarnation changes; every partition that it led gets a new epoch (K101-10)."""
        if self._bounce_unseen and not known.fenced:
            record.fenced = False
            return same_leader_in_next_epoch(image, known.id)
        return broker_leaves(image, known.id, bump_all=True)

    def heartbeat(self, image: MetadataImage, request: BrokerHeartbeatRequest) -> Decision[None]:
        """What a heartbeat changes: a broker that is ready is let in, one that wants to leave is let go.

        A broker is ready once it has applied the log up to its own registration and fencing: from there on it knows
        what it leads. One that came back from being cut off would otherwise be given a lease for leaderships that it
        has lost, and answer stale reads under it.
        """
        broker = registered(image, request.broker_id, request.broker_epoch)
        if request.want_fence or request.want_shut_down:
            return self.fence(image, broker.id, broker.epoch)
        if broker.fenced and caught_up(broker, request):
            change = BrokerRegistrationChangeRecord(broker.id, broker.epoch, fenced=UNFENCE)
            return Decision([change, *broker_returns(image, broker.id)], _nothing)
        return Decision([], _nothing)

    def fence(self, image: MetadataImage, broker_id: int, broker_epoch: int) -> Decision[None]:
        """Take a broker out of every ISR and off every leadership; nothing when it has been, or has come back since."""
        broker = image.brokers.get(broker_id)
        if broker is None or broker.epoch != broker_epoch or broker.fenced:
            return Decision([], _nothing)
        change = BrokerRegistrationChangeRecord(broker_id, broker_epoch, fenced=FENCE)
        return Decision([change, *broker_leaves(image, broker_id)], _nothing)

    # --- topics and partitions

    def create_topics(self, image: MetadataImage, request: CreateTopicsRequest) -> Decision[CreateTopicsResponse]:
        records, response = create_topics(image, request, self._config, self._rng)
        return Decision(records, lambda _: response)

    def delete_topics(self, image: MetadataImage, request: DeleteTopicsRequest) -> Decision[DeleteTopicsResponse]:
        records, response = delete_topics(image, request)
        return Decision(records, lambda _: response)

    def alter_partition(
        self, image: MetadataImage, request: AlterPartitionRequest, version: int
    ) -> Decision[AlterPartitionResponse]:
        records, response = alter_partitions(image, request, version)
        return Decision(records, lambda _: response)

    # --- the controller itself

    def first_records(self, image: MetadataImage) -> Decision[None]:
        """What a new controller commits: the cluster's id, if it is the first one ever (K595-46)."""
        known = image.cluster_id is not None
        return Decision([NoOpRecord() if known else ClusterIdRecord(self._config.cluster_id)], _nothing)

    def prove_leadership(self, _: MetadataImage) -> Decision[None]:
        """A record whose commit shows that this node still led when it was written."""
        return Decision([NoOpRecord()], _nothing)


def registered(image: MetadataImage, broker_id: int, broker_epoch: int) -> BrokerImage:
    """A broker in the epoch that it claims. Raises `ProtocolError` when it is another process, or none."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise ProtocolError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
    if broker.epoch != broker_epoch:
        message = f"broker {broker_id} is registered in epoch {broker.epoch}, not {broker_epoch}"
        raise ProtocolError(ErrorCode.STALE_BROKER_EPOCH, message)
    return broker


def caught_up(broker: BrokerImage, request: BrokerHeartbeatRequest) -> bool:
    """Whether a broker has applied the metadata log at least up to its own registration and last fencing."""
    return request.current_metadata_offset >= max(broker.epoch, broker.lost_at)


def _nothing(_: MetadataImage) -> None:
    return None

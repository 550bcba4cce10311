"""Metadata and DescribeCluster, answered from this broker's copy of the cluster metadata."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from broker.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from broker.coordinator.offsets_topic import OFFSETS_TOPIC
from broker.errors import ErrorCode
from broker.listeners import ListenerEndpoint
from broker.protocol.messages.cluster_apis import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from broker.protocol.messages.metadata_records import NO_LEADER
from broker.protocol.messages.topic_apis import CreatableTopic, CreateTopicsRequest
from broker.protocol.schema import NO_ID
from broker.security.authorizer import Caller
from broker.server.connection import NotReady
from broker.server.dispatch import ForCaller
from broker.server.work_budget import Turns, Work

SETTLING_TIMEOUT_S = 1.0
BROKER_ENDPOINTS = 1
CREATION_TIMEOUT_MS = 5_000
CREATION_VERSION = 7


@dataclass(eq=False)
class MetadataHandler:
    """Clients use it to find leaders, and the controller, which is the leader of the metadata quorum."""

    _image: Callable[[], MetadataImage]
    _listener: str
    """The one that the clients use, and that the answers name."""
    _settled: asyncio.Event
    _caught_up: asyncio.Event
    _controller_id: Callable[[], int | None]
    _turns: Turns
    _node_id: int
    """Of this broker."""
    _create: ForCaller[CreateTopicsRequest] | None = None
    """Creates requested topics that do not exist; None: they are not created."""

    async def metadata(self, request: MetadataRequest, version: int, caller: Caller | None) -> MetadataResponse:
        """Waits a short time until the replicas match the image, so that a client can write to the leader named here.

        Raises `NotReady` while this broker still reads the metadata log after its start. Until then it knows a past
        state of the cluster, perhaps without some brokers, and clients would conclude that those are gone.
        """
        try:
            await asyncio.wait_for(self._caught_up.wait(), SETTLING_TIMEOUT_S)
        except TimeoutError:
            raise NotReady("Metadata request to a broker that has not caught up yet") from None
        with suppress(TimeoutError):
            await asyncio.wait_for(self._settled.wait(), SETTLING_TIMEOUT_S)
        if self._create is not None and request.allow_auto_topic_creation and request.topics:
            await self._create_missing(self._create, self._image(), request.topics, caller)
        return await self._turns.finish(self._answer(request, version))

    def _answer(self, request: MetadataRequest, version: int) -> Work[MetadataResponse]:
        """A topic that is named again is answered once. The brokers are added last, so that every named leader is among
        them, including one that became known while the answer was made."""
        image = self._image()
        topics: list[MetadataResponseTopic] = []
        if request.topics is None or (version == 0 and not request.topics):
            for _, topic in sorted(image.topics.items()):
                topics.append((yield from _topic(image, topic)))
                yield
        else:
            answered = set()
            for requested_topic in request.topics:
                named = (requested_topic.name, requested_topic.topic_id)
                if named not in answered:
                    answered.add(named)
                    topics.append((yield from _asked_for(image, requested_topic)))
                yield
        return MetadataResponse(
            brokers=[
                # Fenced brokers, too: librdkafka treats an unlisted broker as gone for good, reports its requests under
                # way there as "not persisted", and sends the records again: they would be in the log twice.
                MetadataResponseBroker(node_id=broker.id, host=endpoint.host, port=endpoint.port)
                for broker, endpoint in self._found(image)
            ],
            cluster_id=image.cluster_id,
            controller_id=self._controller(image),
            topics=topics,
        )

    async def _create_missing(
        self,
        create: ForCaller[CreateTopicsRequest],
        image: MetadataImage,
        requested_topics: list[MetadataRequestTopic],
        caller: Caller | None,
    ) -> None:
        """Create the named topics that do not exist. This node may learn of them later; the client asks again.

        The offsets topic is excepted: FindCoordinator creates it.
        """
        names = dict.fromkeys(topic.name for topic in requested_topics if topic.name and topic.topic_id == NO_ID)
        missing = [name for name in names if name not in image.topics and name != OFFSETS_TOPIC]
        if missing:
            new_topics = [CreatableTopic(name, -1, -1) for name in missing]
            await create(CreateTopicsRequest(new_topics, timeout_ms=CREATION_TIMEOUT_MS), CREATION_VERSION, caller)

    def describe_cluster(self, request: DescribeClusterRequest, version: int) -> DescribeClusterResponse:
        if version >= 1 and request.endpoint_type != BROKER_ENDPOINTS:
            return DescribeClusterResponse(
                error_code=ErrorCode.INVALID_REQUEST, error_message="only broker endpoints are known here"
            )
        image = self._image()
        return DescribeClusterResponse(
            error_message=None,
            cluster_id=image.cluster_id or "",
            controller_id=self._controller(image),
            brokers=[
                DescribeClusterBroker(broker.id, endpoint.host, endpoint.port, is_fenced=broker.fenced)
                for broker, endpoint in self._found(image)
                if request.include_fenced_brokers or not broker.fenced
            ],
        )

    def _found(self, image: MetadataImage) -> list[tuple[BrokerImage, ListenerEndpoint]]:
        """The brokers that have a listener of this name, with its address."""
        endpoints = [(broker, broker.endpoint(self._listener)) for _, broker in sorted(image.brokers.items())]
        return [(broker, endpoint) for broker, endpoint in endpoints if endpoint is not None]

    def _controller(self, image: MetadataImage) -> int:
        """The quorum's leader if known, else this broker, or another that is alive: each forwards what only the
        controller answers (KIP-590). Without a controller in the answer, librdkafka might not ask again: it waits for a
        change of its connections, and all may be up. The controller must have an address in the same answer."""
        alive = [broker.id for broker, _ in self._found(image) if not broker.fenced]
        preferred = (self._controller_id(), self._node_id)
        return next((broker_id for broker_id in (*preferred, *alive) if broker_id in alive), NO_LEADER)


def _asked_for(image: MetadataImage, requested_topic: MetadataRequestTopic) -> Work[MetadataResponseTopic]:
    """The topic that a request names, by its id if it has one."""
    if requested_topic.topic_id != NO_ID:
        topic = image.topic_by_id(requested_topic.topic_id)
        error = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        topic = image.topics.get(requested_topic.name or "")
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic is None:
        return MetadataResponseTopic(
            error_code=error, name=requested_topic.name or "", topic_id=requested_topic.topic_id
        )
    return (yield from _topic(image, topic))


def _topic(image: MetadataImage, topic: TopicImage) -> Work[MetadataResponseTopic]:
    answer = MetadataResponseTopic(name=topic.name, topic_id=topic.id, is_internal=topic.name == OFFSETS_TOPIC)
    for index, partition in sorted(topic.partitions.items()):
        answer.partitions.append(_partition(image, index, partition))
        yield
    return answer


def _partition(image: MetadataImage, index: int, partition: PartitionImage) -> MetadataResponsePartition:
    alive = {broker.id for broker in image.brokers.values() if not broker.fenced}
    leader = partition.leader if partition.leader in alive else NO_LEADER
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE if leader != NO_LEADER else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=[replica for replica in partition.replicas if replica not in alive],
    )

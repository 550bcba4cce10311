"""Metadata and DescribeCluster: what this broker's copy of the cluster metadata says, never newer, never invented."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from broker.controller.image import MetadataImage, PartitionImage, TopicImage
from broker.errors import ErrorCode
from broker.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from broker.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from broker.protocol.schema import NO_ID
from broker.server.connection import NotReady

NOBODY = -1
SETTLING_TIMEOUT_S = 1.0
BROKER_ENDPOINTS = 1


class MetadataHandler:
    """Clients look here for leaders, and for the controller: it is the leader of the metadata quorum."""

    def __init__(
        self,
        cluster_id: str,
        image: Callable[[], MetadataImage],
        settled: asyncio.Event,
        caught_up: asyncio.Event,
        controller_id: Callable[[], int | None],
    ) -> None:
        self._cluster_id = cluster_id
        self._image = image
        self._settled = settled
        self._caught_up = caught_up
        self._controller_id = controller_id

    async def metadata(self, request: MetadataRequest, version: int) -> MetadataResponse:
        """Waits a little while the replicas catch up with the image: who is told of a leader here can write to it.

        Raises `NotReady` while this broker is still reading the metadata log after its start. What it knows by then is
        the cluster of the past, perhaps without some brokers, and a client would believe that those are gone.
        """
        try:
            await asyncio.wait_for(self._caught_up.wait(), SETTLING_TIMEOUT_S)
        except TimeoutError:
            raise NotReady("Metadata was asked of a broker that has not caught up yet") from None
        with suppress(TimeoutError):
            await asyncio.wait_for(self._settled.wait(), SETTLING_TIMEOUT_S)
        image = self._image()
        if request.topics is None or (version == 0 and not request.topics):
            topics = [_topic(image, topic) for _, topic in sorted(image.topics.items())]
        else:
            topics = [_asked_for(image, topic) for topic in request.topics]
        return MetadataResponse(
            brokers=[
                # Fenced ones too: librdkafka takes a broker that is not listed for gone for good, calls the request
                # that it has under way there "not persisted", and sends its records again: the log has them twice.
                MetadataResponseBroker(node_id=broker.id, host=broker.host, port=broker.port)
                for _, broker in sorted(image.brokers.items())
            ],
            cluster_id=self._cluster_id,
            controller_id=self._controller(image),
            topics=topics,
        )

    def describe_cluster(self, request: DescribeClusterRequest, version: int) -> DescribeClusterResponse:
        if version >= 1 and request.endpoint_type != BROKER_ENDPOINTS:
            return DescribeClusterResponse(
                error_code=ErrorCode.INVALID_REQUEST, error_message="only the endpoints of brokers are known here"
            )
        image = self._image()
        return DescribeClusterResponse(
            error_message=None,
            cluster_id=self._cluster_id,
            controller_id=self._controller(image),
            brokers=[
                DescribeClusterBroker(broker_id=broker.id, host=broker.host, port=broker.port, is_fenced=broker.fenced)
                for _, broker in sorted(image.brokers.items())
                if request.include_fenced_brokers or not broker.fenced
            ],
        )

    def _controller(self, image: MetadataImage) -> int:
        """A controller whose address is not in the answer would only confuse clients."""
        controller = self._controller_id()
        broker = image.brokers.get(controller) if controller is not None else None
        return broker.id if broker is not None and not broker.fenced else NOBODY


def _asked_for(image: MetadataImage, asked: MetadataRequestTopic) -> MetadataResponseTopic:
    """The topic that a request names, by its id if it gives one."""
    if asked.topic_id != NO_ID:
        found = image.topic_by_id(asked.topic_id)
        error = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        found = image.topics.get(asked.name or "")
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if found is None:
        return MetadataResponseTopic(error_code=error, name=asked.name or "", topic_id=asked.topic_id)
    return _topic(image, found)


def _topic(image: MetadataImage, topic: TopicImage) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        partitions=[_partition(image, index, partition) for index, partition in sorted(topic.partitions.items())],
    )


def _partition(image: MetadataImage, index: int, partition: PartitionImage) -> MetadataResponsePartition:
    alive = {broker.id for broker in image.brokers.values() if not broker.fenced}
    leader = partition.leader if partition.leader in alive else NOBODY
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE if leader != NOBODY else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=[replica for replica in partition.replicas if replica not in alive],
    )

"""GetReplicaLogInfo: the log ends of this broker's replicas, for a controller that selects the best of them."""

from __future__ import annotations

from typing import Protocol

from broker.protocol.messages.get_replica_log_info import (
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
    PartitionLogInfo,
    TopicPartitionLogInfo,
)
from broker.replica.queries import LogEndFound

MAX_PARTITIONS = 1_000
"""The most partitions in one answer, as in Apache Kafka."""


class LogEnds(Protocol):
    """The part of the replica manager that knows the log ends."""

    @property
    def broker_epoch(self) -> int: ...

    def log_end(self, topic_id: bytes, index: int) -> LogEndFound: ...


class ReplicaLogsHandler:
    """Answers for all replicas, whether or not their partition has a leader."""

    def __init__(self, replicas: LogEnds) -> None:
        self._replicas = replicas

    async def get(self, request: GetReplicaLogInfoRequest, version: int) -> GetReplicaLogInfoResponse:  # noqa: ARG002
        response = GetReplicaLogInfoResponse(broker_epoch=self._replicas.broker_epoch)
        left = MAX_PARTITIONS
        for topic in request.topic_partitions:
            info = TopicPartitionLogInfo(topic.topic_id)
            for index in topic.partitions[:left]:
                found = self._replicas.log_end(topic.topic_id, index)
                info.partition_log_info.append(
                    PartitionLogInfo(index, found.last_epoch, found.leader_epoch, found.end_offset, found.error)
                )
            response.topic_partition_log_info_list.append(info)
            response.has_more_data = response.has_more_data or len(topic.partitions) > left
            left -= len(info.partition_log_info)
        return response

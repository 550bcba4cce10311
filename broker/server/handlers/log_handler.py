"""DeleteRecords, DescribeLogDirs and GetReplicaLogInfo: the start, the size and the end of this broker's logs."""

from __future__ import annotations

import asyncio

from broker.errors import ErrorCode
from broker.protocol.messages.cluster_apis import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from broker.protocol.messages.offset_apis import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from broker.protocol.messages.partition_apis import (
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
    PartitionLogInfo,
    TopicPartitionLogInfo,
)
from broker.replica.manager import ReplicaManager
from broker.replica.record_deletion import PendingDeletion
from broker.server.handlers.internal_topics import INTERNAL


class LogHandler:
    """Serves DeleteRecords and DescribeLogDirs."""

    def __init__(self, replicas: ReplicaManager, log_dir: str) -> None:
        self._replicas = replicas
        self._log_dir = log_dir

    async def delete_records(self, request: DeleteRecordsRequest, _version: int) -> DeleteRecordsResponse:
        """Answered once every replica that may lead starts its log there, durably, or after the request's timeout."""
        due = asyncio.get_running_loop().time() + request.timeout_ms / 1000
        started = [
            (topic.name, [(it.partition_index, await self._start(topic.name, it, due)) for it in topic.partitions])
            for topic in request.topics
        ]
        response = DeleteRecordsResponse()
        for topic, deletions in started:
            answers = [(index, await deletion.answer()) for index, deletion in deletions]
            results = [DeleteRecordsPartitionResult(index, start, error) for index, (error, start) in answers]
            response.topics.append(DeleteRecordsTopicResult(topic, results))
        return response

    async def _start(self, topic: str, asked: DeleteRecordsPartition, due: float) -> PendingDeletion:
        """`due`: when the request times out, in loop time."""
        if topic in INTERNAL:
            return PendingDeletion(ErrorCode.INVALID_TOPIC_EXCEPTION)
        left_s = max(0.0, due - asyncio.get_running_loop().time())
        return await self._replicas.start_deletion(topic, asked.partition_index, asked.offset, left_s)

    def describe_log_dirs(self, request: DescribeLogDirsRequest, version: int) -> DescribeLogDirsResponse:  # noqa: ARG002
        wanted = None if request.topics is None else {it.topic: set(it.partitions) for it in request.topics}
        result = DescribeLogDirsResult(log_dir=self._log_dir)
        topics: dict[str, DescribeLogDirsTopic] = {}
        for (name, index), size, lag in self._replicas.sizes():
            if wanted is None or index in wanted.get(name, ()):
                topic = topics.setdefault(name, DescribeLogDirsTopic(name))
                topic.partitions.append(DescribeLogDirsPartition(index, size, lag))
        result.topics = list(topics.values())
        return DescribeLogDirsResponse(results=[result])


MAX_PARTITIONS = 1_000
"""The most partitions in one answer, as in Apache Kafka."""


class ReplicaLogsHandler:
    """Serves GetReplicaLogInfo, for a controller that selects the best of several replicas. It answers for all
    replicas, whether or not their partition has a leader."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    async def get(self, request: GetReplicaLogInfoRequest, version: int) -> GetReplicaLogInfoResponse:  # noqa: ARG002
        response = GetReplicaLogInfoResponse(broker_epoch=self._replicas.broker_epoch)
        remaining = MAX_PARTITIONS
        for topic in request.topic_partitions:
            info = TopicPartitionLogInfo(topic.topic_id)
            for index in topic.partitions[:remaining]:
                found = self._replicas.log_end(topic.topic_id, index)
                info.partition_log_info.append(
                    PartitionLogInfo(index, found.last_epoch, found.leader_epoch, found.end_offset, found.error)
                )
            response.topic_partition_log_info_list.append(info)
            response.has_more_data = response.has_more_data or len(topic.partitions) > remaining
            remaining -= len(info.partition_log_info)
        return response

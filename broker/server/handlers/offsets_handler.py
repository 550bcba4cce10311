"""ListOffsets and OffsetForLeaderEpoch: the offsets of a log's start and end, of a timestamp and of an epoch."""

import asyncio

from broker.errors import ErrorCode
from broker.log.validation import bytes_examined
from broker.protocol.messages.cluster_apis import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from broker.protocol.messages.offset_apis import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    MAX_TIMESTAMP,
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    EpochEndOffset,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from broker.protocol.messages.partition_apis import (
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
    PartitionLogInfo,
    TopicPartitionLogInfo,
)
from broker.protocol.schema import Topic
from broker.replica.manager import ReplicaManager
from broker.replica.queries import OffsetFound
from broker.replica.record_deletion import PendingDeletion
from broker.server.handlers.internal_topics import INTERNAL
from broker.server.work_budget import EXAMINED_PER_ENTRY, Turns, Work

# ---- DeleteRecords, DescribeLogDirs and GetReplicaLogInfo: the start, the size and the end of this broker's logs.


class LogHandler:
    """Serves DeleteRecords and DescribeLogDirs."""

    def __init__(self, replicas: ReplicaManager, log_dir: str) -> None:
        self._replicas = replicas
        self._log_dir = log_dir

    async def delete_records(self, request: DeleteRecordsRequest, _version: int) -> DeleteRecordsResponse:
        """Answered once every replica that may lead starts its log there, durably, or after the request's timeout."""
        due = asyncio.get_running_loop().time() + request.timeout_ms / 1000
        started = [
            (
                topic.name,
                [
                    (partition.partition_index, await self._start(topic.name, partition, due))
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        response = DeleteRecordsResponse()
        for topic, deletions in started:
            answers = [(index, await deletion.answer()) for index, deletion in deletions]
            results = [DeleteRecordsPartitionResult(index, start, error) for index, (error, start) in answers]
            response.topics.append(Topic(topic, results))
        return response

    async def _start(self, topic: str, partition: DeleteRecordsPartition, due: float) -> PendingDeletion:
        """`due`: when the request times out, in loop time."""
        if topic in INTERNAL:
            return PendingDeletion(ErrorCode.INVALID_TOPIC_EXCEPTION)
        left_s = max(0.0, due - asyncio.get_running_loop().time())
        return await self._replicas.start_deletion(topic, partition.partition_index, partition.offset, left_s)

    def describe_log_dirs(self, request: DescribeLogDirsRequest, version: int) -> DescribeLogDirsResponse:  # noqa: ARG002
        wanted_partitions = (
            None if request.topics is None else {topic.topic: set(topic.partitions) for topic in request.topics}
        )
        result = DescribeLogDirsResult(log_dir=self._log_dir)
        topics: dict[str, Topic[DescribeLogDirsPartition]] = {}
        for (name, index), size, lag in self._replicas.sizes():
            if wanted_partitions is None or index in wanted_partitions.get(name, ()):
                topic = topics.setdefault(name, Topic(name))
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
                log_end = self._replicas.log_end(topic.topic_id, index)
                info.partition_log_info.append(
                    PartitionLogInfo(index, log_end.last_epoch, log_end.leader_epoch, log_end.end_offset, log_end.error)
                )
            response.topic_partition_log_info_list.append(info)
            response.has_more_data = response.has_more_data or len(topic.partitions) > remaining
            remaining -= len(info.partition_log_info)
        return response


# The first version that allows each special timestamp (K1023-2).
SINCE = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}


class OffsetsHandler:
    """Serves both APIs. Records that are searched for a timestamp count in the turn."""

    def __init__(self, replicas: ReplicaManager, turns: Turns) -> None:
        self._replicas = replicas
        self._turns = turns

    def list_offsets(self, request: ListOffsetsRequest, version: int) -> Work[ListOffsetsResponse]:
        by_replica = request.replica_id >= 0
        response = ListOffsetsResponse()
        for topic in request.topics:
            result = Topic[ListOffsetsPartitionResponse](topic.name)
            response.topics.append(result)
            for partition in topic.partitions:
                earlier_entries = bytes_examined() // EXAMINED_PER_ENTRY
                result.partitions.append(self._offset(topic.name, partition, version, by_replica))
                self._turns.spend(bytes_examined() // EXAMINED_PER_ENTRY - earlier_entries)
                yield
        return response

    def _offset(
        self, topic: str, partition: ListOffsetsPartition, version: int, by_replica: bool
    ) -> ListOffsetsPartitionResponse:
        if version < SINCE.get(partition.timestamp, 0):
            offset = OffsetFound(ErrorCode.UNSUPPORTED_VERSION)
        else:
            offset = self._replicas.list_offset(
                topic,
                partition.partition_index,
                partition.timestamp,
                partition.current_leader_epoch,
                by_replica=by_replica,
            )
        return ListOffsetsPartitionResponse(
            partition_index=partition.partition_index,
            error_code=offset.error,
            timestamp=offset.timestamp,
            offset=offset.offset,
            leader_epoch=offset.leader_epoch,
        )

    def offset_for_leader_epoch(
        self,
        request: OffsetForLeaderEpochRequest,
        version: int,  # noqa: ARG002 - the answer is the same in all versions
    ) -> Work[OffsetForLeaderEpochResponse]:
        if request.replica_id >= 0:
            self._replicas.answer_parked_fetches(request.replica_id)
        response = OffsetForLeaderEpochResponse()
        for topic in request.topics:
            result = OffsetForLeaderTopicResult(topic=topic.topic)
            response.topics.append(result)
            for partition in topic.partitions:
                result.partitions.append(self._epoch_end(topic.topic, partition, by_replica=request.replica_id >= 0))
                yield
        return response

    def _epoch_end(self, topic: str, partition: OffsetForLeaderPartition, *, by_replica: bool) -> EpochEndOffset:
        epoch_end = self._replicas.offset_for_leader_epoch(
            topic, partition.partition, partition.current_leader_epoch, partition.leader_epoch, by_replica=by_replica
        )
        return EpochEndOffset(
            error_code=epoch_end.error,
            partition=partition.partition,
            leader_epoch=epoch_end.end.epoch,
            end_offset=epoch_end.end.end_offset,
        )

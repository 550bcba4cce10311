"""ListOffsets and OffsetForLeaderEpoch: the offsets of a log's start and end, of a timestamp and of an epoch."""

from __future__ import annotations

from broker.errors import ErrorCode
from broker.log.validation import bytes_examined
from broker.protocol.messages.offset_apis import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    MAX_TIMESTAMP,
    EpochEndOffset,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from broker.replica.manager import ReplicaManager
from broker.replica.queries import OffsetFound
from broker.server.work_budget import EXAMINED_PER_ENTRY, Turns, Work

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
            result = ListOffsetsTopicResponse(name=topic.name)
            response.topics.append(result)
            for asked in topic.partitions:
                before = bytes_examined() // EXAMINED_PER_ENTRY
                result.partitions.append(self._offset(topic.name, asked, version, by_replica))
                self._turns.spend(bytes_examined() // EXAMINED_PER_ENTRY - before)
                yield
        return response

    def _offset(
        self, topic: str, asked: ListOffsetsPartition, version: int, by_replica: bool
    ) -> ListOffsetsPartitionResponse:
        if version < SINCE.get(asked.timestamp, 0):
            found = OffsetFound(ErrorCode.UNSUPPORTED_VERSION)
        else:
            found = self._replicas.list_offset(
                topic, asked.partition_index, asked.timestamp, asked.current_leader_epoch, by_replica=by_replica
            )
        return ListOffsetsPartitionResponse(
            partition_index=asked.partition_index,
            error_code=found.error,
            timestamp=found.timestamp,
            offset=found.offset,
            leader_epoch=found.leader_epoch,
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
            for asked in topic.partitions:
                result.partitions.append(self._epoch_end(topic.topic, asked, by_replica=request.replica_id >= 0))
                yield
        return response

    def _epoch_end(self, topic: str, asked: OffsetForLeaderPartition, *, by_replica: bool) -> EpochEndOffset:
        found = self._replicas.offset_for_leader_epoch(
            topic, asked.partition, asked.current_leader_epoch, asked.leader_epoch, by_replica=by_replica
        )
        return EpochEndOffset(
            error_code=found.error,
            partition=asked.partition,
            leader_epoch=found.end.epoch,
            end_offset=found.end.end_offset,
        )

"""The answer to DescribeQuorum (KIP-595, KIP-836): each replica's log end and the time of its last fetch."""

from __future__ import annotations

from broker.config import Endpoint
from broker.errors import ErrorCode
from broker.protocol.messages.quorum_apis import (
    DescribeQuorumPartitionResult,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopicResult,
    Listener,
    Node,
    ReplicaState,
)
from broker.quorum.leading import QuorumStatus, ReplicaStatus
from broker.quorum.wire import METADATA_TOPIC, PARTITION


def is_about_the_quorum(request: DescribeQuorumRequest) -> bool:
    """Whether the request asks for exactly the metadata partition (K595-10)."""
    partitions = [
        (topic.topic_name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    ]
    return partitions == [(METADATA_TOPIC, PARTITION)]


def invalid_response() -> DescribeQuorumResponse:
    message = f"only {METADATA_TOPIC}-{PARTITION} is described"
    return DescribeQuorumResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=message)


def not_leader_response(leader_id: int | None, epoch: int) -> DescribeQuorumResponse:
    """Only the leader knows the state; the answer names the leader (K595-44, K595-45)."""
    result = DescribeQuorumPartitionResult(
        partition_index=PARTITION,
        error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        error_message="ask the leader",
        leader_id=-1 if leader_id is None else leader_id,
        leader_epoch=epoch,
        high_watermark=-1,
    )
    return DescribeQuorumResponse(topics=[DescribeQuorumTopicResult(METADATA_TOPIC, [result])])


def status_response(
    status: QuorumStatus, now: float, wall_ms: int, voters: tuple[Endpoint, ...], listener: str
) -> DescribeQuorumResponse:
    """The leader's answer. `now`: the loop's time at which the wall clock showed `wall_ms`, -1 without a wall clock."""

    def timestamp(at: float | None) -> int:
        return -1 if at is None or wall_ms < 0 else wall_ms - round((now - at) * 1000)

    def state(replica: ReplicaStatus) -> ReplicaState:
        return ReplicaState(
            replica_id=replica.replica_id,
            replica_directory_id=replica.directory,
            log_end_offset=-1 if replica.log_end_offset is None else replica.log_end_offset,
            last_fetch_timestamp=timestamp(replica.last_fetch_at),
            last_caught_up_timestamp=timestamp(replica.last_caught_up_at),
        )

    result = DescribeQuorumPartitionResult(
        partition_index=PARTITION,
        error_code=ErrorCode.NONE,
        error_message=None,
        leader_id=status.leader_id,
        leader_epoch=status.epoch,
        high_watermark=status.high_watermark,
        current_voters=[state(replica) for replica in status.voters],
        observers=[state(replica) for replica in status.observers],
    )
    nodes = [Node(voter.id, [Listener(listener, voter.host, voter.port)]) for voter in voters]
    return DescribeQuorumResponse(
        topics=[DescribeQuorumTopicResult(METADATA_TOPIC, [result])], error_message=None, nodes=nodes
    )

"""Kafka's quorum APIs (KIP-595), answered by this node's member of the metadata quorum.

The answer to DescribeQuorum (KIP-595, KIP-836) has each replica's log end and the time of its last fetch.
"""

from broker.config import Endpoint
from broker.errors import ErrorCode, ProtocolError
from broker.protocol.messages.quorum_apis import (
    DescribeQuorumPartitionResult,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
)
from broker.protocol.schema import Message, QuorumTopic
from broker.quorum import wire
from broker.quorum.leading import QuorumStatus, ReplicaStatus
from broker.quorum.runner import QuorumRunner
from broker.quorum.wire import METADATA_TOPIC, PARTITION


class QuorumHandler:
    """Translates between requests and the quorum. Its methods may be called at any time; they read their arguments
    before they first await."""

    def __init__(self, quorum: QuorumRunner) -> None:
        self._quorum = quorum

    async def handle(self, request: Message, version: int) -> Message:
        """Vote (52), answered after the vote is on disk; BeginQuorumEpoch (53), EndQuorumEpoch (54), FetchSnapshot (59)
        and Fetch (1) of the metadata log by a replica, which waits for records or for a newer high watermark."""
        try:
            response = await self._quorum.receive(wire.decode_request(request, version))
        except wire.InvalidRequestError:
            return wire.refusal(request, ErrorCode.INVALID_REQUEST)
        except ProtocolError as error:
            return wire.refusal(request, error.code)
        return wire.encode_response(request, response, self._quorum.log_start_offset)

    async def handle_describe(self, request: DescribeQuorumRequest, _version: int) -> DescribeQuorumResponse:
        """DescribeQuorum (55): leader only (K595-44)."""
        if not is_about_the_quorum(request):
            return invalid_response()
        try:
            status, now = await self._quorum.status()
        except ProtocolError as error:
            return DescribeQuorumResponse(error_code=error.code, error_message=str(error))
        if status is None:
            return not_leader_response(self._quorum.leader_id, self._quorum.epoch)
        return status_response(status, now, self._quorum.wall_ms(), self._quorum.voters, self._quorum.listener_name)


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
    return DescribeQuorumResponse(topics=[QuorumTopic(METADATA_TOPIC, [result])])


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
    return DescribeQuorumResponse(topics=[QuorumTopic(METADATA_TOPIC, [result])], error_message=None, nodes=nodes)

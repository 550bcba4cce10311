"""Kafka's quorum APIs (KIP-595), answered by this node's member of the metadata quorum.

The answer to DescribeQuorum (KIP-595, KIP-836) has each replica's log end and the time of its last fetch.
"""

from collections.abc import Callable
from functools import partial

from broker.config import Endpoint
from broker.errors import ErrorCode, ProtocolError
from broker.protocol.messages import fetch, quorum_apis
from broker.protocol.messages.quorum_apis import (
    DescribeQuorumPartitionResult,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
)
from broker.protocol.schema import QuorumTopic
from broker.quorum import wire
from broker.quorum.leading import QuorumStatus, ReplicaStatus
from broker.quorum.messages import (
    BeginResponse,
    EndResponse,
    FetchResponse,
    Request,
    Response,
    SnapshotResponse,
    VoteResponse,
)
from broker.quorum.runner import QuorumRunner
from broker.quorum.wire import METADATA_TOPIC, PARTITION


class QuorumHandler:
    """Translates between requests and the quorum. Its methods may be called at any time; they read their arguments
    before they first await."""

    def __init__(self, quorum: QuorumRunner) -> None:
        self._quorum = quorum

    async def _answer(self, decode: Callable[[], Request]) -> Response | ErrorCode:
        """The quorum's answer to a request, or an error code."""
        try:
            return await self._quorum.receive(decode())
        except wire.InvalidRequestError:
            return ErrorCode.INVALID_REQUEST
        except ProtocolError as error:
            return error.code

    async def handle_vote(self, request: quorum_apis.VoteRequest, _version: int) -> quorum_apis.VoteResponse:
        """Vote (52). Answered after the vote is on disk."""
        response = await self._answer(partial(wire.decode_vote, request))
        if isinstance(response, ErrorCode):
            return quorum_apis.VoteResponse(error_code=response)
        assert isinstance(response, VoteResponse)
        return wire.encode_vote_response(response)

    async def handle_begin(
        self, request: quorum_apis.BeginQuorumEpochRequest, _version: int
    ) -> quorum_apis.BeginQuorumEpochResponse:
        """BeginQuorumEpoch (53)."""
        response = await self._answer(partial(wire.decode_begin, request))
        if isinstance(response, ErrorCode):
            return quorum_apis.BeginQuorumEpochResponse(error_code=response)
        assert isinstance(response, BeginResponse)
        return wire.encode_begin_response(response)

    async def handle_end(
        self, request: quorum_apis.EndQuorumEpochRequest, _version: int
    ) -> quorum_apis.EndQuorumEpochResponse:
        """EndQuorumEpoch (54)."""
        response = await self._answer(partial(wire.decode_end, request))
        if isinstance(response, ErrorCode):
            return quorum_apis.EndQuorumEpochResponse(error_code=response)
        assert isinstance(response, EndResponse)
        return wire.encode_end_response(response)

    async def handle_fetch(self, request: fetch.FetchRequest, version: int) -> fetch.FetchResponse:
        """Fetch (1) of the metadata log by a replica; waits for records or for a newer high watermark."""
        response = await self._answer(partial(wire.decode_fetch, request, version))
        if isinstance(response, ErrorCode):
            return fetch.FetchResponse(error_code=response)
        assert isinstance(response, FetchResponse)
        return wire.encode_fetch_response(response, self._quorum.log_start_offset)

    async def handle_snapshot_fetch(
        self, request: quorum_apis.FetchSnapshotRequest, _version: int
    ) -> quorum_apis.FetchSnapshotResponse:
        """FetchSnapshot (59)."""
        response = await self._answer(partial(wire.decode_snapshot_fetch, request))
        if isinstance(response, ErrorCode):
            return quorum_apis.FetchSnapshotResponse(error_code=response)
        assert isinstance(response, SnapshotResponse)
        return wire.encode_snapshot_response(response)

    async def handle_describe(
        self, request: quorum_apis.DescribeQuorumRequest, _version: int
    ) -> quorum_apis.DescribeQuorumResponse:
        """DescribeQuorum (55): leader only (K595-44)."""
        if not is_about_the_quorum(request):
            return invalid_response()
        try:
            status, now = await self._quorum.status()
        except ProtocolError as error:
            return quorum_apis.DescribeQuorumResponse(error_code=error.code, error_message=str(error))
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

"""Converts the quorum's messages to Kafka's and back: Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, DescribeQuorum.

Kafka's schemas batch topics and partitions. The quorum has one of each; any other number is INVALID_REQUEST (K595-10).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from broker.errors import ErrorCode
from broker.protocol.messages import fetch, quorum_apis
from broker.protocol.records import CorruptBatch, validate_batches
from broker.protocol.request import Request as RequestMessage
from broker.protocol.schema import Message, QuorumTopic, Topic
from broker.quorum.messages import (
    BeginRequest,
    EndRequest,
    FetchRequest,
    FetchResponse,
    OffsetAndEpoch,
    Request,
    Response,
    SnapshotRequest,
    SnapshotResponse,
    VoteRequest,
    VoteResponse,
)

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = (1).to_bytes(16, "big")
PARTITION = 0
NO_NODE = -1

FIRST_VERSION_WITH_DIVERGENCE = 12
FIRST_VERSION_WITH_TOPIC_IDS = 13


class InvalidRequestError(ValueError):
    """A request for anything but the one partition of the metadata log, or with values that no replica sends."""


class MalformedResponseError(ValueError):
    """An answer that does not fit its request; it is treated as missing."""


# --- requests, outgoing


def encode_request(request: Request, to: int) -> RequestMessage[Any]:
    """The message for a request to a voter."""
    if isinstance(request, VoteRequest):
        return _vote_request(request, to)
    if isinstance(request, BeginRequest):
        partition = quorum_apis.BeginQuorumEpochPartitionData(
            partition_index=PARTITION,
            voter_directory_id=request.voter_directory,
            leader_id=request.leader_id,
            leader_epoch=request.epoch,
        )
        topics = [QuorumTopic(topic_name=METADATA_TOPIC, partitions=[partition])]
        return quorum_apis.BeginQuorumEpochRequest(request.cluster_id, to, topics)
    if isinstance(request, EndRequest):
        return _end_request(request)
    if isinstance(request, SnapshotRequest):
        return _snapshot_request(request)
    return _fetch_request(request)


def _vote_request(request: VoteRequest, to: int) -> quorum_apis.VoteRequest:
    partition = quorum_apis.VotePartitionData(
        partition_index=PARTITION,
        replica_epoch=request.epoch,
        replica_id=request.candidate_id,
        voter_directory_id=request.voter_directory,
        last_offset_epoch=request.log_end.epoch,
        last_offset=request.log_end.offset,
        pre_vote=request.pre_vote,
    )
    topics = [QuorumTopic(topic_name=METADATA_TOPIC, partitions=[partition])]
    return quorum_apis.VoteRequest(cluster_id=request.cluster_id, voter_id=to, topics=topics)


def _end_request(request: EndRequest) -> quorum_apis.EndQuorumEpochRequest:
    partition = quorum_apis.EndQuorumEpochPartitionData(
        partition_index=PARTITION,
        leader_id=_wire_id(request.leader_id),
        leader_epoch=request.epoch,
        preferred_candidates=[quorum_apis.ReplicaInfo(candidate_id=voter) for voter in request.preferred_successors],
    )
    topics = [QuorumTopic(topic_name=METADATA_TOPIC, partitions=[partition])]
    return quorum_apis.EndQuorumEpochRequest(cluster_id=request.cluster_id, topics=topics)


def _fetch_request(request: FetchRequest) -> fetch.FetchRequest:
    partition = fetch.FetchPartition(
        partition=PARTITION,
        current_leader_epoch=request.epoch,
        fetch_offset=request.fetch_from.offset,
        last_fetched_epoch=request.fetch_from.epoch,
        partition_max_bytes=request.max_bytes,
        replica_directory_id=request.directory,
    )
    return fetch.FetchRequest(
        cluster_id=request.cluster_id,
        replica_state=fetch.ReplicaState(request.replica_id),
        max_wait_ms=round(request.max_wait * 1000),
        max_bytes=request.max_bytes,
        topics=[fetch.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


def _snapshot_request(request: SnapshotRequest) -> quorum_apis.FetchSnapshotRequest:
    partition = quorum_apis.PartitionSnapshot(
        partition=PARTITION,
        current_leader_epoch=request.epoch,
        snapshot_id=_snapshot_id(request.snapshot),
        position=request.position,
        replica_directory_id=request.directory,
    )
    return quorum_apis.FetchSnapshotRequest(
        cluster_id=request.cluster_id,
        replica_id=request.replica_id,
        max_bytes=request.max_bytes,
        topics=[Topic(METADATA_TOPIC, [partition])],
    )


def _snapshot_id(snapshot: OffsetAndEpoch) -> quorum_apis.SnapshotId:
    return quorum_apis.SnapshotId(snapshot.offset, snapshot.epoch)


# --- requests, incoming


def decode_request(message: Message, version: int) -> Request:
    """The request in a message that was received in this version. Raises `InvalidRequestError`."""
    if isinstance(message, fetch.FetchRequest):
        return _received_fetch(message, version)
    if isinstance(message, quorum_apis.FetchSnapshotRequest):
        return _received_snapshot_fetch(message)
    assert isinstance(
        message, quorum_apis.VoteRequest | quorum_apis.BeginQuorumEpochRequest | quorum_apis.EndQuorumEpochRequest
    )
    data, cluster_id = _only_partition(message.topics), message.cluster_id
    if isinstance(message, quorum_apis.VoteRequest):
        log_end = OffsetAndEpoch(data.last_offset_epoch, data.last_offset)
        return VoteRequest(
            cluster_id, data.replica_id, data.replica_epoch, log_end, data.pre_vote, data.voter_directory_id
        )
    if isinstance(message, quorum_apis.BeginQuorumEpochRequest):
        return BeginRequest(cluster_id, data.leader_id, data.leader_epoch, data.voter_directory_id)
    successors = data.preferred_successors or [candidate.candidate_id for candidate in data.preferred_candidates]
    return EndRequest(cluster_id, _own_id(data.leader_id), data.leader_epoch, tuple(successors))


def _received_snapshot_fetch(message: quorum_apis.FetchSnapshotRequest) -> SnapshotRequest:
    topics = message.topics
    if len(topics) != 1 or topics[0].name != METADATA_TOPIC or len(topics[0].partitions) != 1:
        raise InvalidRequestError(f"exactly the topic {METADATA_TOPIC} with one partition is expected")
    data = topics[0].partitions[0]
    if data.partition != PARTITION:
        raise InvalidRequestError(f"{METADATA_TOPIC} has no partition {data.partition}")
    snapshot = OffsetAndEpoch(data.snapshot_id.epoch, data.snapshot_id.end_offset)
    return SnapshotRequest(
        message.cluster_id,
        message.replica_id,
        data.current_leader_epoch,
        snapshot,
        data.position,
        max(0, message.max_bytes),
        data.replica_directory_id,
    )


def _received_fetch(message: fetch.FetchRequest, version: int) -> FetchRequest:
    if version < FIRST_VERSION_WITH_DIVERGENCE:
        raise InvalidRequestError(f"the metadata log is fetched with version {FIRST_VERSION_WITH_DIVERGENCE} or newer")
    if len(message.topics) != 1 or len(message.topics[0].partitions) != 1:
        raise InvalidRequestError("exactly one topic with one partition is fetched")
    topic, data = message.topics[0], message.topics[0].partitions[0]
    named = (
        topic.topic_id == METADATA_TOPIC_ID
        if version >= FIRST_VERSION_WITH_TOPIC_IDS
        else topic.topic == METADATA_TOPIC
    )
    if not named or data.partition != PARTITION or data.fetch_offset < 0:
        raise InvalidRequestError(f"only offsets of {METADATA_TOPIC}-{PARTITION} are fetched here")
    return FetchRequest(
        message.cluster_id,
        fetch.fetching_replica(message).replica_id,
        data.current_leader_epoch,
        OffsetAndEpoch(data.last_fetched_epoch, data.fetch_offset),
        max(0, message.max_wait_ms) / 1000,
        max(0, min(message.max_bytes, data.partition_max_bytes)),
        data.replica_directory_id,
    )


def _only_partition(topics: Sequence[Any]) -> Any:
    """The data of the only partition of the only topic, in any schema with this nesting."""
    if len(topics) != 1 or topics[0].topic_name != METADATA_TOPIC or len(topics[0].partitions) != 1:
        raise InvalidRequestError(f"exactly the topic {METADATA_TOPIC} with one partition is expected")
    if topics[0].partitions[0].partition_index != PARTITION:
        raise InvalidRequestError(f"{METADATA_TOPIC} has no partition {topics[0].partitions[0].partition_index}")
    return topics[0].partitions[0]


# --- responses, outgoing


_RESPONSES: Final[Mapping[type[Message], Callable[..., Message]]] = {
    fetch.FetchRequest: fetch.FetchResponse,
    quorum_apis.VoteRequest: quorum_apis.VoteResponse,
    quorum_apis.BeginQuorumEpochRequest: quorum_apis.BeginQuorumEpochResponse,
    quorum_apis.EndQuorumEpochRequest: quorum_apis.EndQuorumEpochResponse,
    quorum_apis.FetchSnapshotRequest: quorum_apis.FetchSnapshotResponse,
}


def refusal(message: Message, error: ErrorCode) -> Message:
    """The answer to a received message that reports an error of the whole request."""
    return _RESPONSES[type(message)](error_code=error)


def encode_response(message: Message, response: Response, log_start_offset: int) -> Message:
    """The answer to a received message. It names the leader and its epoch (K595-9, K595-33, K595-38)."""
    if response.error is ErrorCode.INCONSISTENT_CLUSTER_ID:
        return refusal(message, response.error)
    if isinstance(response, FetchResponse):
        return _fetched(response, log_start_offset)
    leader_id = _wire_id(response.leader_id)
    if isinstance(response, SnapshotResponse):
        piece = quorum_apis.PartitionSnapshotResult(
            PARTITION,
            response.error,
            _snapshot_id(response.snapshot),
            fetch.LeaderIdAndEpoch(leader_id, response.epoch),
            response.size,
            response.position,
            response.data,
        )
        return quorum_apis.FetchSnapshotResponse(topics=[Topic(METADATA_TOPIC, [piece])])
    result: Message = quorum_apis.QuorumEpochPartitionResult(PARTITION, response.error, leader_id, response.epoch)
    if isinstance(response, VoteResponse):
        silence_ms = int(1000 * response.silence_s)
        result = quorum_apis.VotePartitionResult(
            PARTITION, response.error, leader_id, response.epoch, response.granted, silence_ms
        )
    return _RESPONSES[type(message)](topics=[QuorumTopic(METADATA_TOPIC, [result])])


def _fetched(response: FetchResponse, log_start_offset: int) -> fetch.FetchResponse:
    diverging = response.diverging
    data = fetch.PartitionData(
        partition_index=PARTITION,
        error_code=response.error,
        high_watermark=response.high_watermark,
        last_stable_offset=response.high_watermark,
        log_start_offset=log_start_offset,
        diverging_epoch=None if diverging is None else fetch.EpochEndOffset(diverging.epoch, diverging.offset),
        current_leader=fetch.LeaderIdAndEpoch(_wire_id(response.leader_id), response.epoch),
        records=response.records,
        snapshot_id=None
        if response.snapshot is None
        else fetch.SnapshotId(response.snapshot.offset, response.snapshot.epoch),
    )
    topic = fetch.FetchableTopicResponse(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[data])
    return fetch.FetchResponse(responses=[topic])


# --- responses, incoming


def decode_response(request: Request, message: Message) -> Response:
    """The answer to a request that was sent. Raises `MalformedResponseError`."""
    if isinstance(request, FetchRequest):
        return _fetch_response(request, message)
    if isinstance(request, SnapshotRequest):
        return _snapshot_response(message)
    assert isinstance(
        message, quorum_apis.VoteResponse | quorum_apis.BeginQuorumEpochResponse | quorum_apis.EndQuorumEpochResponse
    )
    if message.error_code != ErrorCode.NONE:
        # An error of the whole request names neither leader nor epoch.
        error, leader_id, epoch, granted, silence_s = _error(message.error_code), None, 0, False, 0.0
    else:
        try:
            data = _only_partition(message.topics)
        except InvalidRequestError as invalid:
            raise MalformedResponseError(str(invalid)) from invalid
        error, leader_id, epoch = _error(data.error_code), _own_id(data.leader_id), data.leader_epoch
        voted = isinstance(data, quorum_apis.VotePartitionResult)
        granted, silence_s = voted and data.vote_granted, data.leader_silence_ms / 1000 if voted else 0.0
    if isinstance(request, VoteRequest):
        return VoteResponse(error, leader_id, epoch, granted, silence_s)
    return Response(error, leader_id, epoch)


def _fetch_response(request: FetchRequest, message: Message) -> FetchResponse:
    assert isinstance(message, fetch.FetchResponse)
    if message.error_code != ErrorCode.NONE:
        return FetchResponse(_error(message.error_code), None, 0)
    if len(message.responses) != 1 or len(message.responses[0].partitions) != 1:
        raise MalformedResponseError("an answer to a fetch of one partition has another number of them")
    data = message.responses[0].partitions[0]
    leader = data.current_leader or fetch.LeaderIdAndEpoch(NO_NODE, 0)
    diverging = None
    if data.diverging_epoch is not None and data.diverging_epoch.end_offset >= 0:
        diverging = OffsetAndEpoch(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
    snapshot = None
    if data.snapshot_id is not None and data.snapshot_id.end_offset >= 0:
        snapshot = OffsetAndEpoch(data.snapshot_id.epoch, data.snapshot_id.end_offset)
    records = bytes(data.records or b"") if diverging is None and snapshot is None else b""
    check_fetched(request, records)
    return FetchResponse(
        _error(data.error_code),
        _own_id(leader.leader_id),
        leader.leader_epoch,
        data.high_watermark,
        diverging,
        records,
        snapshot,
    )


def _snapshot_response(message: Message) -> SnapshotResponse:
    assert isinstance(message, quorum_apis.FetchSnapshotResponse)
    if message.error_code != ErrorCode.NONE:
        return SnapshotResponse(_error(message.error_code), None, 0)
    if len(message.topics) != 1 or len(message.topics[0].partitions) != 1:
        raise MalformedResponseError("an answer about one snapshot has another number of them")
    data = message.topics[0].partitions[0]
    leader = data.current_leader or fetch.LeaderIdAndEpoch(NO_NODE, 0)
    return SnapshotResponse(
        _error(data.error_code),
        _own_id(leader.leader_id),
        leader.leader_epoch,
        OffsetAndEpoch(data.snapshot_id.epoch, data.snapshot_id.end_offset),
        data.position,
        data.size,
        bytes(data.unaligned_records),
    )


def check_fetched(request: FetchRequest, records: bytes) -> None:
    """Raise `MalformedResponseError` unless the batches are intact and continue the log from the fetch offset (H11)."""
    offset, epoch = request.fetch_from.offset, request.fetch_from.epoch
    try:
        headers = validate_batches(records)
    except CorruptBatch as error:
        raise MalformedResponseError(f"fetched records are corrupt: {error}") from error
    for header in headers:
        if header.base_offset != offset or not epoch <= header.leader_epoch <= request.epoch:
            raise MalformedResponseError(
                f"a batch at {header.base_offset} of epoch {header.leader_epoch} cannot follow offset {offset} of "
                f"epoch {epoch} in epoch {request.epoch}"
            )
        offset, epoch = header.next_offset, header.leader_epoch


def _wire_id(broker_id: int | None) -> int:
    return NO_NODE if broker_id is None else broker_id


def _own_id(broker_id: int) -> int | None:
    return None if broker_id < 0 else broker_id


def _error(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR

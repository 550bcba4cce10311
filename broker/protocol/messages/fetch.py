"""Fetch (1): from consumers, from follower replicas, and from followers of the metadata quorum."""

from typing import Annotated

from broker.protocol.request import Request
from broker.protocol.schema import NO_ID, Int8, Int16, Int32, Int64, Message, Records, ServedApi, String, Tag, Uuid, v


class ReplicaState(Message):
    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


class FetchPartition(Message):
    partition: Int32 = 0
    current_leader_epoch: Annotated[Int32, v("9+")] = -1
    fetch_offset: Int64 = 0
    last_fetched_epoch: Annotated[Int32, v("12+")] = -1
    log_start_offset: Annotated[Int64, v("5+")] = -1
    partition_max_bytes: Int32 = 0
    replica_directory_id: Annotated[Uuid, v("17+"), Tag(0)] = NO_ID
    high_watermark: Annotated[Int64, v("18+"), Tag(1)] = 0x7FFFFFFFFFFFFFFF


class FetchTopic(Message):
    topic: Annotated[String, v("0-12")] = ""
    topic_id: Annotated[Uuid, v("13+")] = NO_ID
    partitions: list[FetchPartition] = []


class ForgottenTopic(Message):
    topic: Annotated[String, v("7-12")] = ""
    topic_id: Annotated[Uuid, v("13+")] = NO_ID
    partitions: list[Int32] = []


class FetchRequest(Request["FetchResponse"]):
    """A replica's id is in `replica_id` up to version 14 and in `replica_state` from 15 on: see `fetching_replica`."""

    API = ServedApi(1, v("4-17"), v("12+"), declared=v("4-18"))

    cluster_id: Annotated[String | None, v("12+"), Tag(0)] = None
    replica_id: Annotated[Int32, v("0-14")] = -1
    replica_state: Annotated[ReplicaState | None, v("15+"), Tag(1)] = None
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Annotated[Int32, v("3+")] = 0x7FFFFFFF
    isolation_level: Annotated[Int8, v("4+")] = 0
    session_id: Annotated[Int32, v("7+")] = 0
    session_epoch: Annotated[Int32, v("7+")] = -1
    topics: list[FetchTopic] = []
    forgotten_topics_data: Annotated[list[ForgottenTopic], v("7+")] = []
    rack_id: Annotated[String, v("11+")] = ""


def fetching_replica(request: FetchRequest) -> ReplicaState:
    """The replica that sent the request, at any version: id and epoch, each -1 when not given."""
    return request.replica_state or ReplicaState(request.replica_id, -1)


class EpochEndOffset(Message):
    epoch: Int32 = -1
    end_offset: Int64 = -1


class LeaderIdAndEpoch(Message):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class SnapshotId(Message):
    end_offset: Int64 = -1
    epoch: Int32 = -1


class AbortedTransaction(Message):
    producer_id: Int64 = 0
    first_offset: Int64 = 0


class PartitionData(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    high_watermark: Int64 = 0
    last_stable_offset: Annotated[Int64, v("4+")] = -1
    log_start_offset: Annotated[Int64, v("5+")] = -1
    diverging_epoch: Annotated[EpochEndOffset | None, v("12+"), Tag(0)] = None
    current_leader: Annotated[LeaderIdAndEpoch | None, v("12+"), Tag(1)] = None
    snapshot_id: Annotated[SnapshotId | None, v("12+"), Tag(2)] = None
    aborted_transactions: Annotated[list[AbortedTransaction] | None, v("4+")] = []
    preferred_read_replica: Annotated[Int32, v("11+")] = -1
    records: Records | None = None


class FetchableTopicResponse(Message):
    topic: Annotated[String, v("0-12")] = ""
    topic_id: Annotated[Uuid, v("13+")] = NO_ID
    partitions: list[PartitionData] = []


class NodeEndpoint(Message):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None


class FetchResponse(Message):
    throttle_time_ms: Annotated[Int32, v("1+")] = 0
    error_code: Annotated[Int16, v("7+")] = 0
    session_id: Annotated[Int32, v("7+")] = 0
    responses: list[FetchableTopicResponse] = []
    node_endpoints: Annotated[list[NodeEndpoint], v("16+"), Tag(0)] = []

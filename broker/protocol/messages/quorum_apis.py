"""The quorum of the metadata log: Vote, BeginQuorumEpoch, EndQuorumEpoch, DescribeQuorum and FetchSnapshot.

Its followers read the log with Fetch, as those of a partition.
"""

from typing import Annotated

import msgspec

from broker.protocol.messages.fetch import LeaderIdAndEpoch
from broker.protocol.request import Request
from broker.protocol.schema import (
    NO_ID,
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    QuorumTopic,
    Records,
    ServedApi,
    String,
    Tag,
    Topic,
    UInt16,
    Uuid,
    v,
)

# ---- Vote (52): KIP-595, with KIP-996's pre-vote in version 2.


SILENCE_TAG = 10_000
"""Far above the tags that Apache Kafka assigns."""


class VotePartitionData(Message):
    """`replica_epoch` and `replica_id` are the candidate's (CandidateEpoch, CandidateId before version 2)."""

    partition_index: Int32 = 0
    replica_epoch: Int32 = 0
    replica_id: Int32 = 0
    replica_directory_id: Annotated[Uuid, v("1+")] = NO_ID
    voter_directory_id: Annotated[Uuid, v("1+")] = NO_ID
    last_offset_epoch: Int32 = 0
    last_offset: Int64 = 0
    pre_vote: Annotated[Bool, v("2+")] = False


class VoteRequest(Request["VoteResponse"]):
    API = ServedApi(52, v("0-2"), v("0+"), advertised=v("none"), operation="CLUSTER_ACTION")

    cluster_id: String | None = None
    voter_id: Annotated[Int32, v("1+")] = -1
    topics: list[QuorumTopic[VotePartitionData]] = []


class VotePartitionResult(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    vote_granted: Bool = False
    leader_silence_ms: Annotated[Int64, Tag(SILENCE_TAG)] = 0
    """For how long the voter has received nothing from a leader, at least. Apache Kafka has no such field."""


class NodeEndpoint(Message):
    node_id: Int32 = 0
    host: String = ""
    port: UInt16 = 0


class VoteResponse(Message):
    error_code: Int16 = 0
    topics: list[QuorumTopic[VotePartitionResult]] = []
    node_endpoints: Annotated[list[NodeEndpoint], v("1+"), Tag(0)] = []


# ---- BeginQuorumEpoch (53): KIP-595.


class BeginQuorumEpochPartitionData(Message):
    partition_index: Int32 = 0
    voter_directory_id: Annotated[Uuid, v("1+")] = NO_ID
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class Listener(Message):
    name: String = ""
    host: String = ""
    port: UInt16 = 0


class BeginQuorumEpochRequest(Request["BeginQuorumEpochResponse"]):
    API = ServedApi(53, v("0-1"), v("1+"), advertised=v("none"), operation="CLUSTER_ACTION")

    cluster_id: String | None = None
    voter_id: Annotated[Int32, v("1+")] = 0
    topics: list[QuorumTopic[BeginQuorumEpochPartitionData]] = []
    leader_endpoints: Annotated[list[Listener], v("1+")] = []


class QuorumEpochPartitionResult(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class BeginQuorumEpochResponse(Message):
    error_code: Int16 = 0
    topics: list[QuorumTopic[QuorumEpochPartitionResult]] = []
    node_endpoints: Annotated[list[NodeEndpoint], v("1+"), Tag(0)] = []


# ---- EndQuorumEpoch (54): KIP-595.


class ReplicaInfo(Message):
    candidate_id: Int32 = 0
    candidate_directory_id: Uuid = NO_ID


class EndQuorumEpochPartitionData(Message):
    """The successors are `preferred_successors` in version 0 and `preferred_candidates` from 1 on, best first."""

    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    preferred_successors: Annotated[list[Int32], v("0")] = []
    preferred_candidates: Annotated[list[ReplicaInfo], v("1+")] = []


class EndQuorumEpochRequest(Request["EndQuorumEpochResponse"]):
    API = ServedApi(54, v("0-1"), v("1+"), advertised=v("none"), operation="CLUSTER_ACTION")

    cluster_id: String | None = None
    topics: list[QuorumTopic[EndQuorumEpochPartitionData]] = []
    leader_endpoints: Annotated[list[Listener], v("1+")] = []


class EndQuorumEpochResponse(Message):
    error_code: Int16 = 0
    topics: list[QuorumTopic[QuorumEpochPartitionResult]] = []
    node_endpoints: Annotated[list[NodeEndpoint], v("1+"), Tag(0)] = []


# ---- DescribeQuorum (55): KIP-595, KIP-836, KIP-853.


class DescribeQuorumPartitionData(Message):
    partition_index: Int32 = 0


class DescribeQuorumRequest(Request["DescribeQuorumResponse"]):
    API = ServedApi(55, v("0-2"), v("0+"), operation="DESCRIBE")

    topics: list[QuorumTopic[DescribeQuorumPartitionData]] = []


class ReplicaState(Message):
    replica_id: Int32 = 0
    replica_directory_id: Annotated[Uuid, v("2+")] = NO_ID
    log_end_offset: Int64 = 0
    last_fetch_timestamp: Annotated[Int64, v("1+")] = -1
    last_caught_up_timestamp: Annotated[Int64, v("1+")] = -1


class DescribeQuorumPartitionResult(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[String | None, v("2+")] = ""
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    high_watermark: Int64 = 0
    current_voters: list[ReplicaState] = []
    observers: list[ReplicaState] = []


class Node(Message):
    node_id: Int32 = 0
    listeners: list[Listener] = []


class DescribeQuorumResponse(Message):
    error_code: Int16 = 0
    error_message: Annotated[String | None, v("2+")] = ""
    topics: list[QuorumTopic[DescribeQuorumPartitionResult]] = []
    nodes: Annotated[list[Node], v("2+")] = []


# ---- FetchSnapshot (59): a piece of a snapshot of the metadata log (KIP-630).


class SnapshotId(Message):
    end_offset: Int64 = 0
    epoch: Int32 = 0


class PartitionSnapshot(Message):
    """`position`: of the first requested byte."""

    partition: Int32 = 0
    current_leader_epoch: Int32 = 0
    snapshot_id: SnapshotId = msgspec.field(default_factory=SnapshotId)
    position: Int64 = 0
    replica_directory_id: Annotated[Uuid, v("1+"), Tag(0)] = NO_ID


class FetchSnapshotRequest(Request["FetchSnapshotResponse"]):
    API = ServedApi(59, v("0-1"), v("0+"), advertised=v("none"), operation="CLUSTER_ACTION")

    cluster_id: Annotated[String | None, Tag(0)] = None
    replica_id: Int32 = -1
    max_bytes: Int32 = 0x7FFFFFFF
    topics: list[Topic[PartitionSnapshot]] = []


class PartitionSnapshotResult(Message):
    """`size`: of the whole snapshot; `unaligned_records`: bytes of it, which may start and end inside a batch."""

    index: Int32 = 0
    error_code: Int16 = 0
    snapshot_id: SnapshotId = msgspec.field(default_factory=SnapshotId)
    current_leader: Annotated[LeaderIdAndEpoch | None, Tag(0)] = None
    size: Int64 = 0
    position: Int64 = 0
    unaligned_records: Records = b""


class FetchSnapshotResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: list[Topic[PartitionSnapshotResult]] = []
    node_endpoints: Annotated[list[NodeEndpoint], v("1+"), Tag(0)] = []

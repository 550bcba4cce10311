"""Vote (52): KIP-595, with KIP-996's pre-vote in version 2."""

from __future__ import annotations

from typing import Annotated

from broker.protocol.schema import NO_ID, Bool, Int16, Int32, Int64, Message, ServedApi, String, Tag, UInt16, Uuid, v

SILENCE_TAG = 10_000
"""Far above the tags that Apache Kafka assigns."""


class PartitionData(Message):
    """`replica_epoch` and `replica_id` are the candidate's (CandidateEpoch, CandidateId before version 2)."""

    partition_index: Int32 = 0
    replica_epoch: Int32 = 0
    replica_id: Int32 = 0
    replica_directory_id: Annotated[Uuid, v("1+")] = NO_ID
    voter_directory_id: Annotated[Uuid, v("1+")] = NO_ID
    last_offset_epoch: Int32 = 0
    last_offset: Int64 = 0
    pre_vote: Annotated[Bool, v("2+")] = False


class TopicData(Message):
    topic_name: String = ""
    partitions: list[PartitionData] = []


class VoteRequest(Message):
    API = ServedApi(52, v("0-2"), advertised=v("none"), operation="CLUSTER_ACTION")
    VERSIONS = v("0-2")
    FLEXIBLE = v("0+")

    cluster_id: String | None = None
    voter_id: Annotated[Int32, v("1+")] = -1
    topics: list[TopicData] = []


class PartitionResult(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    vote_granted: Bool = False
    leader_silence_ms: Annotated[Int64, Tag(SILENCE_TAG)] = 0
    """For how long the voter has received nothing from a leader, at least. Apache Kafka has no such field."""


class TopicResult(Message):
    topic_name: String = ""
    partitions: list[PartitionResult] = []


class NodeEndpoint(Message):
    node_id: Int32 = 0
    host: String = ""
    port: UInt16 = 0


class VoteResponse(Message):
    VERSIONS = v("0-2")
    FLEXIBLE = v("0+")

    error_code: Int16 = 0
    topics: list[TopicResult] = []
    node_endpoints: Annotated[list[NodeEndpoint], v("1+"), Tag(0)] = []

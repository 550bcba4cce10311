"""EndQuorumEpoch (54): KIP-595."""

from __future__ import annotations

from typing import Annotated

from broker.protocol.schema import NO_ID, Int16, Int32, Message, ServedApi, String, Tag, UInt16, Uuid, v


class ReplicaInfo(Message):
    candidate_id: Int32 = 0
    candidate_directory_id: Uuid = NO_ID


class PartitionData(Message):
    """The successors are `preferred_successors` in version 0 and `preferred_candidates` from 1 on, best first."""

    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    preferred_successors: Annotated[list[Int32], v("0")] = []
    preferred_candidates: Annotated[list[ReplicaInfo], v("1+")] = []


class TopicData(Message):
    topic_name: String = ""
    partitions: list[PartitionData] = []


class LeaderEndpoint(Message):
    name: String = ""
    host: String = ""
    port: UInt16 = 0


class EndQuorumEpochRequest(Message):
    API = ServedApi(54, v("0-1"), advertised=v("none"), operation="CLUSTER_ACTION")
    VERSIONS = v("0-1")
    FLEXIBLE = v("1+")

    cluster_id: String | None = None
    topics: list[TopicData] = []
    leader_endpoints: Annotated[list[LeaderEndpoint], v("1+")] = []


class PartitionResult(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class TopicResult(Message):
    topic_name: String = ""
    partitions: list[PartitionResult] = []


class NodeEndpoint(Message):
    node_id: Int32 = 0
    host: String = ""
    port: UInt16 = 0


class EndQuorumEpochResponse(Message):
    VERSIONS = v("0-1")
    FLEXIBLE = v("1+")

    error_code: Int16 = 0
    topics: list[TopicResult] = []
    node_endpoints: Annotated[list[NodeEndpoint], v("1+"), Tag(0)] = []

"""BeginQuorumEpoch (53): KIP-595."""

from __future__ import annotations

from typing import Annotated

from broker.protocol.schema import NO_ID, Int16, Int32, Message, ServedApi, String, Tag, UInt16, Uuid, v


class PartitionData(Message):
    partition_index: Int32 = 0
    voter_directory_id: Annotated[Uuid, v("1+")] = NO_ID
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class TopicData(Message):
    topic_name: String = ""
    partitions: list[PartitionData] = []


class LeaderEndpoint(Message):
    name: String = ""
    host: String = ""
    port: UInt16 = 0


class BeginQuorumEpochRequest(Message):
    API = ServedApi(53, v("0-1"), advertised=v("none"), operation="CLUSTER_ACTION")
    VERSIONS = v("0-1")
    FLEXIBLE = v("1+")

    cluster_id: String | None = None
    voter_id: Annotated[Int32, v("1+")] = 0
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


class BeginQuorumEpochResponse(Message):
    VERSIONS = v("0-1")
    FLEXIBLE = v("1+")

    error_code: Int16 = 0
    topics: list[TopicResult] = []
    node_endpoints: Annotated[list[NodeEndpoint], v("1+"), Tag(0)] = []

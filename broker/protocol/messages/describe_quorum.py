"""DescribeQuorum (55): KIP-595, KIP-836, KIP-853."""

from __future__ import annotations

from typing import Annotated

from broker.protocol.schema import NO_ID, Int16, Int32, Int64, Message, ServedApi, String, UInt16, Uuid, v


class PartitionData(Message):
    partition_index: Int32 = 0


class TopicData(Message):
    topic_name: String = ""
    partitions: list[PartitionData] = []


class DescribeQuorumRequest(Message):
    API = ServedApi(55, v("0-2"), operation="DESCRIBE")
    VERSIONS = v("0-2")
    FLEXIBLE = v("0+")

    topics: list[TopicData] = []


class ReplicaState(Message):
    replica_id: Int32 = 0
    replica_directory_id: Annotated[Uuid, v("2+")] = NO_ID
    log_end_offset: Int64 = 0
    last_fetch_timestamp: Annotated[Int64, v("1+")] = -1
    last_caught_up_timestamp: Annotated[Int64, v("1+")] = -1


class PartitionResult(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[String | None, v("2+")] = ""
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    high_watermark: Int64 = 0
    current_voters: list[ReplicaState] = []
    observers: list[ReplicaState] = []


class TopicResult(Message):
    topic_name: String = ""
    partitions: list[PartitionResult] = []


class Listener(Message):
    name: String = ""
    host: String = ""
    port: UInt16 = 0


class Node(Message):
    node_id: Int32 = 0
    listeners: list[Listener] = []


class DescribeQuorumResponse(Message):
    VERSIONS = v("0-2")
    FLEXIBLE = v("0+")

    error_code: Int16 = 0
    error_message: Annotated[String | None, v("2+")] = ""
    topics: list[TopicResult] = []
    nodes: Annotated[list[Node], v("2+")] = []

"""ListOffsets (2)."""

from __future__ import annotations

from typing import Annotated

from broker.protocol.schema import Int8, Int16, Int32, Int64, Message, ServedApi, String, v

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6


class ListOffsetsPartition(Message):
    partition_index: Int32 = 0
    current_leader_epoch: Annotated[Int32, v("4+")] = -1
    timestamp: Int64 = 0


class ListOffsetsTopic(Message):
    name: String = ""
    partitions: list[ListOffsetsPartition] = []


class ListOffsetsRequest(Message):
    API = ServedApi(2, v("1-11"))
    VERSIONS = v("1-11")
    FLEXIBLE = v("6+")

    replica_id: Int32 = 0
    isolation_level: Annotated[Int8, v("2+")] = 0
    topics: list[ListOffsetsTopic] = []
    timeout_ms: Annotated[Int32, v("10+")] = 0


class ListOffsetsPartitionResponse(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    timestamp: Annotated[Int64, v("1+")] = -1
    offset: Annotated[Int64, v("1+")] = -1
    leader_epoch: Annotated[Int32, v("4+")] = -1


class ListOffsetsTopicResponse(Message):
    name: String = ""
    partitions: list[ListOffsetsPartitionResponse] = []


class ListOffsetsResponse(Message):
    VERSIONS = v("1-11")
    FLEXIBLE = v("6+")

    throttle_time_ms: Annotated[Int32, v("2+")] = 0
    topics: list[ListOffsetsTopicResponse] = []

"""Offsets of logs (ListOffsets, OffsetForLeaderEpoch, DeleteRecords) and of groups (OffsetCommit, OffsetFetch,
OffsetDelete)."""

from typing import Annotated

from broker.protocol.request import Request
from broker.protocol.schema import Bool, Int8, Int16, Int32, Int64, Message, Nullable, ServedApi, String, Topic, v

# ---- ListOffsets (2).


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


class ListOffsetsRequest(Request["ListOffsetsResponse"]):
    API = ServedApi(2, v("1-11"), v("6+"))

    replica_id: Int32 = 0
    isolation_level: Annotated[Int8, v("2+")] = 0
    topics: list[Topic[ListOffsetsPartition]] = []
    timeout_ms: Annotated[Int32, v("10+")] = 0


class ListOffsetsPartitionResponse(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    timestamp: Annotated[Int64, v("1+")] = -1
    offset: Annotated[Int64, v("1+")] = -1
    leader_epoch: Annotated[Int32, v("4+")] = -1


class ListOffsetsResponse(Message):
    throttle_time_ms: Annotated[Int32, v("2+")] = 0
    topics: list[Topic[ListOffsetsPartitionResponse]] = []


# ---- OffsetForLeaderEpoch (23).


class OffsetForLeaderPartition(Message):
    partition: Int32 = 0
    current_leader_epoch: Annotated[Int32, v("2+")] = -1
    leader_epoch: Int32 = 0


class OffsetForLeaderTopic(Message):
    topic: String = ""
    partitions: list[OffsetForLeaderPartition] = []


class OffsetForLeaderEpochRequest(Request["OffsetForLeaderEpochResponse"]):
    API = ServedApi(23, v("2-4"), v("4+"))

    replica_id: Annotated[Int32, v("3+")] = -2
    topics: list[OffsetForLeaderTopic] = []


class EpochEndOffset(Message):
    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Annotated[Int32, v("1+")] = -1
    end_offset: Int64 = -1


class OffsetForLeaderTopicResult(Message):
    topic: String = ""
    partitions: list[EpochEndOffset] = []


class OffsetForLeaderEpochResponse(Message):
    throttle_time_ms: Annotated[Int32, v("2+")] = 0
    topics: list[OffsetForLeaderTopicResult] = []


# ---- DeleteRecords (21).


HIGH_WATERMARK = -1
"""As an `offset`: everything committed."""


class DeleteRecordsPartition(Message):
    partition_index: Int32 = 0
    offset: Int64 = 0


class DeleteRecordsRequest(Request["DeleteRecordsResponse"]):
    API = ServedApi(21, v("0-2"), v("2+"))

    topics: list[Topic[DeleteRecordsPartition]] = []
    timeout_ms: Int32 = 0


class DeleteRecordsPartitionResult(Message):
    partition_index: Int32 = 0
    low_watermark: Int64 = 0
    error_code: Int16 = 0


class DeleteRecordsResponse(Message):
    throttle_time_ms: Int32 = 0
    topics: list[Topic[DeleteRecordsPartitionResult]] = []


# ---- OffsetCommit (8).


class OffsetCommitRequestPartition(Message):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, v("6+")] = -1
    committed_metadata: String | None = ""


class OffsetCommitRequest(Request["OffsetCommitResponse"]):
    API = ServedApi(8, v("2-9"), v("8+"))

    group_id: String = ""
    generation_id_or_member_epoch: Int32 = -1
    member_id: String = ""
    group_instance_id: Annotated[String | None, v("7+")] = None
    retention_time_ms: Annotated[Int64, v("2-4")] = -1
    topics: list[Topic[OffsetCommitRequestPartition]] = []


class OffsetCommitResponsePartition(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetCommitResponse(Message):
    throttle_time_ms: Annotated[Int32, v("3+")] = 0
    topics: list[Topic[OffsetCommitResponsePartition]] = []


# ---- OffsetFetch (9).


class OffsetFetchRequestTopic(Message):
    name: String = ""
    partition_indexes: list[Int32] = []


class OffsetFetchRequestGroup(Message):
    group_id: Annotated[String, v("8+")] = ""
    member_id: Annotated[String | None, v("9+")] = None
    member_epoch: Annotated[Int32, v("9+")] = -1
    topics: Annotated[list[OffsetFetchRequestTopic] | None, v("8+")] = []


class OffsetFetchRequest(Request["OffsetFetchResponse"]):
    API = ServedApi(9, v("1-9"), v("6+"))

    group_id: Annotated[String, v("0-7")] = ""
    topics: Annotated[list[OffsetFetchRequestTopic] | None, v("0-7"), Nullable("2-7")] = []
    groups: Annotated[list[OffsetFetchRequestGroup], v("8+")] = []
    require_stable: Annotated[Bool, v("7+")] = False


class OffsetFetchResponsePartition(Message):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, v("5+")] = -1
    metadata: String | None = ""
    error_code: Int16 = 0


class OffsetFetchResponseGroup(Message):
    group_id: Annotated[String, v("8+")] = ""
    topics: Annotated[list[Topic[OffsetFetchResponsePartition]], v("8+")] = []
    error_code: Annotated[Int16, v("8+")] = 0


class OffsetFetchResponse(Message):
    throttle_time_ms: Annotated[Int32, v("3+")] = 0
    topics: Annotated[list[Topic[OffsetFetchResponsePartition]], v("0-7")] = []
    error_code: Annotated[Int16, v("2-7")] = 0
    groups: Annotated[list[OffsetFetchResponseGroup], v("8+")] = []


# ---- OffsetDelete (47).


class OffsetDeleteRequestPartition(Message):
    partition_index: Int32 = 0


class OffsetDeleteRequest(Request["OffsetDeleteResponse"]):
    API = ServedApi(47, v("0"))

    group_id: String = ""
    topics: list[Topic[OffsetDeleteRequestPartition]] = []


class OffsetDeleteResponsePartition(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetDeleteResponse(Message):
    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: list[Topic[OffsetDeleteResponsePartition]] = []

"""DeleteRecords (21)."""

from __future__ import annotations

from broker.protocol.schema import Int16, Int32, Int64, Message, ServedApi, String, v

HIGH_WATERMARK = -1
"""As an `offset`: everything committed."""


class DeleteRecordsPartition(Message):
    partition_index: Int32 = 0
    offset: Int64 = 0


class DeleteRecordsTopic(Message):
    name: String = ""
    partitions: list[DeleteRecordsPartition] = []


class DeleteRecordsRequest(Message):
    API = ServedApi(21, v("0-2"))
    VERSIONS = v("0-2")
    FLEXIBLE = v("2+")

    topics: list[DeleteRecordsTopic] = []
    timeout_ms: Int32 = 0


class DeleteRecordsPartitionResult(Message):
    partition_index: Int32 = 0
    low_watermark: Int64 = 0
    error_code: Int16 = 0


class DeleteRecordsTopicResult(Message):
    name: String = ""
    partitions: list[DeleteRecordsPartitionResult] = []


class DeleteRecordsResponse(Message):
    VERSIONS = v("0-2")
    FLEXIBLE = v("2+")

    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult] = []

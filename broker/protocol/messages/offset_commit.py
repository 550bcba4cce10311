"""OffsetCommit (8)."""

from __future__ import annotations

from typing import Annotated

from broker.protocol.schema import Int16, Int32, Int64, Message, ServedApi, String, v


class OffsetCommitRequestPartition(Message):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, v("6+")] = -1
    committed_metadata: String | None = ""


class OffsetCommitRequestTopic(Message):
    name: String = ""
    partitions: list[OffsetCommitRequestPartition] = []


class OffsetCommitRequest(Message):
    API = ServedApi(8, v("2-9"))
    VERSIONS = v("2-9")
    FLEXIBLE = v("8+")

    group_id: String = ""
    generation_id_or_member_epoch: Int32 = -1
    member_id: String = ""
    group_instance_id: Annotated[String | None, v("7+")] = None
    retention_time_ms: Annotated[Int64, v("2-4")] = -1
    topics: list[OffsetCommitRequestTopic] = []


class OffsetCommitResponsePartition(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetCommitResponseTopic(Message):
    name: String = ""
    partitions: list[OffsetCommitResponsePartition] = []


class OffsetCommitResponse(Message):
    VERSIONS = v("2-9")
    FLEXIBLE = v("8+")

    throttle_time_ms: Annotated[Int32, v("3+")] = 0
    topics: list[OffsetCommitResponseTopic] = []

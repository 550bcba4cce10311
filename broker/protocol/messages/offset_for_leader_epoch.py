"""OffsetForLeaderEpoch (23)."""

from __future__ import annotations

from typing import Annotated

from broker.protocol.schema import Int16, Int32, Int64, Message, ServedApi, String, v


class OffsetForLeaderPartition(Message):
    partition: Int32 = 0
    current_leader_epoch: Annotated[Int32, v("2+")] = -1
    leader_epoch: Int32 = 0


class OffsetForLeaderTopic(Message):
    topic: String = ""
    partitions: list[OffsetForLeaderPartition] = []


class OffsetForLeaderEpochRequest(Message):
    API = ServedApi(23, v("2-4"))
    VERSIONS = v("2-4")
    FLEXIBLE = v("4+")

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
    VERSIONS = v("2-4")
    FLEXIBLE = v("4+")

    throttle_time_ms: Annotated[Int32, v("2+")] = 0
    topics: list[OffsetForLeaderTopicResult] = []

"""AlterPartitionReassignments (45)."""

from __future__ import annotations

from typing import Annotated

from broker.protocol.schema import Bool, Int16, Int32, Message, ServedApi, String, v


class ReassignablePartition(Message):
    """`replicas` None: cancel the reassignment that is under way."""

    partition_index: Int32 = 0
    replicas: list[Int32] | None = None


class ReassignableTopic(Message):
    name: String = ""
    partitions: list[ReassignablePartition] = []


class AlterPartitionReassignmentsRequest(Message):
    API = ServedApi(45, v("0-1"), operation="ALTER")
    VERSIONS = v("0-1")
    FLEXIBLE = v("0+")

    timeout_ms: Int32 = 60_000
    allow_replication_factor_change: Annotated[Bool, v("1+")] = True
    topics: list[ReassignableTopic] = []


class ReassignablePartitionResponse(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""


class ReassignableTopicResponse(Message):
    name: String = ""
    partitions: list[ReassignablePartitionResponse] = []


class AlterPartitionReassignmentsResponse(Message):
    VERSIONS = v("0-1")
    FLEXIBLE = v("0+")

    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Annotated[Bool, v("1+")] = True
    error_code: Int16 = 0
    error_message: String | None = ""
    responses: list[ReassignableTopicResponse] = []

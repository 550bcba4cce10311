"""ListPartitionReassignments (46)."""

from __future__ import annotations

from broker.protocol.schema import Int16, Int32, Message, ServedApi, String, v


class ListPartitionReassignmentsTopics(Message):
    name: String = ""
    partition_indexes: list[Int32] = []


class ListPartitionReassignmentsRequest(Message):
    API = ServedApi(46, v("0"), operation="DESCRIBE")
    VERSIONS = v("0")
    FLEXIBLE = v("0+")

    timeout_ms: Int32 = 60_000
    topics: list[ListPartitionReassignmentsTopics] | None = None


class OngoingPartitionReassignment(Message):
    partition_index: Int32 = 0
    replicas: list[Int32] = []
    adding_replicas: list[Int32] = []
    removing_replicas: list[Int32] = []


class OngoingTopicReassignment(Message):
    name: String = ""
    partitions: list[OngoingPartitionReassignment] = []


class ListPartitionReassignmentsResponse(Message):
    VERSIONS = v("0")
    FLEXIBLE = v("0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    topics: list[OngoingTopicReassignment] = []

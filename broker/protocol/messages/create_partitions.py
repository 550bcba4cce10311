"""CreatePartitions (37)."""

from __future__ import annotations

from broker.protocol.schema import Bool, Int16, Int32, Message, ServedApi, String, v


class CreatePartitionsAssignment(Message):
    broker_ids: list[Int32] = []


class CreatePartitionsTopic(Message):
    """`count`: how many partitions the topic shall have, existing ones included."""

    name: String = ""
    count: Int32 = 0
    assignments: list[CreatePartitionsAssignment] | None = []


class CreatePartitionsRequest(Message):
    API = ServedApi(37, v("0-3"))
    VERSIONS = v("0-3")
    FLEXIBLE = v("2+")

    topics: list[CreatePartitionsTopic] = []
    timeout_ms: Int32 = 0
    validate_only: Bool = False


class CreatePartitionsTopicResult(Message):
    name: String = ""
    error_code: Int16 = 0
    error_message: String | None = None


class CreatePartitionsResponse(Message):
    VERSIONS = v("0-3")
    FLEXIBLE = v("2+")

    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult] = []

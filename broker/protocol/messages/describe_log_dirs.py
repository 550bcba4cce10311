"""DescribeLogDirs (35)."""

from __future__ import annotations

from typing import Annotated

from broker.protocol.schema import Bool, Int16, Int32, Int64, Message, ServedApi, String, v


class DescribableLogDirTopic(Message):
    topic: String = ""
    partitions: list[Int32] = []


class DescribeLogDirsRequest(Message):
    API = ServedApi(35, v("1-4"), operation="DESCRIBE")
    VERSIONS = v("1-4")
    FLEXIBLE = v("2+")

    topics: list[DescribableLogDirTopic] | None = []


class DescribeLogDirsPartition(Message):
    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: Bool = False


class DescribeLogDirsTopic(Message):
    name: String = ""
    partitions: list[DescribeLogDirsPartition] = []


class DescribeLogDirsResult(Message):
    error_code: Int16 = 0
    log_dir: String = ""
    topics: list[DescribeLogDirsTopic] = []
    total_bytes: Annotated[Int64, v("4+")] = -1
    usable_bytes: Annotated[Int64, v("4+")] = -1


class DescribeLogDirsResponse(Message):
    VERSIONS = v("1-4")
    FLEXIBLE = v("2+")

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, v("3+")] = 0
    results: list[DescribeLogDirsResult] = []

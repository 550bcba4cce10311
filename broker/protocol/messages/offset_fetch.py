"""OffsetFetch (9)."""

from __future__ import annotations

from typing import Annotated

from broker.protocol.schema import Bool, Int16, Int32, Int64, Message, Nullable, ServedApi, String, v


class OffsetFetchRequestTopic(Message):
    name: Annotated[String, v("0-7")] = ""
    partition_indexes: Annotated[list[Int32], v("0-7")] = []


class OffsetFetchRequestTopics(Message):
    name: Annotated[String, v("8-9")] = ""
    partition_indexes: Annotated[list[Int32], v("8+")] = []


class OffsetFetchRequestGroup(Message):
    group_id: Annotated[String, v("8+")] = ""
    member_id: Annotated[String | None, v("9+")] = None
    member_epoch: Annotated[Int32, v("9+")] = -1
    topics: Annotated[list[OffsetFetchRequestTopics] | None, v("8+")] = []


class OffsetFetchRequest(Message):
    API = ServedApi(9, v("1-9"))
    VERSIONS = v("1-9")
    FLEXIBLE = v("6+")

    group_id: Annotated[String, v("0-7")] = ""
    topics: Annotated[list[OffsetFetchRequestTopic] | None, v("0-7"), Nullable("2-7")] = []
    groups: Annotated[list[OffsetFetchRequestGroup], v("8+")] = []
    require_stable: Annotated[Bool, v("7+")] = False


class OffsetFetchResponsePartition(Message):
    partition_index: Annotated[Int32, v("0-7")] = 0
    committed_offset: Annotated[Int64, v("0-7")] = 0
    committed_leader_epoch: Annotated[Int32, v("5-7")] = -1
    metadata: Annotated[String | None, v("0-7")] = ""
    error_code: Annotated[Int16, v("0-7")] = 0


class OffsetFetchResponseTopic(Message):
    name: Annotated[String, v("0-7")] = ""
    partitions: Annotated[list[OffsetFetchResponsePartition], v("0-7")] = []


class OffsetFetchResponsePartitions(Message):
    partition_index: Annotated[Int32, v("8+")] = 0
    committed_offset: Annotated[Int64, v("8+")] = 0
    committed_leader_epoch: Annotated[Int32, v("8+")] = -1
    metadata: Annotated[String | None, v("8+")] = ""
    error_code: Annotated[Int16, v("8+")] = 0


class OffsetFetchResponseTopics(Message):
    name: Annotated[String, v("8-9")] = ""
    partitions: Annotated[list[OffsetFetchResponsePartitions], v("8+")] = []


class OffsetFetchResponseGroup(Message):
    group_id: Annotated[String, v("8+")] = ""
    topics: Annotated[list[OffsetFetchResponseTopics], v("8+")] = []
    error_code: Annotated[Int16, v("8+")] = 0


class OffsetFetchResponse(Message):
    VERSIONS = v("1-9")
    FLEXIBLE = v("6+")

    throttle_time_ms: Annotated[Int32, v("3+")] = 0
    topics: Annotated[list[OffsetFetchResponseTopic], v("0-7")] = []
    error_code: Annotated[Int16, v("2-7")] = 0
    groups: Annotated[list[OffsetFetchResponseGroup], v("8+")] = []

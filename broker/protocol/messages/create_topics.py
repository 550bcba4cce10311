"""CreateTopics (19)."""

from __future__ import annotations

from typing import Annotated

from broker.protocol.schema import NO_ID, Bool, Int8, Int16, Int32, Message, ServedApi, String, Tag, Uuid, v


class CreatableReplicaAssignment(Message):
    partition_index: Int32 = 0
    broker_ids: list[Int32] = []


class CreatableTopicConfig(Message):
    name: String = ""
    value: String | None = ""


class CreatableTopic(Message):
    name: String = ""
    num_partitions: Int32 = 0
    replication_factor: Int16 = 0
    assignments: list[CreatableReplicaAssignment] = []
    configs: list[CreatableTopicConfig] = []


class CreateTopicsRequest(Message):
    API = ServedApi(19, v("2-7"))
    VERSIONS = v("2-7")
    FLEXIBLE = v("5+")

    topics: list[CreatableTopic] = []
    timeout_ms: Int32 = 60_000
    validate_only: Annotated[Bool, v("1+")] = False


class CreatableTopicConfigs(Message):
    name: String = ""
    value: String | None = ""
    read_only: Bool = False
    config_source: Int8 = -1
    is_sensitive: Bool = False


class CreatableTopicResult(Message):
    name: String = ""
    topic_id: Annotated[Uuid, v("7+")] = NO_ID
    error_code: Int16 = 0
    error_message: Annotated[String | None, v("1+")] = ""
    topic_config_error_code: Annotated[Int16, v("5+"), Tag(0)] = 0
    num_partitions: Annotated[Int32, v("5+")] = -1
    replication_factor: Annotated[Int16, v("5+")] = -1
    configs: Annotated[list[CreatableTopicConfigs] | None, v("5+")] = []


class CreateTopicsResponse(Message):
    VERSIONS = v("2-7")
    FLEXIBLE = v("5+")

    throttle_time_ms: Annotated[Int32, v("2+")] = 0
    topics: list[CreatableTopicResult] = []

"""Topics: CreateTopics, DeleteTopics and CreatePartitions."""

from typing import Annotated

from broker.protocol.request import Request
from broker.protocol.schema import NO_ID, Bool, Int8, Int16, Int32, Message, Nullable, ServedApi, String, Tag, Uuid, v

# ---- CreateTopics (19).


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


class CreateTopicsRequest(Request["CreateTopicsResponse"]):
    API = ServedApi(19, v("2-7"), v("5+"))

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
    throttle_time_ms: Annotated[Int32, v("2+")] = 0
    topics: list[CreatableTopicResult] = []


# ---- DeleteTopics (20).


class DeleteTopicState(Message):
    name: String | None = None
    topic_id: Uuid = NO_ID


class DeleteTopicsRequest(Request["DeleteTopicsResponse"]):
    """Topics are named in `topic_names` up to version 5, in `topics` from 6 on."""

    API = ServedApi(20, v("1-6"), v("4+"))

    topics: Annotated[list[DeleteTopicState], v("6+")] = []
    topic_names: Annotated[list[String], v("0-5")] = []
    timeout_ms: Int32 = 0


class DeletableTopicResult(Message):
    name: Annotated[String | None, Nullable("6+")] = ""
    topic_id: Annotated[Uuid, v("6+")] = NO_ID
    error_code: Int16 = 0
    error_message: Annotated[String | None, v("5+")] = None


class DeleteTopicsResponse(Message):
    throttle_time_ms: Annotated[Int32, v("1+")] = 0
    responses: list[DeletableTopicResult] = []


# ---- CreatePartitions (37).


class CreatePartitionsAssignment(Message):
    broker_ids: list[Int32] = []


class CreatePartitionsTopic(Message):
    """`count`: how many partitions the topic shall have, existing ones included."""

    name: String = ""
    count: Int32 = 0
    assignments: list[CreatePartitionsAssignment] | None = []


class CreatePartitionsRequest(Request["CreatePartitionsResponse"]):
    API = ServedApi(37, v("0-3"), v("2+"))

    topics: list[CreatePartitionsTopic] = []
    timeout_ms: Int32 = 0
    validate_only: Bool = False


class CreatePartitionsTopicResult(Message):
    name: String = ""
    error_code: Int16 = 0
    error_message: String | None = None


class CreatePartitionsResponse(Message):
    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult] = []

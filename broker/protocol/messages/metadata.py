"""Metadata (3)."""

from __future__ import annotations

from typing import Annotated

from broker.protocol.schema import NO_ID, Bool, Int16, Int32, Message, Nullable, ServedApi, String, Uuid, v

UNKNOWN_AUTHORIZED_OPERATIONS = -(2**31)


class MetadataRequestTopic(Message):
    topic_id: Annotated[Uuid, v("10+")] = NO_ID
    name: Annotated[String | None, Nullable("10+")] = ""


class MetadataRequest(Message):
    """`topics` None asks for all topics, an empty list for no topic (version 0: an empty list for all)."""

    API = ServedApi(3, v("0-13"))
    VERSIONS = v("0-13")
    FLEXIBLE = v("9+")

    topics: Annotated[list[MetadataRequestTopic] | None, Nullable("1+")] = []
    allow_auto_topic_creation: Annotated[Bool, v("4+")] = True
    include_cluster_authorized_operations: Annotated[Bool, v("8-10")] = False
    include_topic_authorized_operations: Annotated[Bool, v("8+")] = False


class MetadataResponseBroker(Message):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: Annotated[String | None, v("1+")] = None


class MetadataResponsePartition(Message):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Annotated[Int32, v("7+")] = -1
    replica_nodes: list[Int32] = []
    isr_nodes: list[Int32] = []
    offline_replicas: Annotated[list[Int32], v("5+")] = []


class MetadataResponseTopic(Message):
    error_code: Int16 = 0
    name: Annotated[String | None, Nullable("12+")] = ""
    topic_id: Annotated[Uuid, v("10+")] = NO_ID
    is_internal: Annotated[Bool, v("1+")] = False
    partitions: list[MetadataResponsePartition] = []
    topic_authorized_operations: Annotated[Int32, v("8+")] = UNKNOWN_AUTHORIZED_OPERATIONS


class MetadataResponse(Message):
    VERSIONS = v("0-13")
    FLEXIBLE = v("9+")

    throttle_time_ms: Annotated[Int32, v("3+")] = 0
    brokers: list[MetadataResponseBroker] = []
    cluster_id: Annotated[String | None, v("2+")] = None
    controller_id: Annotated[Int32, v("1+")] = -1
    topics: list[MetadataResponseTopic] = []
    cluster_authorized_operations: Annotated[Int32, v("8-10")] = UNKNOWN_AUTHORIZED_OPERATIONS
    error_code: Annotated[Int16, v("13+")] = 0

"""What a client asks of a cluster: ApiVersions, Metadata, DescribeCluster and DescribeLogDirs."""

from typing import Annotated

from broker.protocol.request import Request
from broker.protocol.schema import (
    NO_ID,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Nullable,
    ServedApi,
    String,
    Tag,
    Topic,
    Uuid,
    v,
)

# ---- ApiVersions (18).


class ApiVersionsRequest(Request["ApiVersionsResponse"]):
    API = ServedApi(18, v("0-4"), v("3+"), operation="none")

    client_software_name: Annotated[String, v("3+")] = ""
    client_software_version: Annotated[String, v("3+")] = ""


class ApiVersion(Message):
    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


class SupportedFeatureKey(Message):
    name: String = ""
    min_version: Int16 = 0
    max_version: Int16 = 0


class FinalizedFeatureKey(Message):
    name: String = ""
    max_version_level: Int16 = 0
    min_version_level: Int16 = 0


class ApiVersionsResponse(Message):
    error_code: Int16 = 0
    api_keys: list[ApiVersion] = []
    throttle_time_ms: Annotated[Int32, v("1+")] = 0
    supported_features: Annotated[list[SupportedFeatureKey], v("3+"), Tag(0)] = []
    finalized_features_epoch: Annotated[Int64, v("3+"), Tag(1)] = -1
    finalized_features: Annotated[list[FinalizedFeatureKey], v("3+"), Tag(2)] = []
    zk_migration_ready: Annotated[Bool, v("3+"), Tag(3)] = False


# ---- Metadata (3).


UNKNOWN_AUTHORIZED_OPERATIONS = -(2**31)


class MetadataRequestTopic(Message):
    topic_id: Annotated[Uuid, v("10+")] = NO_ID
    name: Annotated[String | None, Nullable("10+")] = ""


class MetadataRequest(Request["MetadataResponse"]):
    """`topics` None asks for all topics, an empty list for no topic (version 0: an empty list for all)."""

    API = ServedApi(3, v("0-13"), v("9+"))

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
    throttle_time_ms: Annotated[Int32, v("3+")] = 0
    brokers: list[MetadataResponseBroker] = []
    cluster_id: Annotated[String | None, v("2+")] = None
    controller_id: Annotated[Int32, v("1+")] = -1
    topics: list[MetadataResponseTopic] = []
    cluster_authorized_operations: Annotated[Int32, v("8-10")] = UNKNOWN_AUTHORIZED_OPERATIONS
    error_code: Annotated[Int16, v("13+")] = 0


# ---- DescribeCluster (60).


class DescribeClusterRequest(Request["DescribeClusterResponse"]):
    API = ServedApi(60, v("0-2"), v("0+"), operation="none")

    include_cluster_authorized_operations: Bool = False
    endpoint_type: Annotated[Int8, v("1+")] = 1
    include_fenced_brokers: Annotated[Bool, v("2+")] = False


class DescribeClusterBroker(Message):
    broker_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None
    is_fenced: Annotated[Bool, v("2+")] = False


class DescribeClusterResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    endpoint_type: Annotated[Int8, v("1+")] = 1
    cluster_id: String = ""
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker] = []
    cluster_authorized_operations: Int32 = -(2**31)


# ---- DescribeLogDirs (35).


class DescribableLogDirTopic(Message):
    topic: String = ""
    partitions: list[Int32] = []


class DescribeLogDirsRequest(Request["DescribeLogDirsResponse"]):
    API = ServedApi(35, v("1-4"), v("2+"), operation="DESCRIBE")

    topics: list[DescribableLogDirTopic] | None = []


class DescribeLogDirsPartition(Message):
    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: Bool = False


class DescribeLogDirsResult(Message):
    error_code: Int16 = 0
    log_dir: String = ""
    topics: list[Topic[DescribeLogDirsPartition]] = []
    total_bytes: Annotated[Int64, v("4+")] = -1
    usable_bytes: Annotated[Int64, v("4+")] = -1


class DescribeLogDirsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, v("3+")] = 0
    results: list[DescribeLogDirsResult] = []

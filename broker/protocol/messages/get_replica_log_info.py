"""GetReplicaLogInfo (93): the log ends of a broker's replicas (KIP-966)."""

from __future__ import annotations

from broker.protocol.schema import NO_ID, Bool, Int16, Int32, Int64, Message, ServedApi, String, Uuid, v


class TopicPartitions(Message):
    topic_id: Uuid = NO_ID
    partitions: list[Int32] = []


class GetReplicaLogInfoRequest(Message):
    API = ServedApi(93, v("0"), advertised=v("none"), operation="CLUSTER_ACTION")
    VERSIONS = v("0")
    FLEXIBLE = v("0+")

    broker_id: Int32 = 0
    topic_partitions: list[TopicPartitions] = []


class PartitionLogInfo(Message):
    """`last_written_leader_epoch` is that of the last record, -1 for an empty log."""

    partition: Int32 = 0
    last_written_leader_epoch: Int32 = -1
    current_leader_epoch: Int32 = -1
    log_end_offset: Int64 = -1
    error_code: Int16 = 0
    error_message: String | None = None


class TopicPartitionLogInfo(Message):
    topic_id: Uuid = NO_ID
    partition_log_info: list[PartitionLogInfo] = []


class GetReplicaLogInfoResponse(Message):
    """`has_more_data`: the answer was cut short; request the rest separately."""

    VERSIONS = v("0")
    FLEXIBLE = v("0+")

    throttle_time_ms: Int32 = 0
    broker_epoch: Int64 = -1
    has_more_data: Bool = False
    topic_partition_log_info_list: list[TopicPartitionLogInfo] = []

"""Leaders and replicas of partitions: AlterPartition, the reassignments, ElectLeaders and GetReplicaLogInfo."""

from typing import Annotated

from broker.protocol.request import Request
from broker.protocol.schema import NO_ID, Bool, Int8, Int16, Int32, Int64, Message, ServedApi, String, Topic, Uuid, v

# ---- AlterPartition (56): KIP-497, KIP-704, KIP-841, KIP-903.


class BrokerState(Message):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1


class AlterPartitionData(Message):
    """The requested ISR is `new_isr` in version 2 and `new_isr_with_epochs` from 3 on."""

    partition_index: Int32 = 0
    leader_epoch: Int32 = 0
    new_isr: Annotated[list[Int32], v("0-2")] = []
    new_isr_with_epochs: Annotated[list[BrokerState], v("3+")] = []
    leader_recovery_state: Annotated[Int8, v("1+")] = 0
    partition_epoch: Int32 = 0


class AlterPartitionTopicData(Message):
    topic_id: Annotated[Uuid, v("2+")] = NO_ID
    partitions: list[AlterPartitionData] = []


class AlterPartitionRequest(Request["AlterPartitionResponse"]):
    API = ServedApi(56, v("2-3"), v("0+"), advertised=v("none"), operation="CLUSTER_ACTION")

    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    topics: list[AlterPartitionTopicData] = []


class AlterPartitionResult(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    isr: list[Int32] = []
    leader_recovery_state: Annotated[Int8, v("1+")] = 0
    partition_epoch: Int32 = 0


class AlterPartitionTopicResult(Message):
    topic_id: Annotated[Uuid, v("2+")] = NO_ID
    partitions: list[AlterPartitionResult] = []


class AlterPartitionResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: list[AlterPartitionTopicResult] = []


# ---- AlterPartitionReassignments (45).


class ReassignablePartition(Message):
    """`replicas` None: cancel the reassignment that is under way."""

    partition_index: Int32 = 0
    replicas: list[Int32] | None = None


class AlterPartitionReassignmentsRequest(Request["AlterPartitionReassignmentsResponse"]):
    API = ServedApi(45, v("0-1"), v("0+"), operation="ALTER")

    timeout_ms: Int32 = 60_000
    allow_replication_factor_change: Annotated[Bool, v("1+")] = True
    topics: list[Topic[ReassignablePartition]] = []


class ReassignablePartitionResponse(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""


class AlterPartitionReassignmentsResponse(Message):
    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Annotated[Bool, v("1+")] = True
    error_code: Int16 = 0
    error_message: String | None = ""
    responses: list[Topic[ReassignablePartitionResponse]] = []


# ---- ListPartitionReassignments (46).


class ListPartitionReassignmentsTopics(Message):
    name: String = ""
    partition_indexes: list[Int32] = []


class ListPartitionReassignmentsRequest(Request["ListPartitionReassignmentsResponse"]):
    API = ServedApi(46, v("0"), v("0+"), operation="DESCRIBE")

    timeout_ms: Int32 = 60_000
    topics: list[ListPartitionReassignmentsTopics] | None = None


class OngoingPartitionReassignment(Message):
    partition_index: Int32 = 0
    replicas: list[Int32] = []
    adding_replicas: list[Int32] = []
    removing_replicas: list[Int32] = []


class ListPartitionReassignmentsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    topics: list[Topic[OngoingPartitionReassignment]] = []


# ---- ElectLeaders (43): KIP-183, KIP-460.


PREFERRED, UNCLEAN = 0, 1
"""The values of `election_type`; before version 1 only elections of the preferred replica exist."""


class ElectLeadersTopicPartitions(Message):
    topic: String = ""
    partitions: list[Int32] = []


class ElectLeadersRequest(Request["ElectLeadersResponse"]):
    """`topic_partitions` None: all partitions."""

    API = ServedApi(43, v("0-2"), v("2+"), operation="ALTER")

    election_type: Annotated[Int8, v("1+")] = PREFERRED
    topic_partitions: list[ElectLeadersTopicPartitions] | None = []
    timeout_ms: Int32 = 60_000


class ElectLeadersPartitionResult(Message):
    partition_id: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""


class ReplicaElectionResult(Message):
    topic: String = ""
    partition_result: list[ElectLeadersPartitionResult] = []


class ElectLeadersResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, v("1+")] = 0
    replica_election_results: list[ReplicaElectionResult] = []


# ---- GetReplicaLogInfo (93): the log ends of a broker's replicas (KIP-966).


class GetReplicaLogInfoTopicPartitions(Message):
    topic_id: Uuid = NO_ID
    partitions: list[Int32] = []


class GetReplicaLogInfoRequest(Request["GetReplicaLogInfoResponse"]):
    API = ServedApi(93, v("0"), v("0+"), advertised=v("none"), operation="CLUSTER_ACTION")

    broker_id: Int32 = 0
    topic_partitions: list[GetReplicaLogInfoTopicPartitions] = []


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

    throttle_time_ms: Int32 = 0
    broker_epoch: Int64 = -1
    has_more_data: Bool = False
    topic_partition_log_info_list: list[TopicPartitionLogInfo] = []

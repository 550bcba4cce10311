"""AlterPartition (56): KIP-497, KIP-704, KIP-841, KIP-903."""

from __future__ import annotations

from typing import Annotated

from broker.protocol.schema import NO_ID, Int8, Int16, Int32, Int64, Message, ServedApi, Uuid, v


class BrokerState(Message):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1


class PartitionData(Message):
    """The requested ISR is `new_isr` in version 2 and `new_isr_with_epochs` from 3 on."""

    partition_index: Int32 = 0
    leader_epoch: Int32 = 0
    new_isr: Annotated[list[Int32], v("0-2")] = []
    new_isr_with_epochs: Annotated[list[BrokerState], v("3+")] = []
    leader_recovery_state: Annotated[Int8, v("1+")] = 0
    partition_epoch: Int32 = 0


class TopicData(Message):
    topic_id: Annotated[Uuid, v("2+")] = NO_ID
    partitions: list[PartitionData] = []


class AlterPartitionRequest(Message):
    API = ServedApi(56, v("2-3"), advertised=v("none"), operation="CLUSTER_ACTION")
    VERSIONS = v("2-3")
    FLEXIBLE = v("0+")

    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    topics: list[TopicData] = []


class PartitionResult(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    isr: list[Int32] = []
    leader_recovery_state: Annotated[Int8, v("1+")] = 0
    partition_epoch: Int32 = 0


class TopicResult(Message):
    topic_id: Annotated[Uuid, v("2+")] = NO_ID
    partitions: list[PartitionResult] = []


class AlterPartitionResponse(Message):
    VERSIONS = v("2-3")
    FLEXIBLE = v("0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: list[TopicResult] = []

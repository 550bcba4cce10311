"""Producers: Produce, InitProducerId and AllocateProducerIds."""

from typing import Annotated

from broker.protocol.messages.fetch import LeaderIdAndEpoch, NodeEndpoint
from broker.protocol.request import Request
from broker.protocol.schema import NO_ID, Int16, Int32, Int64, Message, Records, ServedApi, String, Tag, Uuid, v

# ---- Produce (0).


class PartitionProduceData(Message):
    index: Int32 = 0
    records: Records | None = None


class TopicProduceData(Message):
    name: Annotated[String, v("0-12")] = ""
    topic_id: Annotated[Uuid, v("13+")] = NO_ID
    partition_data: list[PartitionProduceData] = []


class ProduceRequest(Request["ProduceResponse"]):
    # Older versions of librdkafka do not compress unless Produce is advertised from version 0 (KAFKA-18659).
    API = ServedApi(0, v("3-12"), v("9+"), declared=v("3-13"), advertised=v("0-12"))

    transactional_id: Annotated[String | None, v("3+")] = None
    acks: Int16 = 0
    timeout_ms: Int32 = 0
    topic_data: list[TopicProduceData] = []


class BatchIndexAndErrorMessage(Message):
    batch_index: Int32 = 0
    batch_index_error_message: String | None = None


class PartitionProduceResponse(Message):
    index: Int32 = 0
    error_code: Int16 = 0
    base_offset: Int64 = 0
    log_append_time_ms: Annotated[Int64, v("2+")] = -1
    log_start_offset: Annotated[Int64, v("5+")] = -1
    record_errors: Annotated[list[BatchIndexAndErrorMessage], v("8+")] = []
    error_message: Annotated[String | None, v("8+")] = None
    current_leader: Annotated[LeaderIdAndEpoch | None, v("10+"), Tag(0)] = None


class TopicProduceResponse(Message):
    name: Annotated[String, v("0-12")] = ""
    topic_id: Annotated[Uuid, v("13+")] = NO_ID
    partition_responses: list[PartitionProduceResponse] = []


class ProduceResponse(Message):
    VERSIONS = v("3-13")
    FLEXIBLE = v("9+")

    responses: list[TopicProduceResponse] = []
    throttle_time_ms: Annotated[Int32, v("1+")] = 0
    node_endpoints: Annotated[list[NodeEndpoint], v("10+"), Tag(0)] = []


# ---- InitProducerId (22).


class InitProducerIdRequest(Request["InitProducerIdResponse"]):
    API = ServedApi(22, v("0-5"), v("2+"))

    transactional_id: String | None = ""
    transaction_timeout_ms: Int32 = 0
    producer_id: Annotated[Int64, v("3+")] = -1
    producer_epoch: Annotated[Int16, v("3+")] = -1


class InitProducerIdResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0


# ---- AllocateProducerIds (67).


class AllocateProducerIdsRequest(Request["AllocateProducerIdsResponse"]):
    API = ServedApi(67, v("0"), v("0+"), advertised=v("none"), operation="CLUSTER_ACTION")

    broker_id: Int32 = 0
    broker_epoch: Int64 = -1


class AllocateProducerIdsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id_start: Int64 = 0
    producer_id_len: Int32 = 0

"""AllocateProducerIds (67)."""

from __future__ import annotations

from broker.protocol.schema import Int16, Int32, Int64, Message, ServedApi, v


class AllocateProducerIdsRequest(Message):
    API = ServedApi(67, v("0"), advertised=v("none"), operation="CLUSTER_ACTION")
    VERSIONS = v("0")
    FLEXIBLE = v("0+")

    broker_id: Int32 = 0
    broker_epoch: Int64 = -1


class AllocateProducerIdsResponse(Message):
    VERSIONS = v("0")
    FLEXIBLE = v("0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id_start: Int64 = 0
    producer_id_len: Int32 = 0

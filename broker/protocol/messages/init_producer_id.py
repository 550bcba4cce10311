"""InitProducerId (22)."""

from __future__ import annotations

from typing import Annotated

from broker.protocol.schema import Int16, Int32, Int64, Message, ServedApi, String, v


class InitProducerIdRequest(Message):
    API = ServedApi(22, v("0-5"))
    VERSIONS = v("0-5")
    FLEXIBLE = v("2+")

    transactional_id: String | None = ""
    transaction_timeout_ms: Int32 = 0
    producer_id: Annotated[Int64, v("3+")] = -1
    producer_epoch: Annotated[Int16, v("3+")] = -1


class InitProducerIdResponse(Message):
    VERSIONS = v("0-5")
    FLEXIBLE = v("2+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0

"""Heartbeat (12)."""

from __future__ import annotations

from typing import Annotated

from broker.protocol.schema import Int16, Int32, Message, ServedApi, String, v


class HeartbeatRequest(Message):
    API = ServedApi(12, v("0-4"))
    VERSIONS = v("0-4")
    FLEXIBLE = v("4+")

    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[String | None, v("3+")] = None


class HeartbeatResponse(Message):
    VERSIONS = v("0-4")
    FLEXIBLE = v("4+")

    throttle_time_ms: Annotated[Int32, v("1+")] = 0
    error_code: Int16 = 0

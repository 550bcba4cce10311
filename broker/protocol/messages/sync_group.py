"""SyncGroup (14)."""

from __future__ import annotations

from typing import Annotated

from broker.protocol.schema import Bytes, Int16, Int32, Message, ServedApi, String, v


class SyncGroupRequestAssignment(Message):
    member_id: String = ""
    assignment: Bytes = b""


class SyncGroupRequest(Message):
    API = ServedApi(14, v("0-5"))
    VERSIONS = v("0-5")
    FLEXIBLE = v("4+")

    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[String | None, v("3+")] = None
    protocol_type: Annotated[String | None, v("5+")] = None
    protocol_name: Annotated[String | None, v("5+")] = None
    assignments: list[SyncGroupRequestAssignment] = []


class SyncGroupResponse(Message):
    VERSIONS = v("0-5")
    FLEXIBLE = v("4+")

    throttle_time_ms: Annotated[Int32, v("1+")] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[String | None, v("5+")] = None
    protocol_name: Annotated[String | None, v("5+")] = None
    assignment: Bytes = b""

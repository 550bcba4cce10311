"""JoinGroup (11)."""

from __future__ import annotations

from typing import Annotated

from broker.protocol.schema import Bool, Bytes, Int16, Int32, Message, Nullable, ServedApi, String, v


class JoinGroupRequestProtocol(Message):
    name: String = ""
    metadata: Bytes = b""


class JoinGroupRequest(Message):
    API = ServedApi(11, v("0-9"))
    VERSIONS = v("0-9")
    FLEXIBLE = v("6+")

    group_id: String = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Annotated[Int32, v("1+")] = -1
    member_id: String = ""
    group_instance_id: Annotated[String | None, v("5+")] = None
    protocol_type: String = ""
    protocols: list[JoinGroupRequestProtocol] = []
    reason: Annotated[String | None, v("8+")] = None


class JoinGroupResponseMember(Message):
    member_id: String = ""
    group_instance_id: Annotated[String | None, v("5+")] = None
    metadata: Bytes = b""


class JoinGroupResponse(Message):
    VERSIONS = v("0-9")
    FLEXIBLE = v("6+")

    throttle_time_ms: Annotated[Int32, v("2+")] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[String | None, v("7+")] = None
    protocol_name: Annotated[String | None, Nullable("7+")] = ""
    leader: String = ""
    skip_assignment: Annotated[Bool, v("9+")] = False
    member_id: String = ""
    members: list[JoinGroupResponseMember] = []

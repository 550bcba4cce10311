"""LeaveGroup (13)."""

from __future__ import annotations

from typing import Annotated

from broker.protocol.schema import Int16, Int32, Message, ServedApi, String, v


class MemberIdentity(Message):
    member_id: Annotated[String, v("3+")] = ""
    group_instance_id: Annotated[String | None, v("3+")] = None
    reason: Annotated[String | None, v("5+")] = None


class LeaveGroupRequest(Message):
    API = ServedApi(13, v("0-5"))
    VERSIONS = v("0-5")
    FLEXIBLE = v("4+")

    group_id: String = ""
    member_id: Annotated[String, v("0-2")] = ""
    members: Annotated[list[MemberIdentity], v("3+")] = []


class MemberResponse(Message):
    member_id: Annotated[String, v("3+")] = ""
    group_instance_id: Annotated[String | None, v("3+")] = ""
    error_code: Annotated[Int16, v("3+")] = 0


class LeaveGroupResponse(Message):
    VERSIONS = v("0-5")
    FLEXIBLE = v("4+")

    throttle_time_ms: Annotated[Int32, v("1+")] = 0
    error_code: Int16 = 0
    members: Annotated[list[MemberResponse], v("3+")] = []

"""DescribeGroups (15)."""

from __future__ import annotations

from typing import Annotated

from broker.protocol.schema import Bool, Bytes, Int16, Int32, Message, ServedApi, String, v


class DescribeGroupsRequest(Message):
    API = ServedApi(15, v("0-6"))
    VERSIONS = v("0-6")
    FLEXIBLE = v("5+")

    groups: list[String] = []
    include_authorized_operations: Annotated[Bool, v("3+")] = False


class DescribedGroupMember(Message):
    member_id: String = ""
    group_instance_id: Annotated[String | None, v("4+")] = None
    client_id: String = ""
    client_host: String = ""
    member_metadata: Bytes = b""
    member_assignment: Bytes = b""


class DescribedGroup(Message):
    error_code: Int16 = 0
    error_message: Annotated[String | None, v("6+")] = None
    group_id: String = ""
    group_state: String = ""
    protocol_type: String = ""
    protocol_data: String = ""
    members: list[DescribedGroupMember] = []
    authorized_operations: Annotated[Int32, v("3+")] = -2147483648


class DescribeGroupsResponse(Message):
    VERSIONS = v("0-6")
    FLEXIBLE = v("5+")

    throttle_time_ms: Annotated[Int32, v("1+")] = 0
    groups: list[DescribedGroup] = []

"""ListGroups (16)."""

from __future__ import annotations

from typing import Annotated

from broker.protocol.schema import Int16, Int32, Message, ServedApi, String, v


class ListGroupsRequest(Message):
    API = ServedApi(16, v("0-5"))
    VERSIONS = v("0-5")
    FLEXIBLE = v("3+")

    states_filter: Annotated[list[String], v("4+")] = []
    types_filter: Annotated[list[String], v("5+")] = []


class ListedGroup(Message):
    group_id: String = ""
    protocol_type: String = ""
    group_state: Annotated[String, v("4+")] = ""
    group_type: Annotated[String, v("5+")] = ""


class ListGroupsResponse(Message):
    VERSIONS = v("0-5")
    FLEXIBLE = v("3+")

    throttle_time_ms: Annotated[Int32, v("1+")] = 0
    error_code: Int16 = 0
    groups: list[ListedGroup] = []

"""DeleteGroups (42)."""

from __future__ import annotations

from broker.protocol.schema import Int16, Int32, Message, ServedApi, String, v


class DeleteGroupsRequest(Message):
    API = ServedApi(42, v("0-2"))
    VERSIONS = v("0-2")
    FLEXIBLE = v("2+")

    groups_names: list[String] = []


class DeletableGroupResult(Message):
    group_id: String = ""
    error_code: Int16 = 0


class DeleteGroupsResponse(Message):
    VERSIONS = v("0-2")
    FLEXIBLE = v("2+")

    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult] = []

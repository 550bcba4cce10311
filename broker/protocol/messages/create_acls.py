"""CreateAcls (30). The numbers are named in `broker.security.acls`."""

from __future__ import annotations

from typing import Annotated

from broker.protocol.schema import Int8, Int16, Int32, Message, ServedApi, String, v

LITERAL = 3


class AclCreation(Message):
    resource_type: Int8 = 0
    resource_name: String = ""
    resource_pattern_type: Annotated[Int8, v("1+")] = LITERAL
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class CreateAclsRequest(Message):
    API = ServedApi(30, v("1-3"), operation="ALTER")
    VERSIONS = v("1-3")
    FLEXIBLE = v("2+")

    creations: list[AclCreation] = []


class AclCreationResult(Message):
    error_code: Int16 = 0
    error_message: String | None = ""


class CreateAclsResponse(Message):
    VERSIONS = v("1-3")
    FLEXIBLE = v("2+")

    throttle_time_ms: Int32 = 0
    results: list[AclCreationResult] = []

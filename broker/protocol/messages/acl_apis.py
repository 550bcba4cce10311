"""Access control lists. The numbers are named in `broker.security.acls`."""

from typing import Annotated

from broker.protocol.request import Request
from broker.protocol.schema import Int8, Int16, Int32, Message, ServedApi, String, v

# ---- DescribeAcls (29).


LITERAL = 3


class DescribeAclsRequest(Request["DescribeAclsResponse"]):
    """A filter: None and ANY match everything."""

    API = ServedApi(29, v("1-3"), v("2+"), operation="DESCRIBE")

    resource_type_filter: Int8 = 0
    resource_name_filter: String | None = ""
    pattern_type_filter: Annotated[Int8, v("1+")] = LITERAL
    principal_filter: String | None = ""
    host_filter: String | None = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class AclDescription(Message):
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DescribeAclsResource(Message):
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Annotated[Int8, v("1+")] = LITERAL
    acls: list[AclDescription] = []


class DescribeAclsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    resources: list[DescribeAclsResource] = []


# ---- CreateAcls (30).


class AclCreation(Message):
    resource_type: Int8 = 0
    resource_name: String = ""
    resource_pattern_type: Annotated[Int8, v("1+")] = LITERAL
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class CreateAclsRequest(Request["CreateAclsResponse"]):
    API = ServedApi(30, v("1-3"), v("2+"), operation="ALTER")

    creations: list[AclCreation] = []


class AclCreationResult(Message):
    error_code: Int16 = 0
    error_message: String | None = ""


class CreateAclsResponse(Message):
    throttle_time_ms: Int32 = 0
    results: list[AclCreationResult] = []


# ---- DeleteAcls (31).


class DeleteAclsFilter(Message):
    resource_type_filter: Int8 = 0
    resource_name_filter: String | None = ""
    pattern_type_filter: Annotated[Int8, v("1+")] = LITERAL
    principal_filter: String | None = ""
    host_filter: String | None = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsRequest(Request["DeleteAclsResponse"]):
    API = ServedApi(31, v("1-3"), v("2+"), operation="ALTER")

    filters: list[DeleteAclsFilter] = []


class DeleteAclsMatchingAcl(Message):
    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Annotated[Int8, v("1+")] = LITERAL
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsFilterResult(Message):
    error_code: Int16 = 0
    error_message: String | None = ""
    matching_acls: list[DeleteAclsMatchingAcl] = []


class DeleteAclsResponse(Message):
    throttle_time_ms: Int32 = 0
    filter_results: list[DeleteAclsFilterResult] = []

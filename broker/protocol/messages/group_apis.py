"""Groups of consumers: their coordinator, the rounds of their members, lists and descriptions."""

from typing import Annotated

from broker.protocol.request import Request
from broker.protocol.schema import NO_ID, Bool, Bytes, Int8, Int16, Int32, Message, Nullable, ServedApi, String, Uuid, v

# ---- FindCoordinator (10).


TRANSACTION_KEY = 1  # value of `key_type`


class FindCoordinatorRequest(Request["FindCoordinatorResponse"]):
    API = ServedApi(10, v("0-6"), v("3+"))

    key: Annotated[String, v("0-3")] = ""
    key_type: Annotated[Int8, v("1+")] = 0
    coordinator_keys: Annotated[list[String], v("4+")] = []


class Coordinator(Message):
    key: Annotated[String, v("4+")] = ""
    node_id: Annotated[Int32, v("4+")] = 0
    host: Annotated[String, v("4+")] = ""
    port: Annotated[Int32, v("4+")] = 0
    error_code: Annotated[Int16, v("4+")] = 0
    error_message: Annotated[String | None, v("4+")] = ""


class FindCoordinatorResponse(Message):
    throttle_time_ms: Annotated[Int32, v("1+")] = 0
    error_code: Annotated[Int16, v("0-3")] = 0
    error_message: Annotated[String | None, v("1-3")] = ""
    node_id: Annotated[Int32, v("0-3")] = 0
    host: Annotated[String, v("0-3")] = ""
    port: Annotated[Int32, v("0-3")] = 0
    coordinators: Annotated[list[Coordinator], v("4+")] = []


# ---- JoinGroup (11).


class JoinGroupRequestProtocol(Message):
    name: String = ""
    metadata: Bytes = b""


class JoinGroupRequest(Request["JoinGroupResponse"]):
    API = ServedApi(11, v("0-9"), v("6+"))

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
    throttle_time_ms: Annotated[Int32, v("2+")] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[String | None, v("7+")] = None
    protocol_name: Annotated[String | None, Nullable("7+")] = ""
    leader: String = ""
    skip_assignment: Annotated[Bool, v("9+")] = False
    member_id: String = ""
    members: list[JoinGroupResponseMember] = []


# ---- SyncGroup (14).


class SyncGroupRequestAssignment(Message):
    member_id: String = ""
    assignment: Bytes = b""


class SyncGroupRequest(Request["SyncGroupResponse"]):
    API = ServedApi(14, v("0-5"), v("4+"))

    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[String | None, v("3+")] = None
    protocol_type: Annotated[String | None, v("5+")] = None
    protocol_name: Annotated[String | None, v("5+")] = None
    assignments: list[SyncGroupRequestAssignment] = []


class SyncGroupResponse(Message):
    throttle_time_ms: Annotated[Int32, v("1+")] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[String | None, v("5+")] = None
    protocol_name: Annotated[String | None, v("5+")] = None
    assignment: Bytes = b""


# ---- Heartbeat (12).


class HeartbeatRequest(Request["HeartbeatResponse"]):
    API = ServedApi(12, v("0-4"), v("4+"))

    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[String | None, v("3+")] = None


class HeartbeatResponse(Message):
    throttle_time_ms: Annotated[Int32, v("1+")] = 0
    error_code: Int16 = 0


# ---- LeaveGroup (13).


class MemberIdentity(Message):
    member_id: Annotated[String, v("3+")] = ""
    group_instance_id: Annotated[String | None, v("3+")] = None
    reason: Annotated[String | None, v("5+")] = None


class LeaveGroupRequest(Request["LeaveGroupResponse"]):
    API = ServedApi(13, v("0-5"), v("4+"))

    group_id: String = ""
    member_id: Annotated[String, v("0-2")] = ""
    members: Annotated[list[MemberIdentity], v("3+")] = []


class MemberResponse(Message):
    member_id: Annotated[String, v("3+")] = ""
    group_instance_id: Annotated[String | None, v("3+")] = ""
    error_code: Annotated[Int16, v("3+")] = 0


class LeaveGroupResponse(Message):
    throttle_time_ms: Annotated[Int32, v("1+")] = 0
    error_code: Int16 = 0
    members: Annotated[list[MemberResponse], v("3+")] = []


# ---- DescribeGroups (15).


class DescribeGroupsRequest(Request["DescribeGroupsResponse"]):
    API = ServedApi(15, v("0-6"), v("5+"))

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
    throttle_time_ms: Annotated[Int32, v("1+")] = 0
    groups: list[DescribedGroup] = []


# ---- ListGroups (16).


class ListGroupsRequest(Request["ListGroupsResponse"]):
    API = ServedApi(16, v("0-5"), v("3+"))

    states_filter: Annotated[list[String], v("4+")] = []
    types_filter: Annotated[list[String], v("5+")] = []


class ListedGroup(Message):
    group_id: String = ""
    protocol_type: String = ""
    group_state: Annotated[String, v("4+")] = ""
    group_type: Annotated[String, v("5+")] = ""


class ListGroupsResponse(Message):
    throttle_time_ms: Annotated[Int32, v("1+")] = 0
    error_code: Int16 = 0
    groups: list[ListedGroup] = []


# ---- DeleteGroups (42).


class DeleteGroupsRequest(Request["DeleteGroupsResponse"]):
    API = ServedApi(42, v("0-2"), v("2+"))

    groups_names: list[String] = []


class DeletableGroupResult(Message):
    group_id: String = ""
    error_code: Int16 = 0


class DeleteGroupsResponse(Message):
    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult] = []


# ---- ConsumerGroupHeartbeat (68, KIP-848).


ABSENT = -1
"""Stands for a structure that is null."""


class TopicPartitions(Message):
    topic_id: Uuid = NO_ID
    partitions: list[Int32] = []


class ConsumerGroupHeartbeatRequest(Request["ConsumerGroupHeartbeatResponse"]):
    API = ServedApi(68, v("0-1"), v("0+"), operation="none")

    group_id: String = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    instance_id: String | None = None
    rack_id: String | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: list[String] | None = None
    subscribed_topic_regex: Annotated[String | None, v("1+")] = None
    server_assignor: String | None = None
    topic_partitions: list[TopicPartitions] | None = None


class ConsumerGroupHeartbeatResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    member_id: String | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Int8 = ABSENT
    """No member has one."""

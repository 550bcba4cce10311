"""Authorizes every request by Apache Kafka's table of operations, and removes the parts that its sender may not do.

The broker that receives a request checks it with the ACLs that this broker knows. A forwarded request is checked again
by the controller with the controller's. A broker sends its own requests as itself: brokers are super users, or have
CLUSTER_ACTION and the other permissions that they need.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from broker.controller.error_responses import refused
from broker.controller.image import MetadataImage
from broker.errors import ErrorCode, ProtocolError
from broker.groups.commits import answer_to_all
from broker.groups.rebalance import refused_join, refused_sync
from broker.protocol.api import APIS, ApiKey, api_of
from broker.protocol.messages.acl_apis import CreateAclsRequest, DeleteAclsRequest
from broker.protocol.messages.config_apis import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from broker.protocol.messages.credential_apis import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from broker.protocol.messages.group_apis import (
    TRANSACTION_KEY,
    Coordinator,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DescribedGroup,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from broker.protocol.messages.offset_apis import (
    OffsetCommitRequest,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from broker.protocol.messages.partition_apis import (
    ElectLeadersRequest,
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
    PartitionLogInfo,
    TopicPartitionLogInfo,
)
from broker.protocol.messages.producer_apis import InitProducerIdRequest, InitProducerIdResponse
from broker.protocol.schema import DeclarationError, Message
from broker.security.acls import AclOperation
from broker.security.authorizer import Authorizer, Caller
from broker.server.authorization.permissions import Check, Rights, appending, split
from broker.server.authorization.topic_rules import TOPIC_RULES
from broker.server.dispatch import Permit, RefusedRequest

# ---- Permissions for requests about consumer groups: on the group, and on the topics of the offsets.

GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
REASON = "Group authorization failed."
FIRST_WITH_COORDINATORS, FIRST_WITH_GROUPS, FIRST_WITH_NO_PROTOCOL = 4, 8, 7
NO_OFFSET = -1
REPLACE = msgspec.structs.replace


def _member(denied: Callable[[Any], Message]) -> Check:
    """Membership requests need READ on the group."""

    def check(request: Any, _version: int, rights: Rights) -> Permit:
        if not rights.group(AclOperation.READ, request.group_id):
            raise RefusedRequest(denied(request))
        return Permit(request)

    return check


def _join(request: JoinGroupRequest, version: int, rights: Rights) -> Permit:
    if rights.group(AclOperation.READ, request.group_id):
        return Permit(request)
    response = refused_join(GROUP_DENIED, request.member_id)
    if version < FIRST_WITH_NO_PROTOCOL:
        response.protocol_name = ""
    raise RefusedRequest(response)


def _find_coordinator(request: FindCoordinatorRequest, version: int, rights: Rights) -> Permit:
    if request.key_type == TRANSACTION_KEY:
        return Permit(request)  # InitProducerId refuses it
    if version >= FIRST_WITH_COORDINATORS:
        allowed, refused_keys = split(request.coordinator_keys, lambda key: rights.group(AclOperation.DESCRIBE, key))
        if not refused_keys:
            return Permit(request)
        denied = [Coordinator(key, -1, "", -1, GROUP_DENIED, REASON) for key in refused_keys]
        return Permit(REPLACE(request, coordinator_keys=allowed), appending("coordinators", denied))
    if not rights.group(AclOperation.DESCRIBE, request.key):
        raise RefusedRequest(
            FindCoordinatorResponse(error_code=GROUP_DENIED, error_message=REASON, node_id=-1, port=-1)
        )
    return Permit(request)


def _commit(request: OffsetCommitRequest, _version: int, rights: Rights) -> Permit:
    if not rights.group(AclOperation.READ, request.group_id):
        raise RefusedRequest(answer_to_all(request, GROUP_DENIED))
    allowed, refused_topics = split(request.topics, lambda topic: rights.topic(AclOperation.READ, topic.name))
    if not refused_topics:
        return Permit(request)
    denied = [
        OffsetCommitResponseTopic(
            topic.name,
            [OffsetCommitResponsePartition(partition.partition_index, TOPIC_DENIED) for partition in topic.partitions],
        )
        for topic in refused_topics
    ]
    return Permit(REPLACE(request, topics=allowed), appending("topics", denied))


def _fetch(request: OffsetFetchRequest, version: int, rights: Rights) -> Permit:
    if version >= FIRST_WITH_GROUPS:
        return _fetch_of_groups(request, rights)
    requested_topics = request.topics
    if not rights.group(AclOperation.DESCRIBE, request.group_id):
        topics = [] if version >= 2 else [_unfetched(topic, GROUP_DENIED) for topic in requested_topics or ()]
        raise RefusedRequest(OffsetFetchResponse(error_code=GROUP_DENIED, topics=topics))
    if requested_topics is None:
        return Permit(request, lambda answer: REPLACE(answer, topics=_seen(answer.topics, rights)))
    allowed, refused_topics = split(requested_topics, lambda topic: rights.topic(AclOperation.DESCRIBE, topic.name))
    if not refused_topics:
        return Permit(request)
    denied = [_unfetched(topic, TOPIC_DENIED) for topic in refused_topics]
    return Permit(REPLACE(request, topics=allowed), appending("topics", denied))


def _unfetched(topic: Any, code: ErrorCode) -> OffsetFetchResponseTopic:
    partitions = [OffsetFetchResponsePartition(index, NO_OFFSET, -1, "", code) for index in topic.partition_indexes]
    return OffsetFetchResponseTopic(topic.name, partitions)


def _seen(topics: list[Any], rights: Rights) -> list[Any]:
    return [topic for topic in topics if rights.topic(AclOperation.DESCRIBE, topic.name)]


def _fetch_of_groups(request: OffsetFetchRequest, rights: Rights) -> Permit:
    """Several groups, each with a list of topics or with all of its offsets."""
    allowed, refused_groups = split(request.groups, lambda group: rights.group(AclOperation.DESCRIBE, group.group_id))
    permitted_groups: list[OffsetFetchRequestGroup] = []
    denied: list[list[OffsetFetchResponseTopics]] = []
    for group in allowed:
        topics, refused = split(group.topics or [], lambda topic: rights.topic(AclOperation.DESCRIBE, topic.name))
        permitted_groups.append(group if group.topics is None else REPLACE(group, topics=topics))
        denied.append([_unfetched_in_group(topic) for topic in refused])

    def amend(response: OffsetFetchResponse) -> OffsetFetchResponse:
        """The response has the groups in the order of the request."""
        for requested_group, answer, refused in zip(permitted_groups, response.groups, denied, strict=True):
            if requested_group.topics is None:
                answer.topics = _seen(answer.topics, rights)
            answer.topics = answer.topics + refused
        response.groups += [
            OffsetFetchResponseGroup(group.group_id, error_code=GROUP_DENIED) for group in refused_groups
        ]
        return response

    return Permit(REPLACE(request, groups=permitted_groups), amend)


def _unfetched_in_group(topic: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    indexes = topic.partition_indexes
    partitions = [OffsetFetchResponsePartitions(index, NO_OFFSET, -1, "", TOPIC_DENIED) for index in indexes]
    return OffsetFetchResponseTopics(topic.name, partitions)


def _delete_offsets(request: OffsetDeleteRequest, _version: int, rights: Rights) -> Permit:
    if not rights.group(AclOperation.DELETE, request.group_id):
        raise RefusedRequest(OffsetDeleteResponse(error_code=GROUP_DENIED))
    allowed, refused_topics = split(request.topics, lambda topic: rights.topic(AclOperation.READ, topic.name))
    if not refused_topics:
        return Permit(request)
    denied = [
        OffsetDeleteResponseTopic(
            topic.name,
            [OffsetDeleteResponsePartition(partition.partition_index, TOPIC_DENIED) for partition in topic.partitions],
        )
        for topic in refused_topics
    ]
    return Permit(REPLACE(request, topics=allowed), appending("topics", denied))


def _describe(request: DescribeGroupsRequest, _version: int, rights: Rights) -> Permit:
    allowed, refused_groups = split(request.groups, lambda group: rights.group(AclOperation.DESCRIBE, group))
    if not refused_groups:
        return Permit(request)
    denied = [DescribedGroup(error_code=GROUP_DENIED, group_id=group) for group in refused_groups]
    return Permit(REPLACE(request, groups=allowed), appending("groups", denied))


def _delete(request: DeleteGroupsRequest, _version: int, rights: Rights) -> Permit:
    allowed, refused_groups = split(request.groups_names, lambda group: rights.group(AclOperation.DELETE, group))
    if not refused_groups:
        return Permit(request)
    denied = [DeletableGroupResult(group, GROUP_DENIED) for group in refused_groups]
    return Permit(REPLACE(request, groups_names=allowed), appending("results", denied))


def _list(request: ListGroupsRequest, _version: int, rights: Rights) -> Permit:
    if rights.cluster(AclOperation.DESCRIBE):
        return Permit(request)

    def amend(response: ListGroupsResponse) -> ListGroupsResponse:
        visible_groups = [group for group in response.groups if rights.group(AclOperation.DESCRIBE, group.group_id)]
        return REPLACE(response, groups=visible_groups)

    return Permit(request, amend)


GROUP_RULES: dict[ApiKey, Check] = {
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.JOIN_GROUP: _join,
    ApiKey.SYNC_GROUP: _member(lambda _: refused_sync(GROUP_DENIED)),
    ApiKey.HEARTBEAT: _member(lambda _: HeartbeatResponse(error_code=GROUP_DENIED)),
    ApiKey.LEAVE_GROUP: _member(lambda _: LeaveGroupResponse(error_code=GROUP_DENIED)),
    ApiKey.OFFSET_COMMIT: _commit,
    ApiKey.OFFSET_FETCH: _fetch,
    ApiKey.OFFSET_DELETE: _delete_offsets,
    ApiKey.DESCRIBE_GROUPS: _describe,
    ApiKey.DELETE_GROUPS: _delete,
    ApiKey.LIST_GROUPS: _list,
}


CLUSTER_DENIED = ProtocolError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")


def _on_cluster(operation: AclOperation) -> Check:
    def check(request: Message, _version: int, rights: Rights) -> Permit:
        if not rights.cluster(operation):
            raise RefusedRequest(_denied(request))
        return Permit(request)

    return check


def _denied(request: Message) -> Message:
    """The answer without permission on the cluster, in the form of each API."""
    match request:
        case ElectLeadersRequest() | CreateAclsRequest() | DeleteAclsRequest() | AlterUserScramCredentialsRequest():
            return refused(request, CLUSTER_DENIED)
        case DescribeUserScramCredentialsRequest():
            return _no_credentials(request)
        case DescribeClientQuotasRequest():
            return DescribeClientQuotasResponse(
                error_code=CLUSTER_DENIED.code, error_message=str(CLUSTER_DENIED), entries=None
            )
        case GetReplicaLogInfoRequest():
            return _no_log_info(request)
    response: Any = api_of(request).response()
    response.error_code = CLUSTER_DENIED.code
    if hasattr(response, "error_message"):
        response.error_message = str(CLUSTER_DENIED)
    return response  # type: ignore[no-any-return]


def _no_credentials(request: DescribeUserScramCredentialsRequest) -> DescribeUserScramCredentialsResponse:
    """An error for each named user, because librdkafka crashes on an error of the whole response. Only a request
    without names gets that."""
    code, reason = CLUSTER_DENIED.code, str(CLUSTER_DENIED)
    if not request.users:
        return DescribeUserScramCredentialsResponse(error_code=code, error_message=reason)
    results = [DescribeUserScramCredentialsResult(user.name, code, reason) for user in request.users]
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def _no_log_info(request: GetReplicaLogInfoRequest) -> GetReplicaLogInfoResponse:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return GetReplicaLogInfoResponse(
        topic_partition_log_info_list=[
            TopicPartitionLogInfo(
                topic.topic_id, [PartitionLogInfo(index, error_code=code) for index in topic.partitions]
            )
            for topic in request.topic_partitions
        ]
    )


def _init_producer_id(request: InitProducerIdRequest, _version: int, rights: Rights) -> Permit:
    """A principal that may write to any topic may do so idempotently (KIP-679)."""
    if not (rights.cluster(AclOperation.IDEMPOTENT_WRITE) or rights.any_topic(AclOperation.WRITE)):
        raise RefusedRequest(InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    return Permit(request)


OPEN_TO_ALL: Final = frozenset(key for key, api in APIS.items() if api.operation == "none")
"""APIs that need no permission: they show where brokers are and which versions they speak."""
RULES: Final[dict[ApiKey, Check]] = {
    **{key: _on_cluster(AclOperation[api.operation]) for key, api in APIS.items() if api.operation not in ("", "none")},
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    **TOPIC_RULES,
    **GROUP_RULES,
}
"""The check of every API that needs a permission."""
if unchecked := APIS.keys() - RULES.keys() - OPEN_TO_ALL:
    raise DeclarationError(f"{', '.join(key.name for key in unchecked)}: neither an operation nor a check")


class AclGuard:
    """Applies the ACLs of the metadata log."""

    def __init__(self, authorizer: Authorizer, image: Callable[[], MetadataImage]) -> None:
        self._authorizer = authorizer
        self._image = image

    def check(self, request: Message, version: int, caller: Caller) -> Permit:
        """See `dispatch.RequestGuard`."""
        key = api_of(request).key
        if key in OPEN_TO_ALL:
            return Permit(request)
        rights = Rights(self._authorizer, caller, self._image())
        return RULES[key](request, version, rights)

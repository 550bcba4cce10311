"""Authorizes every request by Apache Kafka's table of operations, and removes the parts that its sender may not do.

The broker that receives a request checks it with the ACLs that this broker knows. A forwarded request is checked again
by the controller with the controller's. A broker sends its own requests as itself: brokers are super users, or have
CLUSTER_ACTION and the other permissions that they need.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from broker.controller.error_responses import refused
from broker.controller.image import MetadataImage
from broker.errors import ErrorCode, ProtocolError
from broker.protocol.api import APIS, ApiKey, api_of
from broker.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from broker.protocol.messages.create_acls import CreateAclsRequest
from broker.protocol.messages.delete_acls import DeleteAclsRequest
from broker.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from broker.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from broker.protocol.messages.elect_leaders import ElectLeadersRequest
from broker.protocol.messages.get_replica_log_info import (
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
    PartitionLogInfo,
    TopicPartitionLogInfo,
)
from broker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from broker.protocol.schema import DeclarationError, Message
from broker.security.acls import AclOperation
from broker.security.authorizer import Authorizer, Caller
from broker.server.authorization.group_rules import GROUP_RULES
from broker.server.authorization.permissions import Check, Rights
from broker.server.authorization.topic_rules import TOPIC_RULES
from broker.server.dispatch import Permit, RefusedRequest

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
    results = [DescribeUserScramCredentialsResult(it.name, code, reason) for it in request.users]
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def _no_log_info(request: GetReplicaLogInfoRequest) -> GetReplicaLogInfoResponse:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return GetReplicaLogInfoResponse(
        topic_partition_log_info_list=[
            TopicPartitionLogInfo(it.topic_id, [PartitionLogInfo(index, error_code=code) for index in it.partitions])
            for it in request.topic_partitions
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

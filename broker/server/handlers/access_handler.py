"""DescribeAcls and DescribeUserScramCredentials, answered from this broker's copy of the metadata."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from broker.controller.access import filter_of
from broker.controller.error_responses import refused
from broker.controller.image import MetadataImage
from broker.errors import ErrorCode, ProtocolError
from broker.protocol.messages.acl_apis import (
    AclDescription,
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from broker.protocol.messages.credential_apis import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from broker.protocol.schema import Message
from broker.security.acls import PatternType, ResourceType

_DISABLED = ProtocolError(ErrorCode.SECURITY_DISABLED, "no authorizer is configured: set authorizer.class.name")


def refuse_without_authorizer(request: CreateAclsRequest | DeleteAclsRequest, _version: int) -> Message:
    """ACLs that no authorizer would apply are refused, as in Kafka."""
    return refused(request, _DISABLED)


class AccessHandler:
    """Serves both. `enforced`: whether an authorizer is configured."""

    def __init__(self, image: Callable[[], MetadataImage], *, enforced: bool) -> None:
        self._image = image
        self._enforced = enforced

    def describe_acls(self, request: DescribeAclsRequest, _version: int) -> DescribeAclsResponse:
        if not self._enforced:
            return DescribeAclsResponse(error_code=_DISABLED.code, error_message=str(_DISABLED))
        try:
            acl_filter = filter_of(request)
        except ProtocolError as error:
            return DescribeAclsResponse(error_code=error.code, error_message=str(error))
        resources: dict[tuple[ResourceType, str, PatternType], DescribeAclsResource] = {}
        for acl in self._image().acls.values():
            if acl_filter.matches(acl):
                resource = resources.setdefault(
                    (acl.resource_type, acl.name, acl.pattern_type),
                    DescribeAclsResource(acl.resource_type, acl.name, acl.pattern_type),
                )
                resource.acls.append(AclDescription(acl.principal, acl.host, acl.operation, acl.permission))
        return DescribeAclsResponse(error_message=None, resources=list(resources.values()))

    def describe_scram_credentials(
        self, request: DescribeUserScramCredentialsRequest, _version: int
    ) -> DescribeUserScramCredentialsResponse:
        """The mechanisms and iterations of each user's credentials; never anything else of them."""
        credentials: dict[str, list[CredentialInfo]] = {}
        for (user, mechanism), credential in sorted(self._image().scram.items()):
            credentials.setdefault(user, []).append(CredentialInfo(mechanism, credential.iterations))
        response = DescribeUserScramCredentialsResponse(error_message=None)
        times = Counter([user.name for user in request.users] if request.users else list(credentials))
        for name in times:
            result = DescribeUserScramCredentialsResult(name, ErrorCode.NONE, None, credentials.get(name, []))
            if times[name] > 1:
                message = "the user is named more than once"
                result = DescribeUserScramCredentialsResult(name, ErrorCode.DUPLICATE_RESOURCE, message)
            elif name not in credentials:
                message = "the user has no credentials"
                result = DescribeUserScramCredentialsResult(name, ErrorCode.RESOURCE_NOT_FOUND, message)
            response.results.append(result)
        return response

"""Describes settings, quotas, access rules and credentials, from this broker's configuration and its copy of the
metadata.

DescribeConfigs: the configuration with which this broker runs, and the topics' and the cluster's from the metadata
log. ListConfigResources: the resources that have a configuration. Loggers, groups and clients' metrics have no settings
here. Their descriptions are empty, because the admin tools ask for them together with others.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from broker.config import BrokerConfig, setting_texts
from broker.controller.access import filter_of
from broker.controller.error_responses import refused
from broker.controller.image import MetadataImage
from broker.effective_configs import BrokerValues, Source
from broker.errors import ErrorCode, ProtocolError
from broker.protocol.messages.acl_apis import (
    AclDescription,
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from broker.protocol.messages.config_apis import (
    ANY,
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    DEFAULT,
    EXACT,
    GROUP,
    TOPIC,
    ConfigResource,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from broker.protocol.messages.credential_apis import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from broker.protocol.schema import Message
from broker.security.acls import PatternType, ResourceType
from broker.server.work_budget import Work
from broker.topic_settings import is_for_all_brokers

# ---- DescribeClientQuotas: this broker throttles no clients and has no quotas.


def describe_client_quotas(request: DescribeClientQuotasRequest, _version: int) -> DescribeClientQuotasResponse:
    """No entries; filters that Apache Kafka refuses are refused with its errors."""
    for number, component in enumerate(request.components):
        kinds = [earlier.entity_type for earlier in request.components[:number]]
        if problem := _wrong(component.entity_type, component.match_type, kinds):
            return DescribeClientQuotasResponse(
                error_code=ErrorCode.INVALID_REQUEST, error_message=problem, entries=None
            )
    return DescribeClientQuotasResponse(error_message=None)


def _wrong(kind: str, match_type: int, earlier_kinds: list[str]) -> str:
    """Why a filter cannot have this component after those of other kinds; empty where it can."""
    if not kind:
        return "Invalid empty entity type."
    if kind in earlier_kinds:
        return f"Entity type {kind} cannot appear more than once in the filter."
    if match_type not in (EXACT, DEFAULT, ANY):
        return f"Unknown match type {match_type}"
    return ""


_TYPES = {"boolean": 1, "string": 2, "int": 3, "long": 5, "double": 6, "list": 7}  # DescribeConfigsResponse.ConfigType


class ConfigsHandler:
    """Answers for topics and for this broker; other brokers answer for theirs."""

    def __init__(self, config: BrokerConfig, image: Callable[[], MetadataImage]) -> None:
        self._node_id = config.node_id
        self._image = image
        self._broker_values = BrokerValues(config)

    def describe(self, request: DescribeConfigsRequest, version: int) -> Work[DescribeConfigsResponse]:  # noqa: ARG002
        """A resource that is named again is answered once, so that an answer is bounded by the size of the cluster."""
        response = DescribeConfigsResponse()
        described = set()
        for requested in request.resources:
            resource = (requested.resource_type, requested.resource_name)
            if resource not in described:
                described.add(resource)
                result = self._describe(requested, request.include_synonyms, request.include_documentation)
                response.results.append(result)
                for _ in result.configs:
                    yield
            yield
        return response

    def list_resources(self, request: ListConfigResourcesRequest, version: int) -> ListConfigResourcesResponse:
        """Version 0 lists only resources of clients' metrics, and the broker has none."""
        resource_names = {
            BROKER: self._brokers,
            BROKER_LOGGER: self._brokers,
            TOPIC: self._topics,
            GROUP: list,
            CLIENT_METRICS: list,
        }
        requested_types = dict.fromkeys(request.resource_types or resource_names) if version else {}
        if not requested_types.keys() <= resource_names.keys():
            return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        resources = [
            ConfigResource(name, resource_type)
            for resource_type in requested_types
            for name in resource_names[resource_type]()
        ]
        return ListConfigResourcesResponse(config_resources=resources)

    def _brokers(self) -> list[str]:
        return [str(broker) for broker in sorted(self._image().brokers)]

    def _topics(self) -> list[str]:
        return sorted(self._image().topics)

    def _describe(
        self, requested: DescribeConfigsResource, synonyms: bool, documentation: bool
    ) -> DescribeConfigsResult:
        result = DescribeConfigsResult(
            resource_type=requested.resource_type, resource_name=requested.resource_name, error_message=None
        )
        try:
            if requested.resource_type == BROKER:
                entries = self._broker(requested.resource_name)
            elif requested.resource_type == TOPIC:
                entries = self._topic(requested.resource_name)
            elif requested.resource_type in (BROKER_LOGGER, GROUP, CLIENT_METRICS):
                entries = []
            else:
                raise ProtocolError(
                    ErrorCode.INVALID_REQUEST, f"resource type {requested.resource_type} has no configuration"
                )
        except ProtocolError as error:
            result.error_code, result.error_message = error.code, str(error)
            return result
        wanted_keys = set(requested.configuration_keys or ())
        for entry in entries:
            if not wanted_keys or entry.name in wanted_keys:
                if not synonyms:
                    entry.synonyms = []
                if not documentation:
                    entry.documentation = None
                result.configs.append(entry)
        return result

    def _broker(self, name: str) -> list[DescribeConfigsResourceResult]:
        if name not in ("", str(self._node_id)):
            raise ProtocolError(ErrorCode.INVALID_REQUEST, f"ask broker {name}; this is broker {self._node_id}")
        return [
            _entry(
                key,
                self._broker_values.shared(key, _text(value), self._image().defaults),
                _kind(value),
                setting_texts().get(key),
                read_only=not is_for_all_brokers(key),
            )
            for key, value in sorted(self._broker_values.values.items())
        ]

    def _topic(self, name: str) -> list[DescribeConfigsResourceResult]:
        topic = self._image().topics.get(name)
        if topic is None:
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
        return [
            _entry(
                setting.name,
                setting.sources,
                setting.kind,
                setting.meaning or setting_texts().get(setting.inherited),
                read_only=False,
            )
            for setting in self._broker_values.of_topic(topic.configs, self._image().defaults)
        ]


def _entry(
    name: str, sources: list[Source], kind: str, documentation: str | None, *, read_only: bool
) -> DescribeConfigsResourceResult:
    """The first source has precedence. A synonym has the name of the key at its source, as in Kafka; a source without
    a name is not listed."""
    _, value, source = sources[0]
    return DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=read_only,
        config_source=source,
        synonyms=[DescribeConfigsSynonym(*synonym) for synonym in sources if synonym[0]],
        config_type=_TYPES[kind],
        documentation=documentation,
    )


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "long" if isinstance(value, int) else "string"


# ---- DescribeAcls and DescribeUserScramCredentials.

_DISABLED = ProtocolError(ErrorCode.SECURITY_DISABLED, "no authorizer is configured: set authorizer.class.name")


def refuse_without_authorizer(request: CreateAclsRequest | DeleteAclsRequest, _version: int) -> Message:
    """ACLs that no authorizer would apply are refused, as in Kafka."""
    return refused(request, _DISABLED)


class AccessHandler:
    """Serves both, from this broker's copy of the metadata. `enforced`: whether an authorizer is configured."""

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

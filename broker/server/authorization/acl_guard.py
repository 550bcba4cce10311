"""Authorizes every request by Apache Kafka's table of operations, and removes the parts that its sender may not do.

The broker that receives a request checks it with the ACLs that this broker knows. A forwarded request is checked again
by the controller with the controller's. A broker sends its own requests as itself: brokers are super users, or have
CLUSTER_ACTION and the other permissions that they need.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from broker.controller.error_responses import refused
from broker.controller.image import MetadataImage
from broker.controller.topics import deletion_refused, topic_refused, topics_to_delete
from broker.errors import ErrorCode, ProtocolError
from broker.groups.commits import answer_to_all
from broker.groups.rebalance import refused_join, refused_sync
from broker.protocol.api import APIS, ApiKey, api_of
from broker.protocol.messages.acl_apis import CreateAclsRequest, DeleteAclsRequest
from broker.protocol.messages.cluster_apis import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from broker.protocol.messages.config_apis import (
    AlterConfigsResourceResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeConfigsResult,
)
from broker.protocol.messages.credential_apis import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from broker.protocol.messages.fetch import FetchRequest, FetchTopic, fetching_replica
from broker.protocol.messages.group_apis import (
    TRANSACTION_KEY,
    Coordinator,
    DeletableGroupResult,
    DescribedGroup,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from broker.protocol.messages.metadata_records import TOPIC_RESOURCE
from broker.protocol.messages.offset_apis import (
    DeleteRecordsPartitionResult,
    EpochEndOffset,
    ListOffsetsPartitionResponse,
    OffsetCommitResponsePartition,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)
from broker.protocol.messages.partition_apis import (
    ElectLeadersRequest,
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
    PartitionLogInfo,
    TopicPartitionLogInfo,
)
from broker.protocol.messages.producer_apis import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
    TopicProduceResponse,
)
from broker.protocol.messages.topic_apis import (
    CreatableTopic,
    CreatableTopicResult,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from broker.protocol.schema import NO_ID, DeclarationError, Message, Topic
from broker.quorum.wire import METADATA_TOPIC, METADATA_TOPIC_ID
from broker.replica.reads import PartitionRead
from broker.security.acls import AclOperation, ResourceType
from broker.security.authorizer import Authorizer, Caller
from broker.server.connection import Rejected
from broker.server.dispatch import Permit, RefusedRequest
from broker.server.handlers.fetch_response import TopicAnswer

T = TypeVar("T")


class Rights(NamedTuple):
    """The permissions of one caller. `image`: the topics that this broker knows."""

    authorizer: Authorizer
    caller: Caller
    image: MetadataImage

    def cluster(self, operation: AclOperation) -> bool:
        return self.authorizer.allows_cluster(self.caller, operation)

    def topic(self, operation: AclOperation, name: str) -> bool:
        return self.authorizer.allows(self.caller, operation, ResourceType.TOPIC, name)

    def group(self, operation: AclOperation, name: str) -> bool:
        return self.authorizer.allows(self.caller, operation, ResourceType.GROUP, name)

    def any_topic(self, operation: AclOperation) -> bool:
        return self.authorizer.allows_any(self.caller, operation, ResourceType.TOPIC)


Check = Callable[[Any, int, Rights], Permit]
"""Takes a request, its version and the caller's rights; may raise `dispatch.RefusedRequest`."""


def split(elements: Iterable[T], allowed: Callable[[T], bool]) -> tuple[list[T], list[T]]:
    """The allowed elements, and the others."""
    parts: tuple[list[T], list[T]] = [], []
    for element in elements:
        parts[not allowed(element)].append(element)
    return parts


def appending(name: str, denied: list[Any]) -> Callable[[Any], Any] | None:
    """A function that adds answers to the list in the field `name` of a response."""
    if not denied:
        return None

    def amend(response: Any) -> Any:
        getattr(response, name).extend(denied)
        return response

    return amend


def narrowed(
    request: Any, elements: str, allowed: Callable[[Any], bool], answers: str, denied: Callable[[Any], Any]
) -> Permit:
    """Permits the allowed elements of the request's list in the field `elements`. The list in the field `answers` of
    the response also has the answer that `denied` makes for each of the others."""
    permitted, refused_elements = split(getattr(request, elements), allowed)
    if not refused_elements:
        return Permit(request)
    refusals = [denied(element) for element in refused_elements]
    return Permit(REPLACE(request, **{elements: permitted}), appending(answers, refusals))


# ---- Permissions for requests about topics: each topic of a request is allowed or refused separately.

TOPIC_DENIED_CODE = ErrorCode.TOPIC_AUTHORIZATION_FAILED
TOPIC_DENIED = ProtocolError(TOPIC_DENIED_CODE, "Topic authorization failed.")
CLUSTER_DENIED = ProtocolError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
FIRST_FETCH_WITH_IDS = 13
REPLACE = msgspec.structs.replace


def _each_topic(
    operation: AclOperation, answers: str, denied: Callable[[Any], Any], *, topics: str = "topics"
) -> Check:
    """For a request with a list of elements with a `name`; `answers`: the list of its response."""

    def check(request: Any, _version: int, rights: Rights) -> Permit:
        return narrowed(request, topics, lambda topic: rights.topic(operation, topic.name), answers, denied)

    return check


def _each_partition(denied: Callable[[int, ErrorCode], Any]) -> Callable[[Any], Any]:
    """A function that makes the answer for a topic, with what is `denied` for each of its partitions, by its index."""
    return lambda topic: Topic(
        topic.name, [denied(partition.partition_index, TOPIC_DENIED_CODE) for partition in topic.partitions]
    )


def _no_deletion(index: int, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(index, -1, code)


def _no_partitions(topic: CreatePartitionsTopic) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(topic.name, TOPIC_DENIED_CODE, str(TOPIC_DENIED))


def _produce(request: ProduceRequest, version: int, rights: Rights) -> Permit:
    """A request with acks=0 gets no response: a refusal closes the connection, as in Kafka."""

    def not_appended(topic: TopicProduceData) -> TopicProduceResponse:
        if request.acks == 0:
            raise Rejected(f"Produce with acks=0 to {topic.name}: {TOPIC_DENIED}")
        responses = [
            PartitionProduceResponse(
                index=partition.index, error_code=TOPIC_DENIED_CODE, base_offset=-1, error_message=str(TOPIC_DENIED)
            )
            for partition in topic.partition_data
        ]
        return TopicProduceResponse(name=topic.name, partition_responses=responses)

    return _each_topic(AclOperation.WRITE, "responses", not_appended, topics="topic_data")(request, version, rights)


def _fetch_of_topics(request: FetchRequest, version: int, rights: Rights) -> Permit:
    """Consumers need READ on topics; replicas, and followers of the quorum, need CLUSTER_ACTION."""
    if fetching_replica(request).replica_id >= 0:
        acts = rights.cluster(AclOperation.CLUSTER_ACTION)
        allowed, refused_topics = (request.topics, []) if acts else ([], request.topics)
    else:
        allowed, refused_topics = split(request.topics, lambda topic: _may_read(topic, version, rights))
    if not refused_topics:
        return Permit(request)

    def amend(answers: Any) -> Any:
        if not isinstance(answers, list):  # the quorum's response
            answers.error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            return answers
        return answers + [TopicAnswer(topic.topic, _unread(topic), topic.topic_id) for topic in refused_topics]

    return Permit(REPLACE(request, topics=allowed, max_wait_ms=request.max_wait_ms if allowed else 0), amend)


def _may_read(topic: FetchTopic, version: int, rights: Rights) -> bool:
    """Only nodes of the cluster may read the metadata log, which contains credentials. A topic with an unknown id
    passes; the answer reports the id as unknown."""
    if topic.topic == METADATA_TOPIC or topic.topic_id == METADATA_TOPIC_ID:
        return rights.cluster(AclOperation.CLUSTER_ACTION)
    if version < FIRST_FETCH_WITH_IDS:
        return rights.topic(AclOperation.READ, topic.topic)
    known_topic = rights.image.topic_by_id(topic.topic_id)
    return known_topic is None or rights.topic(AclOperation.READ, known_topic.name)


def _unread(topic: FetchTopic) -> list[PartitionRead]:
    return [PartitionRead(topic.topic, partition.partition, TOPIC_DENIED_CODE) for partition in topic.partitions]


def _offset_for_leader_epoch(request: OffsetForLeaderEpochRequest, _version: int, rights: Rights) -> Permit:
    if rights.cluster(AclOperation.CLUSTER_ACTION):
        return Permit(request)
    allowed, refused_topics = split(request.topics, lambda topic: rights.topic(AclOperation.DESCRIBE, topic.topic))
    if request.replica_id >= 0:
        allowed, refused_topics = [], request.topics
    if not refused_topics:
        return Permit(request)
    return Permit(
        REPLACE(request, topics=allowed, replica_id=-1),
        appending("topics", [_no_epochs(topic) for topic in refused_topics]),
    )


def _no_epochs(topic: OffsetForLeaderTopic) -> OffsetForLeaderTopicResult:
    return OffsetForLeaderTopicResult(
        topic.topic, [EpochEndOffset(TOPIC_DENIED_CODE, partition.partition) for partition in topic.partitions]
    )


def _create_topics(request: CreateTopicsRequest, _version: int, rights: Rights) -> Permit:
    """The answer shows the configuration only to those who may describe it (KIP-525)."""
    allowed, refused_topics = request.topics, list[CreatableTopic]()
    if not rights.cluster(AclOperation.CREATE):
        allowed, refused_topics = split(request.topics, lambda topic: rights.topic(AclOperation.CREATE, topic.name))
    hidden = {topic.name for topic in allowed if not rights.topic(AclOperation.DESCRIBE_CONFIGS, topic.name)}
    if not refused_topics and not hidden:
        return Permit(request)
    denied = [topic_refused(topic.name, TOPIC_DENIED) for topic in refused_topics]

    def amend(response: CreateTopicsResponse) -> CreateTopicsResponse:
        shown = [_without_configs(topic) if topic.name in hidden else topic for topic in response.topics]
        return REPLACE(response, topics=shown + denied)

    return Permit(REPLACE(request, topics=allowed), amend)


def _without_configs(result: CreatableTopicResult) -> CreatableTopicResult:
    if result.error_code:
        return result
    return REPLACE(
        result, topic_config_error_code=TOPIC_DENIED_CODE, num_partitions=-1, replication_factor=-1, configs=None
    )


def _delete_topics(request: DeleteTopicsRequest, _version: int, rights: Rights) -> Permit:
    """A topic with an id that is unknown here is not forwarded: without its name it cannot be authorized."""

    def refusal(state: DeleteTopicState) -> ProtocolError | None:
        name = state.name
        if name is None:
            known_topic = rights.image.topic_by_id(state.topic_id)
            if known_topic is None:
                return ProtocolError(ErrorCode.UNKNOWN_TOPIC_ID, "This topic id is unknown.")
            name = known_topic.name
        return None if rights.topic(AclOperation.DELETE, name) else TOPIC_DENIED

    requests = [(state, refusal(state)) for state in topics_to_delete(request)]
    denied = [deletion_refused(state, error) for state, error in requests if error is not None]
    if not denied:
        return Permit(request)
    allowed = [state for state, error in requests if error is None]
    permitted = REPLACE(request, topics=allowed, topic_names=[])
    if request.topic_names:
        permitted = REPLACE(request, topic_names=[state.name or "" for state in allowed])
    return Permit(permitted, appending("responses", denied))


def _metadata(request: MetadataRequest, version: int, rights: Rights) -> Permit:
    """A request for all topics omits those that the caller may not describe."""
    if request.topics is None or (version == 0 and not request.topics):

        def amend(response: MetadataResponse) -> MetadataResponse:
            visible_topics = [
                topic for topic in response.topics if rights.topic(AclOperation.DESCRIBE, topic.name or "")
            ]
            return REPLACE(response, topics=visible_topics)

        return Permit(request, amend)
    allowed, refused_topics = split(
        request.topics, lambda topic: _may_see(topic, request.allow_auto_topic_creation, rights)
    )
    if not refused_topics:
        return Permit(request)
    denied = [
        MetadataResponseTopic(error_code=TOPIC_DENIED_CODE, name=topic.name or "", topic_id=topic.topic_id)
        for topic in refused_topics
    ]

    def add(response: MetadataResponse) -> MetadataResponse:
        """A version 0 request whose topics are all denied becomes an empty list, which asks for all topics."""
        return REPLACE(response, topics=(response.topics if allowed else []) + denied)

    return Permit(REPLACE(request, topics=allowed), add)


def _may_see(topic: MetadataRequestTopic, creates: bool, rights: Rights) -> bool:
    """A request that creates missing topics needs the permission to create them."""
    if topic.topic_id != NO_ID:
        known_topic = rights.image.topic_by_id(topic.topic_id)
        return known_topic is None or rights.topic(AclOperation.DESCRIBE, known_topic.name)
    name = topic.name or ""
    if not rights.topic(AclOperation.DESCRIBE, name):
        return False
    missing = creates and name not in rights.image.topics
    return not missing or rights.cluster(AclOperation.CREATE) or rights.topic(AclOperation.CREATE, name)


def _configs(operation: AclOperation, answers: str, denied: Callable[[ErrorCode, str, int, str], Any]) -> Check:
    """Configurations of topics need rights on the topic; those of brokers need rights on the cluster."""

    def check(request: Any, _version: int, rights: Rights) -> Permit:
        def allowed_to(resource: Any) -> bool:
            if resource.resource_type == TOPIC_RESOURCE:
                return rights.topic(operation, resource.resource_name)
            return rights.cluster(operation)

        def refusal(resource: Any) -> Any:
            is_topic = resource.resource_type == TOPIC_RESOURCE
            error = TOPIC_DENIED if is_topic else CLUSTER_DENIED
            return denied(error.code, str(error), resource.resource_type, resource.resource_name)

        return narrowed(request, "resources", allowed_to, answers, refusal)

    return check


TOPIC_RULES: dict[ApiKey, Check] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch_of_topics,
    ApiKey.LIST_OFFSETS: _each_topic(AclOperation.DESCRIBE, "topics", _each_partition(ListOffsetsPartitionResponse)),
    ApiKey.METADATA: _metadata,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.DELETE_RECORDS: _each_topic(AclOperation.DELETE, "topics", _each_partition(_no_deletion)),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    ApiKey.CREATE_PARTITIONS: _each_topic(AclOperation.ALTER, "results", _no_partitions),
    ApiKey.DESCRIBE_CONFIGS: _configs(AclOperation.DESCRIBE_CONFIGS, "results", DescribeConfigsResult),
    ApiKey.ALTER_CONFIGS: _configs(AclOperation.ALTER_CONFIGS, "responses", AlterConfigsResourceResponse),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs(AclOperation.ALTER_CONFIGS, "responses", AlterConfigsResourceResponse),
}


# ---- Permissions for requests about consumer groups: on the group, and on the topics of the offsets.

GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
REASON = "Group authorization failed."
FIRST_WITH_COORDINATORS, FIRST_WITH_GROUPS, FIRST_WITH_NO_PROTOCOL = 4, 8, 7
NO_OFFSET = -1


def _member(denied: Callable[[Any], Message]) -> Check:
    """Membership requests need READ on the group."""

    def check(request: Any, _version: int, rights: Rights) -> Permit:
        if not rights.group(AclOperation.READ, request.group_id):
            raise RefusedRequest(denied(request))
        return Permit(request)

    return check


def _offsets_of(
    operation: AclOperation, refused_group: Callable[[Any], Message], denied: Callable[[Any], Any]
) -> Check:
    """For a request about a group's offsets: a right on the group, and READ on each of the `topics`."""

    def check(request: Any, version: int, rights: Rights) -> Permit:
        if not rights.group(operation, request.group_id):
            raise RefusedRequest(refused_group(request))
        return _each_topic(AclOperation.READ, "topics", denied)(request, version, rights)

    return check


def _join(request: JoinGroupRequest, version: int, rights: Rights) -> Permit:
    if rights.group(AclOperation.READ, request.group_id):
        return Permit(request)
    response = refused_join(GROUP_DENIED, request.member_id)
    if version < FIRST_WITH_NO_PROTOCOL:
        response.protocol_name = ""
    raise RefusedRequest(response)


def _each_group(operation: AclOperation, groups: str, answers: str, denied: Callable[[str], Any]) -> Check:
    """For a request with the names of groups in the field `groups`; `answers`: the list of its response."""

    def check(request: Any, _version: int, rights: Rights) -> Permit:
        return narrowed(request, groups, lambda group: rights.group(operation, group), answers, denied)

    return check


def _no_coordinator(group: str) -> Coordinator:
    return Coordinator(group, -1, "", -1, GROUP_DENIED, REASON)


def _find_coordinator(request: FindCoordinatorRequest, version: int, rights: Rights) -> Permit:
    if request.key_type == TRANSACTION_KEY:
        return Permit(request)  # InitProducerId refuses it
    if version >= FIRST_WITH_COORDINATORS:
        return _each_group(AclOperation.DESCRIBE, "coordinator_keys", "coordinators", _no_coordinator)(
            request, version, rights
        )
    if not rights.group(AclOperation.DESCRIBE, request.key):
        raise RefusedRequest(
            FindCoordinatorResponse(error_code=GROUP_DENIED, error_message=REASON, node_id=-1, port=-1)
        )
    return Permit(request)


def _fetch(request: OffsetFetchRequest, version: int, rights: Rights) -> Permit:
    if version >= FIRST_WITH_GROUPS:
        return _fetch_of_groups(request, rights)
    requested_topics = request.topics
    if not rights.group(AclOperation.DESCRIBE, request.group_id):
        topics = [] if version >= 2 else [_unfetched(topic, GROUP_DENIED) for topic in requested_topics or ()]
        raise RefusedRequest(OffsetFetchResponse(error_code=GROUP_DENIED, topics=topics))
    if requested_topics is None:
        return Permit(request, lambda answer: REPLACE(answer, topics=_seen(answer.topics, rights)))
    return _each_topic(AclOperation.DESCRIBE, "topics", lambda topic: _unfetched(topic, TOPIC_DENIED_CODE))(
        request, version, rights
    )


def _unfetched(topic: OffsetFetchRequestTopic, code: ErrorCode) -> Topic[OffsetFetchResponsePartition]:
    partitions = [OffsetFetchResponsePartition(index, NO_OFFSET, -1, "", code) for index in topic.partition_indexes]
    return Topic(topic.name, partitions)


def _seen(topics: list[Any], rights: Rights) -> list[Any]:
    return [topic for topic in topics if rights.topic(AclOperation.DESCRIBE, topic.name)]


def _fetch_of_groups(request: OffsetFetchRequest, rights: Rights) -> Permit:
    """Several groups, each with a list of topics or with all of its offsets."""
    allowed, refused_groups = split(request.groups, lambda group: rights.group(AclOperation.DESCRIBE, group.group_id))
    permitted_groups: list[OffsetFetchRequestGroup] = []
    denied: list[list[Topic[OffsetFetchResponsePartition]]] = []
    for group in allowed:
        topics, refused = split(group.topics or [], lambda topic: rights.topic(AclOperation.DESCRIBE, topic.name))
        permitted_groups.append(group if group.topics is None else REPLACE(group, topics=topics))
        denied.append([_unfetched(topic, TOPIC_DENIED_CODE) for topic in refused])

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
    ApiKey.OFFSET_COMMIT: _offsets_of(
        AclOperation.READ,
        lambda request: answer_to_all(request, GROUP_DENIED),
        _each_partition(OffsetCommitResponsePartition),
    ),
    ApiKey.OFFSET_FETCH: _fetch,
    ApiKey.OFFSET_DELETE: _offsets_of(
        AclOperation.DELETE,
        lambda _: OffsetDeleteResponse(error_code=GROUP_DENIED),
        _each_partition(OffsetDeleteResponsePartition),
    ),
    ApiKey.DESCRIBE_GROUPS: _each_group(
        AclOperation.DESCRIBE, "groups", "groups", lambda group: DescribedGroup(GROUP_DENIED, group_id=group)
    ),
    ApiKey.DELETE_GROUPS: _each_group(
        AclOperation.DELETE, "groups_names", "results", lambda group: DeletableGroupResult(group, GROUP_DENIED)
    ),
    ApiKey.LIST_GROUPS: _list,
}


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

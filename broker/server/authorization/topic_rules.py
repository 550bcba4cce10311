"""Permissions for requests about topics: each topic of a request is allowed or refused separately."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from broker.controller.topics import deletion_refused, topic_refused, topics_to_delete
from broker.errors import ErrorCode, ProtocolError
from broker.protocol.api import ApiKey
from broker.protocol.messages.cluster_apis import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from broker.protocol.messages.config_apis import AlterConfigsResourceResponse, DescribeConfigsResult
from broker.protocol.messages.fetch import FetchRequest, FetchTopic, fetching_replica
from broker.protocol.messages.metadata_records import TOPIC_RESOURCE
from broker.protocol.messages.offset_apis import (
    DeleteRecordsPartitionResult,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
    EpochEndOffset,
    ListOffsetsPartitionResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)
from broker.protocol.messages.producer_apis import (
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
from broker.protocol.schema import NO_ID
from broker.quorum.wire import METADATA_TOPIC, METADATA_TOPIC_ID
from broker.replica.reads import PartitionRead
from broker.security.acls import AclOperation
from broker.server.authorization.permissions import Check, Rights, appending, split
from broker.server.connection import Rejected
from broker.server.dispatch import Permit
from broker.server.handlers.fetch_response import TopicAnswer

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
TOPIC_DENIED = ProtocolError(DENIED, "Topic authorization failed.")
FIRST_FETCH_WITH_IDS = 13
REPLACE = msgspec.structs.replace


def _each_topic(operation: AclOperation, answers: str, denied: Callable[[Any], Any]) -> Check:
    """For a request with a list `topics` whose elements have a `name`; `answers`: the list of its response."""

    def check(request: Any, _version: int, rights: Rights) -> Permit:
        allowed, refused_topics = split(request.topics, lambda topic: rights.topic(operation, topic.name))
        if not refused_topics:
            return Permit(request)
        return Permit(REPLACE(request, topics=allowed), appending(answers, [denied(topic) for topic in refused_topics]))

    return check


def _no_offsets(topic: ListOffsetsTopic) -> ListOffsetsTopicResponse:
    return ListOffsetsTopicResponse(
        topic.name, [ListOffsetsPartitionResponse(partition.partition_index, DENIED) for partition in topic.partitions]
    )


def _no_deletion(topic: DeleteRecordsTopic) -> DeleteRecordsTopicResult:
    return DeleteRecordsTopicResult(
        topic.name,
        [DeleteRecordsPartitionResult(partition.partition_index, -1, DENIED) for partition in topic.partitions],
    )


def _no_partitions(topic: CreatePartitionsTopic) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(topic.name, DENIED, str(TOPIC_DENIED))


def _produce(request: ProduceRequest, _version: int, rights: Rights) -> Permit:
    """A request with acks=0 gets no response: a refusal closes the connection, as in Kafka."""
    allowed, refused_topics = split(request.topic_data, lambda topic: rights.topic(AclOperation.WRITE, topic.name))
    if not refused_topics:
        return Permit(request)
    if request.acks == 0:
        raise Rejected(f"Produce with acks=0 to {refused_topics[0].name}: {TOPIC_DENIED}")
    return Permit(
        REPLACE(request, topic_data=allowed), appending("responses", [_not_appended(topic) for topic in refused_topics])
    )


def _not_appended(topic: TopicProduceData) -> TopicProduceResponse:
    responses = [
        PartitionProduceResponse(
            index=partition.index, error_code=DENIED, base_offset=-1, error_message=str(TOPIC_DENIED)
        )
        for partition in topic.partition_data
    ]
    return TopicProduceResponse(name=topic.name, partition_responses=responses)


def _fetch(request: FetchRequest, version: int, rights: Rights) -> Permit:
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
    return [PartitionRead(topic.topic, partition.partition, DENIED) for partition in topic.partitions]


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
        topic.topic, [EpochEndOffset(DENIED, partition.partition) for partition in topic.partitions]
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
    return REPLACE(result, topic_config_error_code=DENIED, num_partitions=-1, replication_factor=-1, configs=None)


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
        MetadataResponseTopic(error_code=DENIED, name=topic.name or "", topic_id=topic.topic_id)
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


def _configs(operation: AclOperation, answers: str, denied: Callable[[Any, ErrorCode, str], Any]) -> Check:
    """Configurations of topics need rights on the topic; those of brokers need rights on the cluster."""

    def check(request: Any, _version: int, rights: Rights) -> Permit:
        def allowed_to(resource: Any) -> bool:
            if resource.resource_type == TOPIC_RESOURCE:
                return rights.topic(operation, resource.resource_name)
            return rights.cluster(operation)

        allowed, refused_resources = split(request.resources, allowed_to)
        if not refused_resources:
            return Permit(request)
        refusals = []
        for resource in refused_resources:
            is_topic = resource.resource_type == TOPIC_RESOURCE
            code = DENIED if is_topic else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            reason = str(TOPIC_DENIED) if is_topic else "Cluster authorization failed."
            refusals.append(denied(resource, code, reason))
        return Permit(REPLACE(request, resources=allowed), appending(answers, refusals))

    return check


def _not_described(resource: Any, code: ErrorCode, reason: str) -> DescribeConfigsResult:
    return DescribeConfigsResult(code, reason, resource.resource_type, resource.resource_name)


def _not_altered(resource: Any, code: ErrorCode, reason: str) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(code, reason, resource.resource_type, resource.resource_name)


def _not_altered_incrementally(resource: Any, code: ErrorCode, reason: str) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(code, reason, resource.resource_type, resource.resource_name)


TOPIC_RULES: dict[ApiKey, Check] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _each_topic(AclOperation.DESCRIBE, "topics", _no_offsets),
    ApiKey.METADATA: _metadata,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.DELETE_RECORDS: _each_topic(AclOperation.DELETE, "topics", _no_deletion),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    ApiKey.CREATE_PARTITIONS: _each_topic(AclOperation.ALTER, "results", _no_partitions),
    ApiKey.DESCRIBE_CONFIGS: _configs(AclOperation.DESCRIBE_CONFIGS, "results", _not_described),
    ApiKey.ALTER_CONFIGS: _configs(AclOperation.ALTER_CONFIGS, "responses", _not_altered),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs(AclOperation.ALTER_CONFIGS, "responses", _not_altered_incrementally),
}

"""CreateTopics and DeleteTopics. Pure: from image and request to records and answer."""

import random
import re
from collections import Counter
from dataclasses import dataclass, field

from broker.config import BrokerConfig
from broker.controller.configs import checked
from broker.controller.eligibility import first_of
from broker.controller.image import MetadataImage, TopicImage
from broker.effective_configs import BrokerValues
from broker.errors import ErrorCode, ProtocolError
from broker.protocol.messages.metadata_records import (
    TOPIC_RESOURCE,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from broker.protocol.messages.topic_apis import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from broker.protocol.schema import NO_ID
from broker.protocol.uuids import random_id
from broker.tiered.remote_storage_rules import check_deletion, check_remote_storage

MAX_NAME_LENGTH = 249
MAX_PARTITIONS_PER_REQUEST = 10_000
INTERNAL_TOPICS = frozenset({"__cluster_metadata"})
_NAME = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass
class _Plan:
    """The result of one request so far: the records, and the number of partitions that it may still create."""

    records: list[MetadataRecord] = field(default_factory=list)
    partitions_left: int = MAX_PARTITIONS_PER_REQUEST


def create_topics(
    image: MetadataImage, request: CreateTopicsRequest, config: BrokerConfig, rng: random.Random
) -> tuple[list[MetadataRecord], CreateTopicsResponse]:
    """The records of the topics that can be created, and an answer for each topic; no records for `validate_only`."""
    times = Counter(topic.name for topic in request.topics)
    plan = _Plan()
    response = CreateTopicsResponse()
    values = BrokerValues(config)
    for topic in request.topics:
        try:
            if times[topic.name] > 1:
                raise ProtocolError(ErrorCode.INVALID_REQUEST, "the request names this topic more than once")
            assignment = _validated(image, topic, config, rng)
            if len(assignment) > plan.partitions_left:
                limit = f"at most {MAX_PARTITIONS_PER_REQUEST} partitions are created by one request"
                raise ProtocolError(ErrorCode.POLICY_VIOLATION, limit)
            plan.partitions_left -= len(assignment)
            topic_id = NO_ID if request.validate_only else _new_id(image, rng)
            plan.records += _records(image, topic, topic_id, assignment)
            response.topics.append(_created(topic, topic_id, assignment, values, image))
        except ProtocolError as error:
            response.topics.append(topic_refused(topic.name, error))
    return [] if request.validate_only else plan.records, response


def topic_refused(name: str, error: ProtocolError) -> CreatableTopicResult:
    """The answer for a topic that is not created."""
    return CreatableTopicResult(name, error_code=error.code, error_message=str(error))


def _validated(
    image: MetadataImage, topic: CreatableTopic, config: BrokerConfig, rng: random.Random
) -> list[tuple[int, ...]]:
    """The replicas of each partition. Raises `ProtocolError` for a topic that cannot be created."""
    _check_name(topic.name)
    if topic.name in image.topics:
        raise ProtocolError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {topic.name!r} already exists")
    if twin := _colliding(image, topic.name):
        message = f"Topic '{topic.name}' collides with existing topic: {twin}"
        raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
    if len({entry.name for entry in topic.configs}) < len(topic.configs):
        raise ProtocolError(ErrorCode.INVALID_CONFIG, "the request names a key more than once")
    check_remote_storage(topic.name, checked({entry.name: entry.value for entry in topic.configs}), config)
    if topic.assignments:
        return _explicit_assignment(image, topic)
    return _automatic_assignment(image, topic, config, rng)


def _check_name(name: str) -> None:
    if not name or name in (".", "..") or len(name) > MAX_NAME_LENGTH or not _NAME.fullmatch(name):
        message = f"{name!r} is not a topic's name: 1 to {MAX_NAME_LENGTH} letters, digits, '.', '_' and '-'"
        raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
    if name in INTERNAL_TOPICS:
        raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} is reserved for the metadata quorum")


def _colliding(image: MetadataImage, name: str) -> str:
    """A topic whose name differs only in '.' and '_', which are equal in names of metrics; "" without one. A name
    without these characters cannot collide."""
    plain = name.replace(".", "_")
    if "_" not in plain:
        return ""
    return next((topic for topic in image.topics if len(topic) == len(name) and topic.replace(".", "_") == plain), "")


def _explicit_assignment(image: MetadataImage, topic: CreatableTopic) -> list[tuple[int, ...]]:
    if topic.num_partitions != -1 or topic.replication_factor != -1:
        message = "with an assignment, num_partitions and replication_factor must be -1"
        raise ProtocolError(ErrorCode.INVALID_REQUEST, message)
    by_index = {entry.partition_index: entry for entry in topic.assignments}
    if len(by_index) != len(topic.assignments) or sorted(by_index) != list(range(len(by_index))):
        raise ProtocolError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions must be numbered from 0 on, each once")
    for entry in topic.assignments:
        check_replicas(image, entry.partition_index, entry.broker_ids)
    if len({len(entry.broker_ids) for entry in topic.assignments}) > 1:
        message = "all partitions must have the same number of replicas"
        raise ProtocolError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    return [tuple(by_index[index].broker_ids) for index in range(len(by_index))]


def check_replicas(image: MetadataImage, index: int, ids: list[int]) -> None:
    """Raises `ProtocolError` for brokers that cannot be the replicas of partition `index`."""
    place = f"partition {index}"
    if not ids or len(set(ids)) != len(ids):
        raise ProtocolError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{place}: needs replicas, each broker once")
    unknown = [broker_id for broker_id in ids if broker_id not in image.brokers]
    if unknown:
        raise ProtocolError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{place}: unknown brokers {unknown}")
    if not any(image.is_available(broker_id) for broker_id in ids):
        raise ProtocolError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{place}: all of its brokers are fenced")


def _automatic_assignment(
    image: MetadataImage, topic: CreatableTopic, config: BrokerConfig, rng: random.Random
) -> list[tuple[int, ...]]:
    count = config.num_partitions if topic.num_partitions == -1 else topic.num_partitions
    factor = config.default_replication_factor if topic.replication_factor == -1 else topic.replication_factor
    if count < 1:
        raise ProtocolError(ErrorCode.INVALID_PARTITIONS, f"{count} partitions; there must be at least 1")
    return automatic_assignment(image, count, factor, rng)


def automatic_assignment(image: MetadataImage, count: int, factor: int, rng: random.Random) -> list[tuple[int, ...]]:
    """The replicas of `count` partitions: leaders round robin from a random broker on; fenced brokers only if the
    others are too few. Raises `ProtocolError` if all together are too few."""
    if count > MAX_PARTITIONS_PER_REQUEST:
        raise ProtocolError(ErrorCode.POLICY_VIOLATION, f"{count} partitions; at most {MAX_PARTITIONS_PER_REQUEST}")
    available = sorted(broker_id for broker_id in image.brokers if image.is_available(broker_id))
    fenced = sorted(image.brokers.keys() - set(available))
    if not 1 <= factor <= len(available) + len(fenced) or not available:
        registered = f"{len(available)} brokers are available, {len(fenced)} are fenced"
        raise ProtocolError(ErrorCode.INVALID_REPLICATION_FACTOR, f"replication factor {factor}: {registered}")
    start = rng.randrange(len(available))
    assignment = []
    for partition in range(count):
        first_place = (start + partition) % len(available)
        ring = available[first_place:] + available[:first_place] + fenced
        assignment.append(tuple(ring[:factor]))
    return assignment


def _new_id(image: MetadataImage, rng: random.Random) -> bytes:
    """A random id that no topic uses."""
    while image.topic_by_id(topic_id := random_id(rng)) is not None:
        pass
    return topic_id


def _records(
    image: MetadataImage, topic: CreatableTopic, topic_id: bytes, assignment: list[tuple[int, ...]]
) -> list[MetadataRecord]:
    """The topic, its configuration, its partitions."""
    records: list[MetadataRecord] = [TopicRecord(topic.name, topic_id)]
    records += [ConfigRecord(TOPIC_RESOURCE, topic.name, entry.name, entry.value) for entry in topic.configs]
    return records + partition_records(image, topic_id, assignment)


def partition_records(
    image: MetadataImage, topic_id: bytes, assignment: list[tuple[int, ...]], first_index: int = 0
) -> list[MetadataRecord]:
    """New partitions, numbered from `first_index`; the first ISR consists of all available replicas."""
    records: list[MetadataRecord] = []
    for index, replicas in enumerate(assignment, first_index):
        isr = [replica for replica in replicas if image.is_available(replica)]
        records.append(
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=list(replicas),
                isr=isr,
                leader=first_of(replicas, isr, image.is_available),
                leader_epoch=0,
                partition_epoch=0,
            )
        )
    return records


def _created(
    topic: CreatableTopic,
    topic_id: bytes,
    assignment: list[tuple[int, ...]],
    values: BrokerValues,
    image: MetadataImage,
) -> CreatableTopicResult:
    """The answer for a new topic, with its whole effective configuration (KIP-525)."""
    topic_configs = {entry.name: entry.value for entry in topic.configs if entry.value is not None}
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(assignment),
        replication_factor=len(assignment[0]),
        configs=[
            CreatableTopicConfigs(setting.name, setting.sources[0][1], config_source=setting.sources[0][2])
            for setting in values.of_topic(topic_configs, image.defaults)
        ],
    )


def delete_topics(
    image: MetadataImage, request: DeleteTopicsRequest, config: BrokerConfig
) -> tuple[list[MetadataRecord], DeleteTopicsResponse]:
    """The records that remove the topics that exist, and an answer for each topic."""
    records: list[MetadataRecord] = []
    response = DeleteTopicsResponse()
    removed: set[bytes] = set()
    for state in topics_to_delete(request):
        try:
            topic = _find(image, state)
            if topic.id in removed:
                raise ProtocolError(ErrorCode.INVALID_REQUEST, "the request names this topic more than once")
            check_deletion(topic.name, config)
        except ProtocolError as error:
            response.responses.append(deletion_refused(state, error))
            continue
        removed.add(topic.id)
        records.append(RemoveTopicRecord(topic.id))
        response.responses.append(DeletableTopicResult(topic.name, topic.id))
    return records, response


def topics_to_delete(request: DeleteTopicsRequest) -> list[DeleteTopicState]:
    """The topics of a request of any version."""
    return request.topics or [DeleteTopicState(name) for name in request.topic_names]


def deletion_refused(state: DeleteTopicState, error: ProtocolError) -> DeletableTopicResult:
    """The answer for a topic that is not deleted."""
    return DeletableTopicResult(state.name, state.topic_id, error.code, str(error))


def _find(image: MetadataImage, state: DeleteTopicState) -> TopicImage:
    if state.name is None:
        topic = image.topic_by_id(state.topic_id)
        if topic is None:
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {state.topic_id.hex()}")
        return topic
    if state.topic_id != NO_ID:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "a topic is given by its name or by its id, not by both")
    if state.name not in image.topics:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"unknown topic {state.name!r}")
    return image.topics[state.name]

"""CreatePartitions: adds partitions to a topic. Pure: from image and request to records and answer."""

from __future__ import annotations

import random
from collections import Counter
from typing import Final

from broker.controller.image import MetadataImage, TopicImage
from broker.controller.topics import (
    MAX_PARTITIONS_PER_REQUEST,
    automatic_assignment,
    check_replicas,
    partition_records,
)
from broker.coordinator.offsets_topic import OFFSETS_TOPIC
from broker.errors import ErrorCode, ProtocolError
from broker.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from broker.protocol.messages.metadata_records import MetadataRecord
from broker.tiered.remote_storage_rules import METADATA_TOPIC

ASSIGNED_BY_COUNT: Final = {OFFSETS_TOPIC: "groups", METADATA_TOPIC: "remote segments"}
"""Topics in which the partition of a record is a hash modulo the number of partitions. With another number, a group's
committed offsets, or the segments of a log, would not be found."""


def create_partitions(
    image: MetadataImage, request: CreatePartitionsRequest, rng: random.Random
) -> tuple[list[MetadataRecord], CreatePartitionsResponse]:
    """The records of the partitions that can be created, and an answer for each topic; no records for
    `validate_only`."""
    records: list[MetadataRecord] = []
    response = CreatePartitionsResponse()
    times = Counter(asked.name for asked in request.topics)
    for asked in request.topics:
        try:
            if times[asked.name] > 1:
                raise ProtocolError(ErrorCode.INVALID_REQUEST, "the request names this topic more than once")
            topic = image.topics.get(asked.name)
            if topic is None:
                raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"unknown topic {asked.name!r}")
            if asked.name in ASSIGNED_BY_COUNT:
                message = (
                    f"{asked.name} assigns {ASSIGNED_BY_COUNT[asked.name]} by the number of its partitions, which "
                )
                raise ProtocolError(ErrorCode.INVALID_PARTITIONS, f"{message}cannot change")
            assignment = _assignment(image, topic, asked, rng)
            if len(records) + len(assignment) > MAX_PARTITIONS_PER_REQUEST:
                limit = f"at most {MAX_PARTITIONS_PER_REQUEST} partitions are created by one request"
                raise ProtocolError(ErrorCode.POLICY_VIOLATION, limit)
        except ProtocolError as error:
            response.results.append(CreatePartitionsTopicResult(asked.name, error.code, str(error)))
            continue
        records += partition_records(image, topic.id, assignment, first=len(topic.partitions))
        response.results.append(CreatePartitionsTopicResult(asked.name))
    return [] if request.validate_only else records, response


def _assignment(
    image: MetadataImage, topic: TopicImage, asked: CreatePartitionsTopic, rng: random.Random
) -> list[tuple[int, ...]]:
    """The replicas of each new partition: as many as the first one has without those that a reassignment adds."""
    there = len(topic.partitions)
    more = asked.count - there
    if more < 1:
        message = f"topic {topic.name!r} has {there} partitions; {asked.count} would not be more"
        raise ProtocolError(ErrorCode.INVALID_PARTITIONS, message)
    first = topic.partitions[0]
    factor = len([replica for replica in first.replicas if replica not in first.adding])
    if not asked.assignments:
        return automatic_assignment(image, more, factor, rng)
    if len(asked.assignments) != more:
        message = f"{len(asked.assignments)} assignments for {more} more partitions"
        raise ProtocolError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    for index, entry in enumerate(asked.assignments, there):
        check_replicas(image, index, entry.broker_ids)
        if len(entry.broker_ids) != factor:
            message = f"partition {index}: the topic's partitions have {factor} replicas each"
            raise ProtocolError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    return [tuple(entry.broker_ids) for entry in asked.assignments]

"""AlterPartitionReassignments and ListPartitionReassignments (KIP-455). Pure: an image and a request in.

During a reassignment a partition has its old and new replicas; `adding` and `removing` name the difference. It is
complete when every added replica is in the ISR. As in Apache Kafka, a leader that stays has a new leader epoch only if
a replica is removed: fetches of a removed replica must not count. A replica that is added starts within the epoch.
"""

from __future__ import annotations

from dataclasses import replace

from broker.controller.eligibility import IsrMembership, first_of
from broker.controller.image import MetadataImage, PartitionImage, TopicImage
from broker.controller.partition_elections import Elections
from broker.controller.topics import check_replicas
from broker.errors import ErrorCode, ProtocolError
from broker.protocol.messages.metadata_records import NO_LEADER, NO_LEADER_CHANGE, PartitionChangeRecord
from broker.protocol.messages.partition_apis import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


def alter_reassignments(
    image: MetadataImage, request: AlterPartitionReassignmentsRequest, elections: Elections
) -> tuple[list[PartitionChangeRecord], AlterPartitionReassignmentsResponse]:
    """The records that start, complete or cancel reassignments, and an answer for each partition."""
    records: list[PartitionChangeRecord] = []
    response = AlterPartitionReassignmentsResponse(
        error_message=None, allow_replication_factor_change=request.allow_replication_factor_change
    )
    seen: set[tuple[str, int]] = set()
    for asked in request.topics:
        result = ReassignableTopicResponse(asked.name)
        response.responses.append(result)
        for entry in asked.partitions:
            answer = ReassignablePartitionResponse(entry.partition_index, error_message=None)
            result.partitions.append(answer)
            try:
                if (asked.name, entry.partition_index) in seen:
                    raise ProtocolError(ErrorCode.INVALID_REQUEST, "the request names this partition more than once")
                seen.add((asked.name, entry.partition_index))
                topic, partition = _found(image, asked.name, entry.partition_index)
                record = _reassigned(image, topic, partition, entry, request.allow_replication_factor_change, elections)
            except ProtocolError as error:
                answer.error_code, answer.error_message = error.code, str(error)
                continue
            if record is not None:
                records.append(record)
    return records, response


def list_reassignments(
    image: MetadataImage, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """The partitions in reassignment, among the requested ones (None: among all)."""
    wanted = None if request.topics is None else {it.name: set(it.partition_indexes) for it in request.topics}
    response = ListPartitionReassignmentsResponse(error_message=None)
    for topic in image.topics.values():
        if wanted is not None and topic.name not in wanted:
            continue
        moving = [
            OngoingPartitionReassignment(
                index, list(partition.replicas), list(partition.adding), list(partition.removing)
            )
            for index, partition in sorted(topic.partitions.items())
            if (partition.adding or partition.removing) and (wanted is None or index in wanted[topic.name])
        ]
        if moving:
            response.topics.append(OngoingTopicReassignment(topic.name, moving))
    return response


def completed(
    image: MetadataImage,
    topic: TopicImage,
    index: int,
    partition: PartitionImage,
    members: IsrMembership,
    elections: Elections,
) -> PartitionChangeRecord | None:
    """The completion of a reassignment when the ISR of `members` has every added replica; None before."""
    record = _completion(image, topic, index, partition, members, elections)
    return None if record is None else _in_same_epoch_if_possible(partition, record)


def _completion(
    image: MetadataImage,
    topic: TopicImage,
    index: int,
    partition: PartitionImage,
    members: IsrMembership,
    elections: Elections,
) -> PartitionChangeRecord | None:
    """As `completed`; the record names the leader. A removed replica loses its eligibility (KIP-966)."""
    if not (partition.adding or partition.removing) or not set(partition.adding) <= set(members.isr):
        return None
    replicas = [replica for replica in partition.replicas if replica not in partition.removing]
    remaining = [member for member in members.isr if member in replicas]
    order = elections.in_order(topic, index, replicas, remaining)
    leader = partition.leader if partition.leader in remaining else first_of(order, remaining, image.is_available)
    if not remaining or leader == NO_LEADER:
        return None
    return PartitionChangeRecord(
        index,
        topic.id,
        isr=remaining,
        leader=elections.successor(image, (topic.name, index), partition.leader, leader),
        replicas=replicas,
        removing_replicas=[],
        adding_replicas=[],
        eligible_leader_replicas=[replica for replica in members.elr if replica in replicas],
        last_known_elr=[replica for replica in members.last_known_elr if replica in replicas],
    )


def _in_same_epoch_if_possible(partition: PartitionImage, record: PartitionChangeRecord) -> PartitionChangeRecord:
    """The record without its leader, which would start a new epoch, if the leader and all replicas of `partition`
    stay."""
    assert record.replicas is not None
    if record.leader == partition.leader and set(partition.replicas) <= set(record.replicas):
        record.leader = NO_LEADER_CHANGE
    return record


def _found(image: MetadataImage, name: str, index: int) -> tuple[TopicImage, PartitionImage]:
    topic = image.topics.get(name)
    partition = None if topic is None else topic.partitions.get(index)
    if topic is None or partition is None:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"unknown partition {name}-{index}")
    return topic, partition


def _reassigned(
    image: MetadataImage,
    topic: TopicImage,
    partition: PartitionImage,
    entry: ReassignablePartition,
    may_change_factor: bool,
    elections: Elections,
) -> PartitionChangeRecord | None:
    """The record that starts or cancels a reassignment; None if the partition is as requested."""
    before = tuple(replica for replica in partition.replicas if replica not in partition.adding)
    if entry.replicas is None:
        if not (partition.adding or partition.removing):
            raise ProtocolError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "this partition is not being reassigned")
        target = before
    else:
        target = tuple(entry.replicas)
        check_replicas(image, entry.partition_index, list(target))
        if not may_change_factor and len(target) != len(before):
            message = f"{len(target)} replicas instead of {len(before)}, which the request does not allow"
            raise ProtocolError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    if target == partition.replicas and not (partition.adding or partition.removing):
        return None
    wanted = _on_the_way(partition, before, target)
    members = IsrMembership(wanted.isr, wanted.elr, wanted.last_known_elr)
    finished = _completion(image, topic, entry.partition_index, wanted, members, elections)
    if finished is not None:
        return _in_same_epoch_if_possible(partition, finished)
    if not wanted.isr:
        raise ProtocolError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no replica in sync would be left")
    leader = wanted.leader
    if leader not in wanted.isr:  # refusals are not possible from here on: the handover has started
        order = elections.in_order(topic, entry.partition_index, wanted.replicas, wanted.isr)
        successor = first_of(order, wanted.isr, image.is_available)
        leader = elections.successor(image, (topic.name, entry.partition_index), leader, successor)
    record = PartitionChangeRecord(
        entry.partition_index,
        topic.id,
        isr=list(wanted.isr),
        leader=leader,
        replicas=list(wanted.replicas),
        removing_replicas=list(wanted.removing),
        adding_replicas=list(wanted.adding),
        eligible_leader_replicas=list(wanted.elr),
        last_known_elr=list(wanted.last_known_elr),
    )
    return _in_same_epoch_if_possible(partition, record)


def _on_the_way(partition: PartitionImage, before: tuple[int, ...], target: tuple[int, ...]) -> PartitionImage:
    """The partition with its old and new replicas. Replicas that an earlier reassignment added, and that this one does
    not want, are removed at once."""
    adding = tuple(replica for replica in target if replica not in before)
    removing = tuple(replica for replica in before if replica not in target)
    replicas = target + removing
    return replace(
        partition,
        isr=tuple(member for member in partition.isr if member in replicas),
        elr=tuple(member for member in partition.elr if member in replicas),
        last_known_elr=tuple(member for member in partition.last_known_elr if member in replicas),
        replicas=replicas,
        adding=adding,
        removing=removing,
    )

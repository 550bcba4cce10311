"""AlterPartition: decides which ISR a leader may have (KIP-497, KIP-841, KIP-903). Pure: takes image and request."""

from __future__ import annotations

from dataclasses import replace

from broker.controller.eligibility import RECOVERED, change_record
from broker.controller.image import MetadataImage, PartitionImage
from broker.controller.partition_elections import Elections
from broker.controller.reassignments import completed
from broker.errors import ErrorCode
from broker.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    PartitionResult,
    TopicData,
    TopicResult,
)
from broker.protocol.messages.metadata_records import PartitionChangeRecord

FIRST_VERSION_WITH_EPOCHS = 3


def alter_partitions(
    image: MetadataImage, request: AlterPartitionRequest, version: int, elections: Elections
) -> tuple[list[PartitionChangeRecord], AlterPartitionResponse]:
    """The changes that are granted or that make a refusal final, and the answer after their commit.

    The sender must be registered in the epoch that it claims. The answer has the resulting state of each partition, or
    the reason for its refusal.
    """
    broker = image.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        return [], AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    records: list[PartitionChangeRecord] = []
    response = AlterPartitionResponse()
    for topic_data in request.topics:
        result = TopicResult(topic_data.topic_id)
        response.topics.append(result)
        for data in topic_data.partitions:
            result.partitions.append(_alter(image, request.broker_id, topic_data, data, version, elections, records))
    return records, response


def _alter(
    image: MetadataImage,
    sender: int,
    topic_data: TopicData,
    data: PartitionData,
    version: int,
    elections: Elections,
    records: list[PartitionChangeRecord],
) -> PartitionResult:
    """The result for one partition; the record of a granted change, or of a final refusal, is appended to `records`."""
    index, topic_id = data.partition_index, topic_data.topic_id
    topic = image.topic_by_id(topic_id)
    if topic is None:
        return PartitionResult(index, ErrorCode.UNKNOWN_TOPIC_ID)
    partition = topic.partitions.get(index)
    if partition is None:
        return PartitionResult(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if any(record.topic_id == topic_id and record.partition_id == index for record in records):
        # The first proposal of the request has changed the state that a second one would be checked against.
        return PartitionResult(index, ErrorCode.INVALID_REQUEST)
    members = _wanted(data, version)
    error = refusal(image, partition, sender, data, members, elections)
    if error is ErrorCode.INELIGIBLE_REPLICA:
        # A replica may become eligible without a change of the partition. After this answer the leader no longer counts
        # it, so a delayed copy of the proposal must meet another partition epoch.
        records.append(PartitionChangeRecord(index, topic_id))
    if error is not ErrorCode.NONE:
        return PartitionResult(index, error)
    isr = tuple(member.broker_id for member in members)
    if set(isr) == set(partition.isr):
        isr = partition.isr
    after = elections.membership(topic, partition, isr)
    if partition.recovering and data.leader_recovery_state == RECOVERED:
        # The leader's log is on disk: from now on it defines the content of the partition.
        after = replace(after, last_known_elr=())
    record = change_record(topic_id, index, partition, after, recovery=data.leader_recovery_state)
    if isr != partition.isr and (end := completed(image, topic, index, partition, after, elections)) is not None:
        record = end  # the last added replica is in sync: the reassignment is complete
    if record is not None:
        records.append(record)
        partition = partition.changed(record)
    return _state(index, partition)


def refusal(
    image: MetadataImage,
    partition: PartitionImage,
    sender: int,
    data: PartitionData,
    members: list[BrokerState],
    mutated: Elections,
) -> ErrorCode:
    """Why a proposed ISR is refused; NONE if it is granted. The order of the checks is that of Apache Kafka.

    `mutated`: carries the mutants of these checks.
    """
    if data.leader_epoch > partition.leader_epoch or data.partition_epoch > partition.partition_epoch:
        # The leader has seen more of the log than this controller: another controller must be active.
        return ErrorCode.NOT_CONTROLLER
    if data.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if sender != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if data.partition_epoch < partition.partition_epoch and not mutated.takes_stale_partition_epochs:
        return ErrorCode.INVALID_UPDATE_VERSION
    ids = [member.broker_id for member in members]
    if len(set(ids)) != len(ids) or not set(ids) <= set(partition.replicas) or partition.leader not in ids:
        return ErrorCode.INVALID_REQUEST
    if data.leader_recovery_state and not partition.recovering:
        return ErrorCode.INVALID_REQUEST
    if data.leader_recovery_state and len(ids) > 1 and not mutated.isr_grows_while_recovering:
        return ErrorCode.INVALID_REQUEST
    if not all(_eligible(image, member, mutated) for member in members):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _eligible(image: MetadataImage, member: BrokerState, mutated: Elections) -> bool:
    """Whether a broker may be in an ISR: available (H14), and the same process whose log the leader has seen (H15)."""
    broker = image.brokers.get(member.broker_id)
    if broker is None:
        return False
    same = member.broker_epoch in (-1, broker.epoch) or mutated.takes_stale_broker_epochs
    return same and (not broker.fenced or mutated.takes_fenced)


def _wanted(data: PartitionData, version: int) -> list[BrokerState]:
    if version >= FIRST_VERSION_WITH_EPOCHS:
        return data.new_isr_with_epochs
    return [BrokerState(broker_id) for broker_id in data.new_isr]


def _state(index: int, partition: PartitionImage) -> PartitionResult:
    return PartitionResult(
        partition_index=index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        leader_recovery_state=int(partition.recovering),
        partition_epoch=partition.partition_epoch,
    )

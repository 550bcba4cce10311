"""Converts a metadata image to the records that produce it: the content of a snapshot. Pure."""

from collections.abc import Iterator

from broker.controller.image import BrokerImage, MetadataImage, PartitionImage
from broker.protocol.messages.metadata_records import (
    ALL_BROKERS,
    BROKER_RESOURCE,
    CLUSTER_ID,
    SESSION_TIMEOUT,
    TOPIC_RESOURCE,
    AccessControlEntryRecord,
    BrokerEndpoint,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from broker.security.acls import Acl

NOT_STATED = -1
"""The record of producer ids in a snapshot names no broker and no epoch, only the end of the allocated ids."""


def records_of(image: MetadataImage) -> Iterator[MetadataRecord]:
    """The records; `MetadataImage.restore` rebuilds the image from them."""
    if image.cluster_id is not None:
        yield ConfigRecord(BROKER_RESOURCE, ALL_BROKERS, CLUSTER_ID, image.cluster_id)
    if image.session_timeout_ms:
        yield ConfigRecord(BROKER_RESOURCE, ALL_BROKERS, SESSION_TIMEOUT, str(image.session_timeout_ms))
    for name, value in image.defaults.items():  # before all partitions: a later change would empty their ELRs
        yield ConfigRecord(BROKER_RESOURCE, ALL_BROKERS, name, value)
    if image.next_producer_id:
        yield ProducerIdsRecord(NOT_STATED, NOT_STATED, image.next_producer_id)
    for acl_id, acl in image.acls.items():
        yield acl_record(acl_id, acl)
    for (user, mechanism), credential in image.scram.items():
        yield UserScramCredentialRecord(
            user, mechanism, credential.salt, credential.stored_key, credential.server_key, credential.iterations
        )
    for _, broker in sorted(image.brokers.items()):
        yield _registration(broker)
    for topic in image.topics.values():
        yield TopicRecord(topic.name, topic.id)
        for name, value in topic.configs.items():
            yield ConfigRecord(TOPIC_RESOURCE, topic.name, name, value)
        for index, partition in topic.partitions.items():
            yield _partition(topic.id, index, partition)


def acl_record(acl_id: bytes, acl: Acl) -> AccessControlEntryRecord:
    """The record that adds a rule."""
    return AccessControlEntryRecord(
        acl_id,
        acl.resource_type,
        acl.name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission,
    )


def _registration(broker: BrokerImage) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker.id,
        incarnation_id=broker.incarnation,
        broker_epoch=broker.epoch,
        end_points=[
            BrokerEndpoint(endpoint.name, endpoint.host, endpoint.port, endpoint.protocol)
            for endpoint in broker.endpoints
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        log_dirs=list(broker.directories),
    )


def _partition(topic_id: bytes, index: int, partition: PartitionImage) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing),
        adding_replicas=list(partition.adding),
        leader=partition.leader,
        leader_recovery_state=int(partition.recovering),
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        eligible_leader_replicas=list(partition.elr) or None,
        last_known_elr=list(partition.last_known_elr) or None,
    )

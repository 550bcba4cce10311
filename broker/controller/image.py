"""The metadata image: the state that the committed metadata log describes (brokers, topics, partitions,
configurations).

Every node applies the same records in the same order to its own image. Brokers and partitions are immutable and are
replaced, so references to them stay valid. Only the image changes its maps.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from broker.config import BrokerConfig
from broker.listeners import ListenerEndpoint, SecurityProtocol
from broker.properties import MAX_INT64, is_number, shown
from broker.protocol.messages.metadata_records import (
    ALL_BROKERS,
    BROKER_RESOURCE,
    CLUSTER_ID,
    NO_LEADER_CHANGE,
    NO_RECOVERY_CHANGE,
    OWN_OFFSET,
    SESSION_TIMEOUT,
    TOPIC_RESOURCE,
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
    decode_record,
)
from broker.security.acls import Acl, AclOperation, PatternType, Permission, ResourceType
from broker.security.scram import ScramCredential, ScramMechanism
from broker.topic_settings import CLUSTER_WIDE, MIN_INSYNC_REPLICAS, TopicSettings, is_for_all_brokers


class MetadataImageError(ValueError):
    """A committed record that does not fit the records before it: the log or this program is broken."""


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """A registered broker. `epoch` is the offset of its registration, `incarnation` the id of its process (H12).

    `endpoints`: its addresses for clients and other brokers. `lost_at`: the offset of the record by which it last lost
    its leaderships, its registration or a fencing. `directories`: the ids of its log directories; they distinguish a
    restarted process from another one with the same broker id.
    """

    id: int
    epoch: int
    incarnation: bytes
    endpoints: tuple[ListenerEndpoint, ...]
    fenced: bool
    rack: str | None = None
    lost_at: int = -1
    directories: tuple[bytes, ...] = ()

    def endpoint(self, listener: str) -> ListenerEndpoint | None:
        """The address of the listener with this name; None if the broker has no such listener."""
        return next((endpoint for endpoint in self.endpoints if endpoint.name == listener), None)


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """One partition; `replicas` in the order of the assignment, `leader` -1 without a leader.

    For `elr` and `last_known_elr` see `eligibility`. `recovering`: the leader was elected uncleanly and does not serve
    yet (KIP-704).
    """

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    recovering: bool = False
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    def changed(self, record: PartitionChangeRecord) -> "PartitionImage":
        """This partition after a change: the partition epoch rises, and the leader epoch when the record names a
        leader."""
        names_leader = record.leader != NO_LEADER_CHANGE
        recovery = record.leader_recovery_state
        elr, last_known = record.eligible_leader_replicas, record.last_known_elr
        return PartitionImage(
            leader=record.leader if names_leader else self.leader,
            leader_epoch=self.leader_epoch + names_leader,
            partition_epoch=self.partition_epoch + 1,
            isr=self.isr if record.isr is None else tuple(record.isr),
            replicas=self.replicas if record.replicas is None else tuple(record.replicas),
            recovering=self.recovering if recovery == NO_RECOVERY_CHANGE else bool(recovery),
            adding=self.adding if record.adding_replicas is None else tuple(record.adding_replicas),
            removing=self.removing if record.removing_replicas is None else tuple(record.removing_replicas),
            elr=self.elr if elr is None else tuple(elr),
            last_known_elr=self.last_known_elr if last_known is None else tuple(last_known),
        )


@dataclass(slots=True)
class TopicImage:
    """A topic; `partitions` by number, `configs` for this topic alone, `defaults` for all topics."""

    name: str
    id: bytes
    partitions: dict[int, PartitionImage] = field(default_factory=dict)
    configs: dict[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)

    def settings(self, broker: BrokerConfig) -> TopicSettings:
        """The settings of its partitions: the topic's own, else those for all topics, else those of the broker's
        file."""
        return TopicSettings.of({**self.defaults, **self.configs}, broker)


@dataclass(slots=True)
class Changes:
    """What some records changed. A partition that is in here but not in the image was deleted."""

    partitions: set[tuple[str, int]] = field(default_factory=set)
    brokers: set[int] = field(default_factory=set)
    acls: bool = False

    def add(self, changes: "Changes") -> None:
        self.acls = self.acls or changes.acls
        self.partitions |= changes.partitions
        self.brokers |= changes.brokers


class MetadataImage:
    """The state of the metadata log up to and including `offset` (-1: nothing was applied yet)."""

    def __init__(self) -> None:
        self.offset = -1
        self.cluster_id: str | None = None
        self.brokers: dict[int, BrokerImage] = {}
        self.topics: dict[str, TopicImage] = {}
        self.defaults: dict[str, str] = {}
        """The `CLUSTER_WIDE` settings for topics without their own. Each broker takes a missing one, as in a log from
        before such records existed, from its own file."""
        self.session_timeout_ms = 0
        """No lease of any controller so far lasts longer than this after that controller last proved that it led. 0:
        unknown, as in a log from before such records existed."""
        self.next_producer_id = 0
        self.acls: dict[bytes, Acl] = {}
        """By id."""
        self.scram: dict[tuple[str, ScramMechanism], ScramCredential] = {}
        self._names: dict[bytes, str] = {}
        self.removed_topics: set[bytes] = set()
        """The ids of deleted topics. Only their data may be removed from disks. (A snapshot does not contain them.)"""

    # --- queries

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        name = self._names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        topic_image = self.topics.get(topic)
        return None if topic_image is None else topic_image.partitions.get(index)

    def partitions(self) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
        """All partitions, in an order that is the same on every node."""
        for topic in self.topics.values():
            for index, partition in topic.partitions.items():
                yield topic, index, partition

    def is_available(self, broker_id: int) -> bool:
        """Whether a broker is registered and not fenced, so that it may lead and be in an ISR (H14)."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def configs(self, topic: str) -> Mapping[str, str]:
        """The settings of a topic alone; empty for an unknown topic."""
        topic_image = self.topics.get(topic)
        return {} if topic_image is None else topic_image.configs

    # --- changes

    def apply_committed(self, base_offset: int, records: Sequence[bytes]) -> Changes:
        """Apply one committed batch. Raises `DecodeError` and `MetadataImageError` for an invalid log."""
        changes = Changes()
        for offset, data in enumerate(records, base_offset):
            changes.add(self.apply(decode_record(data), offset))
        return changes

    def restore(self, end_offset: int, records: Sequence[bytes]) -> Changes:
        """Replace everything by the content of a snapshot of all records below `end_offset`. Raises as
        `apply_committed`.

        A snapshot does not contain when a broker lost its leaderships. The snapshot's end is assumed, which is safe.
        """
        changes = Changes({(topic.name, index) for topic, index, _ in self.partitions()}, set(self.brokers), acls=True)
        self.cluster_id = None
        self.session_timeout_ms = 0
        self.next_producer_id = 0
        old_ids = set(self._names)
        for everything in (self.brokers, self.topics, self.defaults, self._names, self.acls, self.scram):
            everything.clear()
        self.offset = end_offset - 1
        for data in records:
            changes.add(self._apply(decode_record(data), self.offset))
        self.removed_topics |= old_ids - self._names.keys()
        return changes

    def apply(self, record: MetadataRecord, offset: int) -> Changes:
        """Apply one committed record, whose offset is above all applied ones. Raises `MetadataImageError`."""
        if offset <= self.offset:
            raise MetadataImageError(f"offset {offset} was applied before: the image is at {self.offset}")
        changes = self._apply(record, offset)
        self.offset = offset
        return changes

    def _apply(self, record: MetadataRecord, offset: int) -> Changes:
        match record:
            case PartitionChangeRecord():
                topic = self._topic(record.topic_id, offset)
                if record.partition_id not in topic.partitions:
                    raise MetadataImageError(f"offset {offset}: {topic.name} has no partition {record.partition_id}")
                topic.partitions[record.partition_id] = topic.partitions[record.partition_id].changed(record)
                return Changes(partitions={(topic.name, record.partition_id)})
            case PartitionRecord():
                return self._create_partition(record, offset)
            case BrokerRegistrationChangeRecord():
                return self._change_broker(record, offset)
            case RegisterBrokerRecord():
                return self._register(record, offset)
            case TopicRecord():
                self.topics[record.name] = TopicImage(record.name, record.topic_id, defaults=self.defaults)
                self._names[record.topic_id] = record.name
            case RemoveTopicRecord():
                topic = self._topic(record.topic_id, offset)
                del self.topics[topic.name], self._names[topic.id]
                self.removed_topics.add(topic.id)
                return Changes(partitions={(topic.name, index) for index in topic.partitions})
            case ConfigRecord():
                return self._configure(record, offset)
            case ProducerIdsRecord():
                if record.next_producer_id <= self.next_producer_id:
                    raise MetadataImageError(f"offset {offset}: producer ids fall to {record.next_producer_id}")
                self.next_producer_id = record.next_producer_id
            case AccessControlEntryRecord():
                self.acls[record.id] = acl_of(record)
                return Changes(acls=True)
            case RemoveAccessControlEntryRecord():
                if self.acls.pop(record.id, None) is None:
                    raise MetadataImageError(f"offset {offset}: no access control entry {record.id.hex()} exists")
                return Changes(acls=True)
            case UserScramCredentialRecord():
                credential = ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations)
                self.scram[record.name, ScramMechanism(record.mechanism)] = credential
            case RemoveUserScramCredentialRecord():
                if self.scram.pop((record.name, ScramMechanism(record.mechanism)), None) is None:
                    raise MetadataImageError(
                        f"offset {offset}: {record.name!r} has no credential of {record.mechanism}"
                    )
            case NoOpRecord():
                pass
        return Changes()

    def _topic(self, topic_id: bytes, offset: int) -> TopicImage:
        topic = self.topic_by_id(topic_id)
        if topic is None:
            raise MetadataImageError(f"offset {offset}: unknown topic {topic_id.hex()}")
        return topic

    def _create_partition(self, record: PartitionRecord, offset: int) -> Changes:
        topic = self._topic(record.topic_id, offset)
        topic.partitions[record.partition_id] = PartitionImage(
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            isr=tuple(record.isr),
            replicas=tuple(record.replicas),
            recovering=bool(record.leader_recovery_state),
            adding=tuple(record.adding_replicas),
            removing=tuple(record.removing_replicas),
            elr=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
        )
        return Changes(partitions={(topic.name, record.partition_id)})

    def _register(self, record: RegisterBrokerRecord, offset: int) -> Changes:
        if not record.end_points:
            raise MetadataImageError(f"offset {offset}: broker {record.broker_id} registered without an endpoint")
        old_broker = self.brokers.get(record.broker_id)
        lost_at = offset if old_broker is None or record.broker_epoch == OWN_OFFSET else old_broker.lost_at
        self.brokers[record.broker_id] = BrokerImage(
            id=record.broker_id,
            epoch=offset if record.broker_epoch == OWN_OFFSET else record.broker_epoch,
            incarnation=record.incarnation_id,
            endpoints=tuple(
                ListenerEndpoint(
                    endpoint.name, endpoint.host, endpoint.port, SecurityProtocol(endpoint.security_protocol)
                )
                for endpoint in record.end_points
            ),
            fenced=record.fenced,
            rack=record.rack,
            lost_at=lost_at,
            directories=tuple(record.log_dirs),
        )
        return Changes(brokers={record.broker_id})

    def _change_broker(self, record: BrokerRegistrationChangeRecord, offset: int) -> Changes:
        broker = self.brokers.get(record.broker_id)
        if broker is None or broker.epoch != record.broker_epoch:
            raise MetadataImageError(f"offset {offset}: broker {record.broker_id} has no epoch {record.broker_epoch}")
        if record.fenced:
            fenced = record.fenced > 0
            self.brokers[broker.id] = replace(broker, fenced=fenced, lost_at=offset if fenced else broker.lost_at)
        return Changes(brokers={broker.id})

    def _configure(self, record: ConfigRecord, offset: int) -> Changes:
        if (record.resource_type, record.resource_name) == (BROKER_RESOURCE, ALL_BROKERS):
            return self._configure_all(record, offset)
        topic = self.topics.get(record.resource_name)
        if record.resource_type != TOPIC_RESOURCE or topic is None:
            raise MetadataImageError(f"offset {offset}: unknown topic {record.resource_name!r} in a configuration")
        _set(topic.configs, record)
        return _reconfigured(topic, record.name)

    def _configure_all(self, record: ConfigRecord, offset: int) -> Changes:
        """Set a cluster-wide default. Topics with their own setting do not change."""
        changes = Changes()
        if record.name == CLUSTER_ID:
            self.cluster_id = record.value
            return changes
        if record.name == SESSION_TIMEOUT:
            if record.value is None or not is_number(record.value, MAX_INT64):
                raise MetadataImageError(f"offset {offset}: {record.name} is {shown(record.value or '')}, not a time")
            self.session_timeout_ms = int(record.value)
            return changes
        if not is_for_all_brokers(record.name):
            raise MetadataImageError(f"offset {offset}: {record.name} does not apply to all brokers")
        _set(self.defaults, record)
        for topic in self.topics.values() if record.name in CLUSTER_WIDE else ():
            if record.name not in topic.configs:
                changes.add(_reconfigured(topic, record.name))
        return changes


def _set(configs: dict[str, str], record: ConfigRecord) -> None:
    if record.value is None:
        configs.pop(record.name, None)
    else:
        configs[record.name] = record.value


def _reconfigured(topic: TopicImage, name: str) -> Changes:
    """The changes in a topic when a key gets another value, its own or the cluster's."""
    if name == MIN_INSYNC_REPLICAS:
        # With a lower number, more may be committed without the replicas outside the ISR (KIP-966).
        for index, partition in topic.partitions.items():
            if partition.isr:
                topic.partitions[index] = replace(partition, elr=(), last_known_elr=())
    return Changes(partitions={(topic.name, index) for index in topic.partitions})


def acl_of(record: AccessControlEntryRecord) -> Acl:
    """The rule that a record adds. Raises `ValueError` for undefined numbers."""
    return Acl(
        ResourceType(record.resource_type),
        record.resource_name or "",
        PatternType(record.pattern_type),
        record.principal or "",
        record.host or "",
        AclOperation(record.operation),
        Permission(record.permission_type),
    )

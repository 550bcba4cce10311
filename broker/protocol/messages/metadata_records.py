"""The records of the metadata log and their framing: frame version, record type, record version, body.

Names, types and versions are Apache Kafka's (KRaft). Each class declares the fields that this broker uses or must
carry. The cluster id, which the first leader writes as a record (K595-46), is a setting of all brokers: Kafka has no
record type for it, and Kafka's tools must be able to read the log. The longest lease of a controller
(`SESSION_TIMEOUT`) is such a setting, too. So is the cluster's `min.insync.replicas`, as in Kafka (KIP-966). Kafka's
ClearElrRecord, which follows a change of that setting, is not written: applying the change ends the ELRs.
"""

from typing import Annotated

from broker.protocol.codec import DecodeError, decode_exactly, encode
from broker.protocol.decoder import read_uvarint
from broker.protocol.encoder import uvarint
from broker.protocol.schema import (
    NO_ID,
    Bool,
    Bytes,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    SecretMessage,
    String,
    Tag,
    UInt16,
    Uuid,
    v,
)

FRAME_VERSION = 1
NO_LEADER = -1
NO_LEADER_CHANGE = -2
NO_RECOVERY_CHANGE = -1
OWN_OFFSET = -1
"""In `RegisterBrokerRecord.broker_epoch`: the epoch is the offset of the record itself."""
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
ALL_BROKERS = ""
"""The name of the resource that stands for all brokers."""
CLUSTER_ID = "cluster.id"
SESSION_TIMEOUT = "broker.session.timeout.ms"
"""A setting of all brokers: how long after the last proof of its leadership a controller's lease lasts at most."""


class BrokerEndpoint(Message):
    name: String = ""
    host: String = ""
    port: UInt16 = 0
    security_protocol: Int16 = 0


class BrokerFeature(Message):
    name: String = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class KRaftRecord(Message):
    """A record of the metadata log. Every version is flexible; there is one, unless a record's class names others."""

    VERSIONS = v("0")
    FLEXIBLE = v("0+")


class RegisterBrokerRecord(KRaftRecord):
    """A broker's process has registered. Its epoch is this record's own offset when `broker_epoch` is OWN_OFFSET."""

    VERSIONS = v("0-3")

    broker_id: Int32 = 0
    is_migrating_zk_broker: Annotated[Bool, v("2+")] = False
    incarnation_id: Uuid = NO_ID
    broker_epoch: Int64 = 0
    end_points: list[BrokerEndpoint] = []
    features: list[BrokerFeature] = []
    rack: String | None = None
    fenced: Bool = True
    in_controlled_shutdown: Annotated[Bool, v("1+")] = False
    log_dirs: Annotated[list[Uuid], v("3+"), Tag(0)] = []


class BrokerRegistrationChangeRecord(KRaftRecord):
    """`fenced` is -1 when the broker became unfenced, 1 when it was fenced, 0 when that did not change."""

    VERSIONS = v("0-2")

    broker_id: Int32 = 0
    broker_epoch: Int64 = 0
    fenced: Annotated[Int8, Tag(0)] = 0
    in_controlled_shutdown: Annotated[Int8, v("1+"), Tag(1)] = 0
    log_dirs: Annotated[list[Uuid], v("2+"), Tag(2)] = []


class TopicRecord(KRaftRecord):
    name: String = ""
    topic_id: Uuid = NO_ID


class PartitionRecord(KRaftRecord):
    VERSIONS = v("0-2")

    partition_id: Int32 = -1
    topic_id: Uuid = NO_ID
    replicas: list[Int32] = []
    isr: list[Int32] = []
    removing_replicas: list[Int32] = []
    adding_replicas: list[Int32] = []
    leader: Int32 = NO_LEADER
    leader_recovery_state: Annotated[Int8, Tag(0)] = 0
    leader_epoch: Int32 = -1
    partition_epoch: Int32 = -1
    directories: Annotated[list[Uuid], v("1+")] = []
    eligible_leader_replicas: Annotated[list[Int32] | None, v("2+"), Tag(1)] = None
    last_known_elr: Annotated[list[Int32] | None, v("2+"), Tag(2)] = None


class PartitionChangeRecord(KRaftRecord):
    """A change of a partition. None, -2 (leader) and -1 (recovery state) mean "unchanged".

    Applying it raises the partition epoch; also the leader epoch when `leader` is given, even if it is the same.
    """

    VERSIONS = v("0-2")

    partition_id: Int32 = -1
    topic_id: Uuid = NO_ID
    isr: Annotated[list[Int32] | None, Tag(0)] = None
    leader: Annotated[Int32, Tag(1)] = NO_LEADER_CHANGE
    replicas: Annotated[list[Int32] | None, Tag(2)] = None
    removing_replicas: Annotated[list[Int32] | None, Tag(3)] = None
    adding_replicas: Annotated[list[Int32] | None, Tag(4)] = None
    leader_recovery_state: Annotated[Int8, Tag(5)] = NO_RECOVERY_CHANGE
    eligible_leader_replicas: Annotated[list[Int32] | None, v("2+"), Tag(6)] = None
    last_known_elr: Annotated[list[Int32] | None, v("2+"), Tag(7)] = None
    directories: Annotated[list[Uuid] | None, v("1+"), Tag(8)] = None


class RemoveTopicRecord(KRaftRecord):
    topic_id: Uuid = NO_ID


class ConfigRecord(KRaftRecord):
    """A configuration value; None removes the key."""

    resource_type: Int8 = 0
    resource_name: String = ""
    name: String = ""
    value: String | None = ""


class ProducerIdsRecord(KRaftRecord):
    """A broker was assigned a block of producer ids; `next_producer_id` is the first id after the block."""

    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    next_producer_id: Int64 = 0


class UserScramCredentialRecord(KRaftRecord, SecretMessage):
    """The verifier of a user's SCRAM password (KIP-554). It is not the password, but allows to test guesses of it."""

    name: String = ""
    mechanism: Int8 = 0
    salt: Bytes = b""
    stored_key: Bytes = b""
    server_key: Bytes = b""
    iterations: Int32 = 0


class RemoveUserScramCredentialRecord(KRaftRecord):
    name: String = ""
    mechanism: Int8 = 0


class AccessControlEntryRecord(KRaftRecord):
    id: Uuid = NO_ID
    resource_type: Int8 = 0
    resource_name: String | None = None
    pattern_type: Int8 = 0
    principal: String | None = None
    host: String | None = None
    operation: Int8 = 0
    permission_type: Int8 = 0


class RemoveAccessControlEntryRecord(KRaftRecord):
    id: Uuid = NO_ID


class NoOpRecord(KRaftRecord):
    """Changes nothing; its commit proves that its writer was still the leader."""


MetadataRecord = (
    RegisterBrokerRecord
    | BrokerRegistrationChangeRecord
    | TopicRecord
    | PartitionRecord
    | PartitionChangeRecord
    | RemoveTopicRecord
    | ConfigRecord
    | UserScramCredentialRecord
    | ProducerIdsRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | RemoveUserScramCredentialRecord
    | NoOpRecord
)

RECORD_TYPES: dict[int, type[MetadataRecord]] = {
    0: RegisterBrokerRecord,
    2: TopicRecord,
    3: PartitionRecord,
    4: ConfigRecord,
    5: PartitionChangeRecord,
    9: RemoveTopicRecord,
    11: UserScramCredentialRecord,
    15: ProducerIdsRecord,
    17: BrokerRegistrationChangeRecord,
    18: AccessControlEntryRecord,
    19: RemoveAccessControlEntryRecord,
    20: NoOpRecord,
    22: RemoveUserScramCredentialRecord,
}
_TYPES: dict[type[Message], int] = {cls: number for number, cls in RECORD_TYPES.items()}


def encode_record(record: MetadataRecord) -> bytes:
    """A framed record, at the newest version. Raises `EncodeError`."""
    version = type(record).VERSIONS.high
    out = bytearray(uvarint(FRAME_VERSION) + uvarint(_TYPES[type(record)]) + uvarint(version))
    encode(record, version, out)
    return bytes(out)


def decode_record(data: bytes) -> MetadataRecord:
    """The record in a frame. Raises `DecodeError`, also for an unknown type or version."""
    try:
        frame, position = read_uvarint(data, 0)
        number, position = read_uvarint(data, position)
        version, position = read_uvarint(data, position)
    except IndexError:
        raise DecodeError("a metadata record ends within its frame") from None
    if frame != FRAME_VERSION:
        raise DecodeError(f"a metadata record has frame version {frame}, expected {FRAME_VERSION}")
    if number not in RECORD_TYPES:
        raise DecodeError(f"a metadata record has the unknown type {number}")
    return decode_exactly(RECORD_TYPES[number], version, data, position)

"""The records of `__consumer_offsets`: keys and values in Apache Kafka's formats, so that its tools can read them.

A key or value is a version (two bytes) and the message in that version. Keys of versions 0 and 1 are offsets, of
version 2 groups. A record without a value (a tombstone) removes the earlier records of its key.
"""

from struct import Struct, error
from typing import Annotated, Final, NamedTuple, TypeVar

from broker.protocol.codec import decode, encode
from broker.protocol.decoder import DecodeError
from broker.protocol.schema import Bytes, Int32, Int64, Message, Nullable, String, v

_VERSION = Struct(">h")

M = TypeVar("M", bound=Message)


class OffsetCommitKey(Message):
    VERSIONS = v("0-1")

    group: String = ""
    topic: String = ""
    partition: Int32 = 0


class OffsetCommitValue(Message):
    """`commit_timestamp` and `expire_timestamp` in ms since 1970; -1: expires by the retention time."""

    VERSIONS = v("0-3")

    offset: Int64 = 0
    leader_epoch: Annotated[Int32, v("3+")] = -1
    metadata: String = ""
    commit_timestamp: Int64 = 0
    expire_timestamp: Annotated[Int64, v("1")] = -1


class GroupMetadataKey(Message):
    VERSIONS = v("2")

    group: String = ""


class MemberMetadata(Message):
    """Timeouts in milliseconds."""

    member_id: String = ""
    group_instance_id: Annotated[String | None, v("3+"), Nullable("3+")] = None
    client_id: String = ""
    client_host: String = ""
    rebalance_timeout: Annotated[Int32, v("1+")] = -1
    session_timeout: Int32 = 0
    subscription: Bytes = b""
    assignment: Bytes = b""


class GroupMetadataValue(Message):
    """A generation; `current_state_timestamp` in milliseconds since 1970."""

    VERSIONS = v("0-3")

    protocol_type: String = ""
    generation: Int32 = 0
    protocol: String | None = None
    leader: String | None = None
    current_state_timestamp: Annotated[Int64, v("2+")] = -1
    members: list[MemberMetadata] = []


Key = OffsetCommitKey | GroupMetadataKey
Value = OffsetCommitValue | GroupMetadataValue


_WRITTEN: dict[type[Message], tuple[int, int]] = {OffsetCommitKey: (1, 3), GroupMetadataKey: (2, 3)}
"""The versions of keys and values that this broker writes."""
_WITH_EXPIRY: Final = 1
"""The only version of an offset's value with an expiry time. It is written where a client requested a retention time,
as by Kafka. It has no leader epoch, but requests with a retention time are older than leader epochs."""


class LogRecord(NamedTuple):
    """A record of the log; without value: a tombstone."""

    key: bytes
    value: bytes | None


def record(key: Key, value: Value | None) -> LogRecord:
    """A record. Raises `EncodeError` for fields that do not fit."""
    key_version, value_version = _WRITTEN[type(key)]
    if isinstance(value, OffsetCommitValue) and value.expire_timestamp >= 0:
        value_version = _WITH_EXPIRY
    return LogRecord(_versioned(key, key_version), None if value is None else _versioned(value, value_version))


def read_record(key: bytes, value: bytes | None) -> tuple[Key, Value | None] | None:
    """The content of a record; None for a key with an unknown version, which Kafka skips, too.

    Raises `DecodeError`.
    """
    key_version = _version_of(key)
    if key_version in OffsetCommitKey.VERSIONS:
        return _decoded(OffsetCommitKey, key), None if value is None else _decoded(OffsetCommitValue, value)
    if key_version in GroupMetadataKey.VERSIONS:
        return _decoded(GroupMetadataKey, key), None if value is None else _decoded(GroupMetadataValue, value)
    return None


def _versioned(message: Message, version: int) -> bytes:
    out = bytearray(_VERSION.pack(version))
    encode(message, version, out)
    return bytes(out)


def _version_of(data: bytes) -> int:
    try:
        version: int = _VERSION.unpack_from(data)[0]
    except error:
        raise DecodeError(f"a key or value of {len(data)} bytes is too short for its version") from None
    return version


def _decoded(cls: type[M], data: bytes) -> M:
    version = _version_of(data)
    if version not in cls.VERSIONS:
        raise DecodeError(f"{cls.__name__} has no version {version}")
    message, _ = decode(cls, version, data, _VERSION.size)
    return message

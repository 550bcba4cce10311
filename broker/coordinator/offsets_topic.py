"""The topic in which coordinators keep groups and offsets, and which of its partitions is whose."""

from struct import unpack
from typing import Final

from broker.config import BrokerConfig
from broker.errors import ErrorCode, ProtocolError
from broker.topic_settings import COMPACT

OFFSETS_TOPIC: Final = "__consumer_offsets"
LONGEST_ID: Final = 32_000  # bytes of a name that fits into the records of the topic


def fits(name: str) -> bool:
    """Whether records of the topic can hold a name."""
    return len(name) <= LONGEST_ID and len(name.encode()) <= LONGEST_ID


def partition_of(group: str, partitions: int) -> int:
    """The partition of a group: Java's hash of its name, as Kafka's clients and tools work it out too.

    Raises `ProtocolError` where there can be no such group: requests may have names of many megabytes.
    """
    if not fits(group):
        raise ProtocolError(ErrorCode.INVALID_GROUP_ID)
    code = 0
    units = group.encode("utf-16-be", "surrogatepass")
    for unit in unpack(f">{len(units) // 2}H", units):
        code = (31 * code + unit) & 0xFFFFFFFF
    if code == 1 << 31:
        return 0
    return (code if code < 1 << 31 else (1 << 32) - code) % partitions


def settings(config: BrokerConfig) -> dict[str, str]:
    """The topic's settings."""
    # No age of a record makes its offset a past one: only a later record of its key does.
    return {"cleanup.policy": COMPACT, "segment.bytes": str(config.offsets_topic_segment_bytes)}

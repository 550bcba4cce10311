"""The topics in which brokers store their own state."""

import re
from typing import Final

from broker.coordinator.offsets_topic import OFFSETS_TOPIC
from broker.errors import ErrorCode, ProtocolError
from broker.tiered.remote_storage_rules import METADATA_TOPIC

INTERNAL: Final = frozenset({OFFSETS_TOPIC, METADATA_TOPIC})
"""The committed offsets of groups, and the places of remote segments. Clients must neither write nor delete there."""
_BROKER: Final = re.compile(r"broker-(\d+)")


def check_writer(topic: str, client_id: str | None, *, between_brokers: bool) -> None:
    """Raises `ProtocolError` (INVALID_TOPIC_EXCEPTION) unless the sender may produce to the topic. Brokers append to
    the metadata of remote segments at their leader, over the listener `between_brokers`. As in Apache Kafka, which
    accepts records of internal topics from one client id only, this keeps out mistakes. ACLs keep out who forges the
    id."""
    if topic not in INTERNAL:
        return
    is_broker = between_brokers and _BROKER.fullmatch(client_id or "") is not None
    if topic == OFFSETS_TOPIC or not is_broker:
        raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"only brokers write to {topic}")

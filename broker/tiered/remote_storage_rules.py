"""Which settings of a topic's remote storage may be combined, as in Apache Kafka (`LogConfig.validate`). Pure."""

from collections.abc import Mapping
from typing import Final

from broker.config import BrokerConfig
from broker.errors import ErrorCode, ProtocolError
from broker.topic_settings import AS_TOTAL, COMPACT, KEYS, NEVER, REMOTE_STORAGE, split

METADATA_TOPIC: Final = "__remote_log_metadata"
"""The topic with the events of remote segments."""
METADATA_TOPIC_SETTINGS: Final = {
    "cleanup.policy": "delete",
    "flush.messages": "1",
    "retention.bytes": "-1",
    "retention.ms": "-1",
    "unclean.leader.election.enable": "false",
}
"""Brokers delete local records because of this topic's records. So these must survive what the records themselves would
survive: nothing expires, no unclean election happens, and a record counts as replicated once it is on disk."""


_STAYS: Final = "without its records, nothing finds the records of topics that are in remote storage"


def check_deletion(topic: str, config: BrokerConfig) -> None:
    """Raises `ProtocolError` (INVALID_TOPIC_EXCEPTION) for the metadata topic while the brokers have tiered storage.
    Apache Kafka 4.3 deletes it, and loses what is in remote storage."""
    if topic == METADATA_TOPIC and config.remote_log_storage_system_enable:
        remedy = "set remote.log.storage.system.enable=false on the brokers first"
        raise ProtocolError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{METADATA_TOPIC} cannot be deleted: {_STAYS}; {remedy}"
        )


def check_remote_storage(
    topic: str, wanted: Mapping[str, str], config: BrokerConfig, *, before: Mapping[str, str] | None = None
) -> None:
    """Check that the settings of a topic, each valid alone, fit together, and that those of the metadata topic keep its
    records. `before`: its settings so far; None: a new topic.

    Raises `ProtocolError` (INVALID_CONFIG) for a contradiction.
    """

    def value(name: str) -> str:
        return wanted[name] if name in wanted else KEYS[name].default(config)

    if topic == METADATA_TOPIC and config.remote_log_storage_system_enable:
        for name, needed in METADATA_TOPIC_SETTINGS.items():
            if wanted.get(name) != needed:
                raise _refusal(f"{name} of {METADATA_TOPIC} must be {needed}: {_STAYS}")
    if value(REMOTE_STORAGE) == "false":
        if (before or {}).get(REMOTE_STORAGE) == "true" and value("remote.log.delete.on.disable") == "false":
            raise _refusal(
                f"{REMOTE_STORAGE} cannot be disabled while remote data is kept; set remote.log.delete.on.disable=true "
                f"with it, or keep {REMOTE_STORAGE}=true and set remote.log.copy.disable=true"
            )
        return
    if not config.remote_log_storage_system_enable:
        raise _refusal(
            f"{REMOTE_STORAGE}: tiered storage is disabled; set remote.log.storage.system.enable=true on the brokers"
        )
    if COMPACT in split(value("cleanup.policy")):
        raise _refusal(f"{REMOTE_STORAGE}: remote storage is not supported for compacted topics")
    if topic.startswith("__"):
        raise _refusal(f"{REMOTE_STORAGE}: remote storage is not supported for the internal topic {topic}")
    for total in ("retention.ms", "retention.bytes"):
        _check_retention(total, int(value(f"local.{total}")), int(value(total)))
        if value("remote.log.copy.disable") == "true" and value(f"local.{total}") not in (str(AS_TOTAL), value(total)):
            raise _refusal(
                f"remote.log.copy.disable: local.{total} must be -2 or equal to {total} when nothing is copied"
            )


def _check_retention(total: str, local: int, whole: int) -> None:
    """The local copies may not be kept longer than the records."""
    if local == AS_TOTAL or whole == NEVER:
        return
    if local == NEVER:
        raise _refusal(f"local.{total} cannot be -1 while {total} is {whole}")
    if local > whole:
        raise _refusal(f"local.{total} ({local}) cannot be larger than {total} ({whole})")


def _refusal(message: str) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID_CONFIG, message)

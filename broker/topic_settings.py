"""The configuration of topics: Kafka's names, the allowed values, and the broker's key that gives each default.

Only settings with an effect are accepted: an ignored setting would promise what this broker does not do. Keys of
Apache Kafka 4.1 that this broker does not implement accept the one value that describes its behaviour (`FIXED`), since
clients such as Kafka Streams set them explicitly; every other value is refused.
"""

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, fields
from functools import partial
from typing import Any, Final

from broker.config import BrokerConfig
from broker.errors import ErrorCode, ProtocolError
from broker.properties import MAX_INT32, MAX_INT64, is_number, is_ratio, shown

DELETE: Final = "delete"
COMPACT: Final = "compact"
NEVER: Final = -1
"""As a retention: nothing is deleted because of its age or size."""
AS_TOTAL: Final = -2
"""As a local retention: the retention of the whole log applies."""
REMOTE_STORAGE: Final = "remote.storage.enable"
MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
FROM_LAST_TIERED: Final = "follower.fetch.last.tiered.offset.enable"
LEAD_LAST: Final = "tiered.replicas.lead.last.enable"


@dataclass(frozen=True)
class Key:
    """One key. `kind`: boolean, int, long, double or list, as in DescribeConfigs. `default`: the broker's value.
    `inherited`: the broker's key that gives it, empty where there is none.

    Numbers are from `least` to `most`, doubles from 0 to 1; other values are among `allowed`.
    """

    name: str
    kind: str
    default: Callable[[BrokerConfig], str]
    inherited: str
    least: int = 0
    most: int = MAX_INT64
    allowed: tuple[str, ...] = ()

    def check(self, value: str) -> None:
        """Raises `ProtocolError` for a value that is not allowed."""
        if self.kind in ("int", "long"):
            digits = value.removeprefix("-")
            if not is_number(digits, MAX_INT64) or not self.least <= int(value) <= self.most:
                self._refuse(value, f"a number from {self.least} to {self.most}")
        elif self.kind == "double":
            if not is_ratio(value):
                self._refuse(value, "a number from 0 to 1")
        elif self.kind == "list":
            parts = split(value)
            if not parts or not set(parts) <= set(self.allowed) or len(set(parts)) < len(parts):
                self._refuse(value, f"one or more of {', '.join(self.allowed)}, each once")
        elif value not in self.allowed:
            self._refuse(value, " or ".join(self.allowed))

    def _refuse(self, value: str, wanted: str) -> None:
        raise ProtocolError(ErrorCode.INVALID_CONFIG, f"{self.name}: {shown(value)} is not {wanted}")


@dataclass(frozen=True)
class FixedKey:
    """A key that this broker does not implement; `value` describes what it does for every topic. `inherited`: Kafka's
    name of the broker's key, empty where it has none; `meaning`: the meaning of the value here."""

    name: str
    kind: str
    value: str
    inherited: str
    meaning: str

    def check(self, value: str) -> None:
        """Raises `ProtocolError` for any other value."""
        if value != self.value:
            message = (
                f"{self.name}: {shown(value)} is not supported; this broker uses {shown(self.value)} for all topics"
            )
            raise ProtocolError(ErrorCode.INVALID_CONFIG, message)


def _declared(spec: Field[Any], name: str) -> Key:
    """The key `name` of topics or of all brokers, whose default is a setting of the broker."""
    declared = spec.metadata
    kinds = {bool: "boolean", float: "double", str: "list", int: "int" if declared["most"] == MAX_INT32 else "long"}
    kind = kinds[type(spec.default)]
    allowed = ("true", "false") if kind == "boolean" else declared["allowed"]
    default = _flush_messages if name == "flush.messages" else partial(_text_of, spec.name)
    return Key(name, kind, default, declared["key"], declared["least"] or 0, declared["most"], allowed)


def _text_of(field_name: str, config: BrokerConfig) -> str:
    value = getattr(config, field_name)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _flush_messages(config: BrokerConfig) -> str:
    return str(config.log_flush_interval_messages or MAX_INT64)


def _switch(name: str) -> Key:
    """A key of topics that is off unless the topic sets it."""
    return Key(name, "boolean", lambda _: "false", "", allowed=("true", "false"))


_SETTINGS: Final = [spec for spec in fields(BrokerConfig) if "key" in spec.metadata]
KEYS: Final[Mapping[str, Key]] = {
    spec.metadata["topic"]: _declared(spec, spec.metadata["topic"]) for spec in _SETTINGS if spec.metadata["topic"]
} | {name: _switch(name) for name in ("remote.log.copy.disable", "remote.log.delete.on.disable", REMOTE_STORAGE)}
_DYNAMIC: Final = [spec for spec in _SETTINGS if spec.metadata["dynamic"]]
CLUSTER_WIDE: Final = frozenset(spec.metadata["topic"] for spec in _DYNAMIC if spec.metadata["topic"])
"""The keys whose default is the cluster's, in the metadata log, instead of each broker's own: the controller and the
leaders must use the same number to decide what is committed (KIP-966)."""
BROKER_KEYS: Final[Mapping[str, Key]] = {
    spec.metadata["key"]: _declared(spec, spec.metadata["key"]) for spec in _DYNAMIC if not spec.metadata["topic"]
}
"""The keys of brokers that a value for all brokers, in the metadata log, overrides while the brokers run."""


FIXED: Final[Mapping[str, FixedKey]] = {
    key.name: key
    for key in (
        FixedKey(
            "compression.type", "string", "producer", "compression.type",
            "Batches keep the compression of the producer.",
        ),
        FixedKey(
            "compression.gzip.level", "int", "-1", "compression.gzip.level",
            "No effect: batches are never recompressed.",
        ),
        FixedKey(
            "compression.lz4.level", "int", "9", "compression.lz4.level",
            "No effect: batches are never recompressed.",
        ),
        FixedKey(
            "compression.zstd.level", "int", "3", "compression.zstd.level",
            "No effect: batches are never recompressed.",
        ),
        FixedKey(
            "flush.ms", "long", str(MAX_INT64), "log.flush.interval.ms",
            "Records are never flushed because of their age.",
        ),
        FixedKey(
            "follower.replication.throttled.replicas", "list", "", "",
            "Fetching by replicas is not throttled.",
        ),
        FixedKey(
            "leader.replication.throttled.replicas", "list", "", "",
            "Fetching from replicas is not throttled.",
        ),
        FixedKey(
            "max.compaction.lag.ms", "long", str(MAX_INT64), "log.cleaner.max.compaction.lag.ms",
            "Records are not compacted because of their age.",
        ),
        FixedKey(
            "message.timestamp.type", "string", "CreateTime", "log.message.timestamp.type",
            "Records keep the timestamp of the producer.",
        ),
        FixedKey(
            "preallocate", "boolean", "false", "log.preallocate",
            "Segment files grow as they are written.",
        ),
        FixedKey(
            "segment.index.bytes", "int", "10485760", "log.index.size.max.bytes",
            "Indexes are smaller: a segment has one entry per index.interval.bytes.",
        ),
        FixedKey(
            "segment.jitter.ms", "long", "0", "log.roll.jitter.ms",
            "A segment is rolled exactly when it is older than segment.ms.",
        ),
    )
}  # fmt: skip
"""The keys that this broker does not implement, with the value that describes its behaviour."""


def key_of(name: str) -> Key | FixedKey:
    """The key with this name. Raises `ProtocolError` for an unknown one."""
    key = KEYS.get(name) or FIXED.get(name)
    if key is None:
        message = f"{shown(name)} cannot be set for a topic; supported: {', '.join(sorted(KEYS))}"
        raise ProtocolError(ErrorCode.INVALID_CONFIG, message)
    return key


def dynamic_key_of(name: str) -> Key | FixedKey:
    """The key with this name of which all brokers may have a value in the metadata log. Raises `ProtocolError`."""
    return BROKER_KEYS[name] if name in BROKER_KEYS else key_of(name)


def is_for_all_brokers(name: str) -> bool:
    """Whether all brokers may have a value of the key in the metadata log."""
    return name in CLUSTER_WIDE or name in BROKER_KEYS


def is_on(name: str, defaults: Mapping[str, str], broker: BrokerConfig) -> bool:
    """The value of a boolean key of `BROKER_KEYS`. `defaults`: the values for all brokers."""
    return (defaults[name] if name in defaults else BROKER_KEYS[name].default(broker)) == "true"


def default_of(key: Key | FixedKey, config: BrokerConfig) -> str:
    """The value of a topic that does not set the key."""
    return key.value if isinstance(key, FixedKey) else key.default(config)


def split(value: str) -> list[str]:
    """The parts of a list's text."""
    return [part.strip() for part in value.split(",") if part.strip()]


@dataclass(frozen=True)
class TopicSettings:
    """The settings of the partitions of one topic. Sizes in bytes, times in milliseconds; `NEVER`: no limit."""

    cleanup: frozenset[str]
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_before_commit: bool
    index_interval_bytes: int
    local_retention_bytes: int
    local_retention_ms: int
    max_message_bytes: int
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    remote_copy: bool
    """Whether closed segments are uploaded."""
    remote_deleted_on_disable: bool
    remote_storage: bool
    """Whether records may be in remote storage only."""
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_ms: int
    timestamp_after_max_ms: int
    timestamp_before_max_ms: int
    unclean_leader_election: bool

    @classmethod
    def of(cls, own: Mapping[str, str], broker: BrokerConfig) -> "TopicSettings":
        """The topic's own settings, over the cluster's defaults, over the broker's configuration."""

        def value(name: str) -> str:
            return own[name] if name in own else KEYS[name].default(broker)

        remote_storage = broker.remote_log_storage_system_enable and value(REMOTE_STORAGE) == "true"
        return cls(
            cleanup=frozenset(split(value("cleanup.policy"))),
            delete_retention_ms=int(value("delete.retention.ms")),
            file_delete_delay_ms=int(value("file.delete.delay.ms")),
            flush_before_commit=int(value("flush.messages")) == 1,
            index_interval_bytes=int(value("index.interval.bytes")),
            local_retention_bytes=_local(value, "retention.bytes"),
            local_retention_ms=_local(value, "retention.ms"),
            max_message_bytes=int(value("max.message.bytes")),
            min_cleanable_dirty_ratio=float(value("min.cleanable.dirty.ratio")),
            min_compaction_lag_ms=int(value("min.compaction.lag.ms")),
            min_insync_replicas=int(value(MIN_INSYNC_REPLICAS)),
            remote_copy=remote_storage and value("remote.log.copy.disable") == "false",
            remote_deleted_on_disable=value("remote.log.delete.on.disable") == "true",
            remote_storage=remote_storage,
            retention_bytes=int(value("retention.bytes")),
            retention_ms=int(value("retention.ms")),
            segment_bytes=int(value("segment.bytes")),
            segment_ms=int(value("segment.ms")),
            timestamp_after_max_ms=int(value("message.timestamp.after.max.ms")),
            timestamp_before_max_ms=int(value("message.timestamp.before.max.ms")),
            unclean_leader_election=value("unclean.leader.election.enable") == "true",
        )


def _local(value: Callable[[str], str], total: str) -> int:
    """The local retention that belongs to the retention of the whole log."""
    local = int(value(f"local.{total}"))
    return int(value(total)) if local == AS_TOTAL else local

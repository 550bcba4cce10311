"""The broker's configuration: Kafka's property names, parsed once into typed, checked values.

Times are milliseconds in the file and in the fields whose names end in `_ms`; sizes are bytes.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from broker.errors import StartupError

MAX_INT32 = (1 << 31) - 1
MAX_INT64 = (1 << 63) - 1


@dataclass(frozen=True)
class Endpoint:
    """A voter or listener: `id@host:port` (K595-1)."""

    id: int
    host: str
    port: int


def _key(name: str, default: Any, *, doc: str, minimum: int | None = None) -> Any:
    """A field that is read from the property `name`; `doc` is what docs/by-hand.md says of it."""
    return field(default=default, metadata={"key": name, "minimum": minimum, "doc": doc})


REQUIRED: Mapping[str, str] = {
    "node.id": "the broker's number, which no other has; also its id as a voter",
    "listeners": "where it listens, and what it is known by to others: `PLAINTEXT://host:port`",
    "quorum.voters": "all voters of the metadata quorum, `id@host:port,...`, the same on every broker; one that is not "
    "in the list is an observer",
    "log.dir": "its data directory, which no other process may use",
}
"""The keys without a default, and what they say."""


@dataclass(frozen=True)
class BrokerConfig:
    """One broker. `node_id`, `voters` and `log_dir` have no defaults; every other key has Kafka's meaning.

    `quorum.voters` lists `id@host:port`; a broker that is not in it is an observer of the metadata quorum.
    """

    node_id: int
    host: str
    port: int
    voters: tuple[Endpoint, ...]
    log_dir: str
    trace_path: str | None = None
    cluster_id: str | None = _key(
        "cluster.id",
        None,
        doc="the cluster's id, which every broker must have; without it the first controller makes one, and "
        "whoever has none takes the cluster's over",
    )

    # metadata quorum (KIP-595)
    quorum_fetch_timeout_ms: int = _key(
        "quorum.fetch.timeout.ms",
        1_000,
        minimum=1,
        doc="without a word from the leader for so long, a voter stands for election; a leader that hears of no "
        "majority for 1.5 times as long resigns",
    )
    quorum_election_timeout_ms: int = _key(
        "quorum.election.timeout.ms",
        700,
        minimum=1,
        doc="how long a candidate waits for votes",
    )
    quorum_election_backoff_max_ms: int = _key(
        "quorum.election.backoff.max.ms",
        300,
        minimum=1,
        doc="the longest random delay before an election",
    )
    quorum_request_timeout_ms: int = _key(
        "quorum.request.timeout.ms",
        1_000,
        minimum=1,
        doc="past it a request to another node has failed, and its connection is dropped",
    )
    quorum_retry_backoff_ms: int = _key(
        "quorum.retry.backoff.ms",
        20,
        minimum=1,
        doc="the first delay before a request is sent again; it doubles",
    )
    quorum_retry_backoff_max_ms: int = _key(
        "quorum.retry.backoff.max.ms",
        500,
        minimum=1,
        doc="the longest of these delays",
    )

    metadata_log_max_record_bytes_between_snapshots: int = _key(
        "metadata.log.max.record.bytes.between.snapshots",
        20 << 20,
        minimum=1,
        doc="so many bytes of metadata records make a new snapshot",
    )

    # controller and registration
    broker_session_timeout_ms: int = _key(
        "broker.session.timeout.ms",
        3_000,
        minimum=1,
        doc="a broker that the controller has not heard of for so long is fenced",
    )
    broker_heartbeat_interval_ms: int = _key(
        "broker.heartbeat.interval.ms",
        300,
        minimum=1,
        doc="how often a broker tells the controller that it lives",
    )
    broker_lease_ms: int = _key(
        "broker.lease.ms",
        2_000,
        minimum=1,
        doc="for so long after a heartbeat a broker acts as a leader; shorter than the session, so that nobody "
        "answers who has been replaced",
    )

    # partitions
    min_insync_replicas: int = _key(
        "min.insync.replicas",
        1,
        minimum=1,
        doc="in-sync replicas without which nothing is committed (a topic's own setting goes first)",
    )
    default_replication_factor: int = _key(
        "default.replication.factor",
        1,
        minimum=1,
        doc="replicas of a topic whose creator does not say",
    )
    num_partitions: int = _key(
        "num.partitions",
        1,
        minimum=1,
        doc="partitions of a topic whose creator does not say",
    )
    unclean_leader_election_enable: bool = _key(
        "unclean.leader.election.enable",
        False,
        doc="whether a replica that may lack committed records may lead when nobody else can",
    )
    replica_lag_time_max_ms: int = _key(
        "replica.lag.time.max.ms",
        3_000,
        minimum=1,
        doc="a replica that has not caught up for so long leaves the ISR",
    )
    replica_fetch_wait_max_ms: int = _key(
        "replica.fetch.wait.max.ms",
        500,
        minimum=1,
        doc="how long a follower's fetch waits for something new",
    )
    replica_fetch_max_bytes: int = _key(
        "replica.fetch.max.bytes",
        1 << 20,
        minimum=1,
        doc="the most that a follower takes of a partition at once",
    )
    replica_fetch_backoff_ms: int = _key(
        "replica.fetch.backoff.ms",
        100,
        minimum=1,
        doc="a follower's pause after an error",
    )
    replica_socket_timeout_ms: int = _key(
        "replica.socket.timeout.ms",
        2_000,
        minimum=1,
        doc="a fetch of a follower that makes no progress for so long has failed",
    )
    high_watermark_checkpoint_interval_ms: int = _key(
        "replica.high.watermark.checkpoint.interval.ms",
        1_000,
        minimum=1,
        doc="how often high watermarks and recovery points are written to disk",
    )

    # log
    log_segment_bytes: int = _key(
        "log.segment.bytes",
        1 << 30,
        minimum=4096,
        doc="the size at which a segment of a log is complete",
    )
    log_index_interval_bytes: int = _key(
        "log.index.interval.bytes",
        4096,
        minimum=1,
        doc="bytes of a segment for each entry of its index",
    )
    log_flush_interval_messages: int = _key(
        "log.flush.interval.messages",
        0,
        minimum=0,
        doc="1: a record counts for the ISR once it is on disk; 0: once it is in the page cache (nothing else "
        "has a meaning here)",
    )
    producer_id_expiration_ms: int = _key(
        "producer.id.expiration.ms",
        86_400_000,
        minimum=1,
        doc="a producer that has not written for so long is forgotten",
    )
    producer_id_expiration_check_interval_ms: int = _key(
        "producer.id.expiration.check.interval.ms",
        600_000,
        minimum=1,
        doc="how often that is looked for",
    )
    message_max_bytes: int = _key(
        "message.max.bytes",
        8 << 20,
        minimum=1,
        doc="the largest batch",
    )

    log_cleanup_policy: str = _key(
        "log.cleanup.policy",
        "delete",
        doc="`delete`, `compact` or `compact,delete`",
    )
    log_cleaner_backoff_ms: int = _key(
        "log.cleaner.backoff.ms",
        15_000,
        minimum=1,
        doc="how often logs are looked for that can be compacted",
    )
    log_cleaner_min_cleanable_ratio: float = _key(
        "log.cleaner.min.cleanable.ratio",
        0.5,
        doc="the part of a log that must be new before it is compacted, 0 to 1",
    )
    log_cleaner_min_compaction_lag_ms: int = _key(
        "log.cleaner.min.compaction.lag.ms",
        0,
        minimum=0,
        doc="records younger than this are not compacted",
    )
    log_cleaner_delete_retention_ms: int = _key(
        "log.cleaner.delete.retention.ms",
        86_400_000,
        minimum=0,
        doc="how long compaction keeps tombstones",
    )
    log_retention_ms: int = _key(
        "log.retention.ms",
        -1,
        minimum=-1,
        doc="records older than this are deleted; -1, unlike Kafka's seven days: never",
    )
    log_retention_bytes: int = _key(
        "log.retention.bytes",
        -1,
        minimum=-1,
        doc="the size of a log past which its oldest segments are deleted; -1: never",
    )
    log_retention_check_interval_ms: int = _key(
        "log.retention.check.interval.ms",
        300_000,
        minimum=1,
        doc="how often that is looked for",
    )
    auto_create_topics_enable: bool = _key(
        "auto.create.topics.enable",
        False,
        doc="whether a topic is created when a producer or consumer asks for it",
    )

    # consumer groups
    offsets_topic_num_partitions: int = _key(
        "offsets.topic.num.partitions",
        50,
        minimum=1,
        doc="partitions of `__consumer_offsets`, when it is created",
    )
    offsets_topic_replication_factor: int = _key(
        "offsets.topic.replication.factor",
        3,
        minimum=1,
        doc="its replicas; it is not created before there are as many brokers",
    )
    offsets_topic_segment_bytes: int = _key(
        "offsets.topic.segment.bytes",
        100 << 20,
        minimum=4096,
        doc="its segments' size",
    )
    offsets_commit_timeout_ms: int = _key(
        "offsets.commit.timeout.ms",
        5_000,
        minimum=1,
        doc="past it a commit of offsets that is not committed has failed",
    )
    offsets_retention_minutes: int = _key(
        "offsets.retention.minutes",
        10_080,
        minimum=1,
        doc="how long the offsets of a group without members are kept",
    )
    offsets_retention_check_interval_ms: int = _key(
        "offsets.retention.check.interval.ms",
        600_000,
        minimum=1,
        doc="how often that is looked for",
    )
    offset_metadata_max_bytes: int = _key(
        "offset.metadata.max.bytes",
        4_096,
        minimum=0,
        doc="the longest text that may be committed with an offset",
    )
    group_initial_rebalance_delay_ms: int = _key(
        "group.initial.rebalance.delay.ms",
        3_000,
        minimum=0,
        doc="how long an empty group waits for more members before it assigns anything",
    )
    group_min_session_timeout_ms: int = _key(
        "group.min.session.timeout.ms",
        6_000,
        minimum=1,
        doc="the shortest session that a member may ask for",
    )
    group_max_session_timeout_ms: int = _key(
        "group.max.session.timeout.ms",
        1_800_000,
        minimum=1,
        doc="the longest one",
    )
    group_max_size: int = _key(
        "group.max.size",
        MAX_INT32,
        minimum=1,
        doc="the most members of a group",
    )

    # server
    metrics_port: int = _key(
        "metrics.port",
        0,
        minimum=0,
        doc="where metrics are served over HTTP, at `/metrics`; 0: nowhere",
    )
    socket_request_max_bytes: int = _key(
        "socket.request.max.bytes",
        100 << 20,
        minimum=1024,
        doc="the largest request",
    )
    max_connections: int = _key(
        "max.connections",
        2_000,
        minimum=1,
        doc="the most connections of clients",
    )
    max_connections_per_ip: int = _key(
        "max.connections.per.ip",
        MAX_INT32,
        minimum=0,
        doc="the most of one address",
    )
    max_connections_per_ip_overrides: str = _key(
        "max.connections.per.ip.overrides",
        "",
        doc="the same for single addresses: `10.0.0.1:100,10.0.0.2:5`",
    )
    connections_max_idle_ms: int = _key(
        "connections.max.idle.ms",
        600_000,
        minimum=-1,
        doc="a connection that is silent for so long is closed; -1: never",
    )
    queued_max_requests: int = _key(
        "queued.max.requests",
        1_000,
        minimum=1,
        doc="requests that may wait at a time; past that nothing more is read",
    )

    @property
    def is_voter(self) -> bool:
        return any(voter.id == self.node_id for voter in self.voters)

    @property
    def flush_before_commit(self) -> bool:
        """Whether a record must be on disk before it counts for the ISR (`log.flush.interval.messages` = 1)."""
        return self.log_flush_interval_messages == 1

    @property
    def connections_by_ip(self) -> dict[str, int]:
        """The bounds of single addresses (`max.connections.per.ip.overrides`)."""
        return parse_overrides(self.max_connections_per_ip_overrides, "configuration")

    @property
    def max_idle_s(self) -> float | None:
        """How long a connection may be silent; None (`connections.max.idle.ms` = -1) for as long as it likes."""
        return None if self.connections_max_idle_ms < 0 else max(self.connections_max_idle_ms, 1) / 1000

    @classmethod
    def load(cls, path: Path) -> BrokerConfig:
        """Read a properties file. Raises `StartupError` naming file, key and remedy."""
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise StartupError(f"{path}: cannot be read: {error.strerror}; give --config a readable file") from error
        return cls.from_properties(parse_properties(text, str(path)), str(path))

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], source: str = "configuration") -> BrokerConfig:
        """Check and convert properties. Raises `StartupError` for a missing, unknown or malformed key."""
        rest = dict(properties)
        node_id = _integer(source, "node.id", _take(rest, source, "node.id"), 0)
        host, port = parse_listener(_take(rest, source, "listeners"), source)
        voters = parse_voters(_take(rest, source, "quorum.voters"), source)
        log_dir = _take(rest, source, "log.dir")
        values: dict[str, Any] = {"trace_path": rest.pop("trace.path", None)}
        for spec in fields(cls):
            key = spec.metadata.get("key")
            if key is None or key not in rest:
                continue
            text = rest.pop(key)
            if isinstance(spec.default, bool):
                values[spec.name] = _boolean(source, key, text)
            elif isinstance(spec.default, int):
                values[spec.name] = _integer(source, key, text, spec.metadata["minimum"])
            elif isinstance(spec.default, float):
                values[spec.name] = _ratio(source, key, text)
            else:
                values[spec.name] = text
        if rest:
            known = sorted(f.metadata["key"] for f in fields(cls) if "key" in f.metadata)
            raise StartupError(
                f"{source}: unknown key {sorted(rest)[0]!r}; remove it or use one of: {', '.join(known)}"
            )
        config = cls(node_id=node_id, host=host, port=port, voters=voters, log_dir=log_dir, **values)
        parse_overrides(config.max_connections_per_ip_overrides, source)
        if config.broker_lease_ms >= config.broker_session_timeout_ms:
            raise StartupError(
                f"{source}: broker.lease.ms ({config.broker_lease_ms}) must be smaller than broker.session.timeout.ms "
                f"({config.broker_session_timeout_ms}): a leader must stop answering before another can be elected"
            )
        policies = [part.strip() for part in config.log_cleanup_policy.split(",")]
        if not set(policies) <= {"delete", "compact"} or len(set(policies)) < len(policies):
            shown_policy = shown(config.log_cleanup_policy)
            raise StartupError(f"{source}: log.cleanup.policy: {shown_policy} is not delete, compact or compact,delete")
        return config


def parse_properties(text: str, source: str) -> dict[str, str]:
    """`key=value` lines; `#` starts a comment line. Raises `StartupError` with the line's number."""
    result: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        key, separator, value = stripped.partition("=")
        if not separator:
            raise StartupError(f"{source}:{number}: {stripped!r} is not of the form key=value")
        if key.strip() in result:
            raise StartupError(f"{source}:{number}: {key.strip()} is given twice; keep one of the lines")
        result[key.strip()] = value.strip()
    return result


def parse_voters(text: str, source: str) -> tuple[Endpoint, ...]:
    """`1@n1:9092,2@n2:9092`. Raises `StartupError` for anything else, and for an id given twice (K595-1)."""
    voters = []
    for part in text.split(","):
        identifier, at, address = part.strip().partition("@")
        host, colon, port = address.rpartition(":")
        if not (at and colon and host and is_number(identifier, MAX_INT32) and _is_port(port)):
            raise StartupError(f"{source}: quorum.voters: {shown(part.strip())} is not of the form id@host:port")
        voters.append(Endpoint(int(identifier), host, int(port)))
    if len({voter.id for voter in voters}) != len(voters):
        raise StartupError(f"{source}: quorum.voters: an id is given twice in {text!r}; each voter needs its own")
    return tuple(voters)


def parse_overrides(text: str, source: str) -> dict[str, int]:
    """`10.0.0.1:100,10.0.0.2:5`, or nothing. Raises `StartupError` for anything else, also for names of hosts."""
    bounds: dict[str, int] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        address, _, count = part.rpartition(":")
        try:
            address = str(ipaddress.ip_address(address.strip("[]")))
        except ValueError:
            address = ""
        if not address or not is_number(count, MAX_INT32):
            raise StartupError(
                f"{source}: max.connections.per.ip.overrides: {shown(part)} is not of the form address:count, such as "
                "10.0.0.1:100; names of hosts are not looked up"
            )
        bounds[address] = int(count)
    return bounds


def parse_listener(text: str, source: str) -> tuple[str, int]:
    """`PLAINTEXT://host:port` or `host:port`. Raises `StartupError` for anything else."""
    host, colon, port = text.removeprefix("PLAINTEXT://").rpartition(":")
    if not (colon and host and _is_port(port)):
        raise StartupError(f"{source}: listeners: {shown(text)} is not of the form PLAINTEXT://host:port")
    return host, int(port)


def _is_port(text: str) -> bool:
    return is_number(text, 65535) and int(text) > 0


def is_number(text: str, most: int) -> bool:
    """Whether it is a whole number from 0 to `most`. Numbers of absurd length are not worked out."""
    return text.isascii() and text.isdigit() and len(text) <= len(str(most)) and int(text) <= most


def is_ratio(text: str) -> bool:
    """Whether it is a number from 0 to 1, written with digits and a point."""
    whole, _, fraction = text.partition(".")
    digits = whole + fraction
    return len(text) <= 20 and digits.isascii() and digits.isdigit() and whole != "" and float(text) <= 1


def shown(text: str) -> str:
    """What was written, for a message: quoted, and not longer than a line bears."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _take(properties: dict[str, str], source: str, key: str) -> str:
    try:
        return properties.pop(key)
    except KeyError:
        raise StartupError(f"{source}: {key} is missing; add a line {key}=...") from None


def _boolean(source: str, key: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise StartupError(f"{source}: {key}: {shown(text)} is neither true nor false")
    return text == "true"


def _ratio(source: str, key: str, text: str) -> float:
    if not is_ratio(text):
        raise StartupError(f"{source}: {key}: {shown(text)} is not a number from 0 to 1, such as 0.5")
    return float(text)


def _integer(source: str, key: str, text: str, minimum: int | None) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        raise StartupError(f"{source}: {key}: {shown(text)} is not a whole number")
    if not is_number(digits, MAX_INT64):
        raise StartupError(f"{source}: {key}: {shown(text)} does not fit into 64 bits")
    value = int(text)
    if minimum is not None and value < minimum:
        raise StartupError(f"{source}: {key}: {value} is smaller than {minimum}, the least that makes sense")
    return value

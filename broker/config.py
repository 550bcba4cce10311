"""The broker's configuration: Kafka's property names, parsed once into typed, checked values.

Times are milliseconds in the file and in the fields whose names end in `_ms`; sizes are bytes.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

from broker.errors import StartupError
from broker.field_texts import field_texts
from broker.listeners import ListenerEndpoint, SecurityProtocol, parse_listeners, parse_names, parse_protocols
from broker.properties import (
    MAX_INT32,
    MAX_INT64,
    boolean,
    check_address,
    integer,
    is_number,
    is_port,
    parse_properties,
    ratio,
    shown,
    take,
)


@dataclass(frozen=True)
class Endpoint:
    """A voter of the metadata quorum: `id@host:port` (K595-1)."""

    id: int
    host: str
    port: int


def _key(
    name: str,
    default: Any,
    *,
    minimum: int | None = None,
    topic: str = "",
    topic_minimum: int | None = None,
    most: int = MAX_INT64,
    allowed: tuple[str, ...] = (),
    for_all_brokers: bool = False,
) -> Any:
    """A field with the value of the property `name`. `topic`: the key of topics whose default it is; of that are
    `topic_minimum`, if it differs from `minimum`, `most` and `allowed`. `for_all_brokers`: a value in the metadata log,
    for all brokers, has precedence and can change while they run."""
    least = minimum if topic_minimum is None else topic_minimum
    of_topic = {"topic": topic, "least": least, "most": most, "allowed": allowed}
    return field(default=default, metadata={"key": name, "minimum": minimum, "dynamic": for_all_brokers, **of_topic})


@dataclass(frozen=True)
class BrokerConfig:
    """The configuration of one broker. A setting is one field: its key, default and bounds, and its text below it."""

    node_id: int = field(metadata={"needed": "node.id"})
    """The broker's number, unique in the cluster; also its id as a voter."""
    listeners: tuple[ListenerEndpoint, ...] = field(metadata={"needed": "listeners"})
    """The addresses at which the broker listens and which it advertises: `NAME://host:port,...`."""
    voters: tuple[Endpoint, ...] = field(metadata={"needed": "quorum.voters"})
    """All voters of the metadata quorum, `id@host:port,...`, identical on every broker; a broker that is not in the
    list is an observer."""
    log_dir: str = field(metadata={"needed": "log.dir"})
    """The data directory; no other process may use it."""
    trace_path: str | None = None
    cluster_id: str | None = _key("cluster.id", None)
    """The cluster's id, identical on every broker; without it the first controller generates one, and a broker without
    an id adopts the cluster's."""
    source: str = field(default="configuration", compare=False)
    """The file's name, for messages."""
    given: frozenset[str] = field(default=frozenset(), compare=False)
    """The keys that the file contains."""

    # listeners
    listener_security_protocol_map: str = _key("listener.security.protocol.map", "")
    """`NAME:PROTOCOL,...` with `PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`; a listener named like a protocol
    uses that protocol, a listener for controllers uses `PLAINTEXT` by default ([security.md](security.md))."""
    controller_listener_names: str = _key("controller.listener.names", "")
    """The listeners for requests of the metadata quorum and to the controller; required with more than one voter."""
    inter_broker_listener_name: str = _key("inter.broker.listener.name", "")
    """The listener for replication between brokers; default: the first that is not for controllers."""

    # security
    ssl_keystore_location: str | None = _key("ssl.keystore.location", None)
    """PEM file with this broker's private key and certificates."""
    ssl_truststore_location: str | None = _key("ssl.truststore.location", None)
    """PEM file with the trusted certificates."""
    ssl_client_auth: str = _key("ssl.client.auth", "none")
    """Whether clients present a certificate: `none`, `requested`, `required`."""
    ssl_endpoint_identification_algorithm: str = _key("ssl.endpoint.identification.algorithm", "https")
    """`https`: brokers verify the host name of the broker that they connect to against its certificate; empty: no
    verification."""
    sasl_enabled_mechanisms: str = _key("sasl.enabled.mechanisms", "SCRAM-SHA-256,SCRAM-SHA-512")
    """The SASL mechanisms for clients."""
    sasl_mechanism_inter_broker_protocol: str = _key("sasl.mechanism.inter.broker.protocol", "SCRAM-SHA-512")
    """The SASL mechanism with which this broker authenticates to others."""
    sasl_plain_without_tls: bool = _key("sasl.plain.without.tls", False)
    """Whether PLAIN is allowed without TLS, which sends passwords in the clear."""
    # Kafka's default is 512 KB. With this one `max.connections` such requests fit into the memory of all receive
    # buffers, and the longest token fits into the smallest buffer.
    sasl_server_max_receive_size: int = _key("sasl.server.max.receive.size", 64 << 10, minimum=8 << 10)
    """The largest request of a client that has not authenticated yet, in bytes."""
    connections_max_reauth_ms: int = _key("connections.max.reauth.ms", 0, minimum=0)
    """How long an authentication is valid; 0: as long as its connection."""
    sasl_users_file: str | None = _key("sasl.users.file", None)
    """A file with users and their passwords."""
    sasl_inter_broker_credentials_file: str | None = _key("sasl.inter.broker.credentials.file", None)
    """A file with the name and password of this broker."""
    authorizer_class_name: str = _key("authorizer.class.name", "")
    """The authorizer, which enforces ACLs; without it every user has all permissions."""
    super_users: str = _key("super.users", "")
    """Users with all permissions."""
    allow_everyone_if_no_acl_found: bool = _key("allow.everyone.if.no.acl.found", False)
    """Whether every user may use a resource without ACLs."""

    # metadata quorum (KIP-595)
    quorum_fetch_timeout_ms: int = _key("quorum.fetch.timeout.ms", 1_000, minimum=1)
    """A voter that has no answer from the leader for this time stands for election; a leader that has no fetch from a
    majority for 1.5 times this time resigns."""
    quorum_election_timeout_ms: int = _key("quorum.election.timeout.ms", 700, minimum=1)
    """How long a candidate waits for votes."""
    quorum_election_backoff_max_ms: int = _key("quorum.election.backoff.max.ms", 300, minimum=1)
    """The longest random delay before an election."""
    quorum_request_timeout_ms: int = _key("quorum.request.timeout.ms", 1_000, minimum=1)
    """After this time a request to another node has failed and its connection is closed."""
    quorum_retry_backoff_ms: int = _key("quorum.retry.backoff.ms", 20, minimum=1)
    """The first delay before a request is repeated; it doubles with each repetition."""
    quorum_retry_backoff_max_ms: int = _key("quorum.retry.backoff.max.ms", 500, minimum=1)
    """The longest of these delays."""

    metadata_log_max_record_bytes_between_snapshots: int = _key(
        "metadata.log.max.record.bytes.between.snapshots", 20 << 20, minimum=1
    )
    """A new snapshot is written after this many bytes of metadata records."""
    metadata_log_max_snapshot_interval_ms: int = _key("metadata.log.max.snapshot.interval.ms", 3_600_000, minimum=0)
    """A new snapshot is written this time after the last one if the log has grown; 0: only bytes count."""

    # controller and registration
    broker_session_timeout_ms: int = _key("broker.session.timeout.ms", 1_500, minimum=1)
    """The controller fences a broker without a heartbeat for this time; a new controller waits for the longest timeout
    of its predecessors after they were last heard, because leases under it may still be valid."""
    broker_heartbeat_interval_ms: int = _key("broker.heartbeat.interval.ms", 300, minimum=1)
    """How often a broker sends a heartbeat to the controller."""
    broker_lease_ms: int = _key("broker.lease.ms", 1_200, minimum=1)
    """How long a broker may act as leader after the controller has proven that it leads; the controller's value
    applies. A value above 9/11 of the session timeout counts as 9/11, so that the lease ends before another broker can
    lead even if clocks are 10 % fast or slow."""

    # partitions
    min_insync_replicas: int = _key(
        "min.insync.replicas", 1, minimum=1, topic="min.insync.replicas", most=MAX_INT32, for_all_brokers=True
    )
    """In-sync replicas that a commit needs, for topics without their own value; the first controller writes its value
    into the metadata, and from then on [the cluster's value](limits.md#minimum-of-in-sync-replicas) applies."""
    default_replication_factor: int = _key("default.replication.factor", 1, minimum=1)
    """Replicas of a topic whose creator gives no number."""
    num_partitions: int = _key("num.partitions", 1, minimum=1)
    """Partitions of a topic whose creator gives no number."""
    unclean_leader_election_enable: bool = _key(
        "unclean.leader.election.enable", False, topic="unclean.leader.election.enable"
    )
    """Whether a replica that may lack committed records may lead if no other replica can."""
    replica_lag_time_max_ms: int = _key("replica.lag.time.max.ms", 3_000, minimum=1)
    """A replica that has not caught up for this time leaves the ISR."""
    replica_fetch_wait_max_ms: int = _key("replica.fetch.wait.max.ms", 500, minimum=1)
    """How long a follower's fetch waits for new records."""
    replica_fetch_max_bytes: int = _key("replica.fetch.max.bytes", 1 << 20, minimum=1)
    """The largest part of a partition that a follower fetches at once."""
    follower_fetch_last_tiered_offset_enable: bool = _key(
        "follower.fetch.last.tiered.offset.enable", False, for_all_brokers=True
    )
    """Whether an empty follower of a topic with remote storage starts after the last tiered offset, not at the leader's
    local log start (KIP-1023); a value for all brokers in the metadata has precedence."""
    follower_fetch_last_tiered_offset_timeout_ms: int = _key(
        "follower.fetch.last.tiered.offset.timeout.ms", 60_000, minimum=1
    )
    """After this time a follower whose leader does not know its last tiered offset starts at the leader's local log
    start."""
    tiered_replicas_lead_last_enable: bool = _key("tiered.replicas.lead.last.enable", False, for_all_brokers=True)
    """Whether a replica that started after the last tiered offset is the last choice in elections; the controller's
    value applies, and a value for all brokers in the metadata has precedence."""
    replica_fetch_backoff_ms: int = _key("replica.fetch.backoff.ms", 100, minimum=1)
    """A follower's pause after an error."""
    replica_socket_timeout_ms: int = _key("replica.socket.timeout.ms", 2_000, minimum=1)
    """A follower's fetch without progress for this time has failed."""
    high_watermark_checkpoint_interval_ms: int = _key("replica.high.watermark.checkpoint.interval.ms", 1_000, minimum=1)
    """How often high watermarks are written to disk."""

    # log
    log_segment_bytes: int = _key("log.segment.bytes", 1 << 30, minimum=4096, topic="segment.bytes", most=MAX_INT32)
    """The size at which a segment of a log is complete."""
    log_roll_ms: int = _key("log.roll.ms", 604_800_000, minimum=1, topic="segment.ms")
    """The age at which a segment of a log is complete, measured by the timestamps of its records; it ends with the next
    record."""
    log_segment_delete_delay_ms: int = _key(
        "log.segment.delete.delay.ms", 60_000, minimum=0, topic="file.delete.delay.ms"
    )
    """How long the files of removed segments remain, renamed to `*.deleted`, before they are unlinked."""
    log_message_timestamp_after_max_ms: int = _key(
        "log.message.timestamp.after.max.ms", 3_600_000, minimum=0, topic="message.timestamp.after.max.ms"
    )
    """How far the timestamp of a record may be ahead of the broker's clock."""
    log_message_timestamp_before_max_ms: int = _key(
        "log.message.timestamp.before.max.ms", MAX_INT64, minimum=0, topic="message.timestamp.before.max.ms"
    )
    """How far the timestamp of a record may be behind the broker's clock."""
    log_index_interval_bytes: int = _key(
        "log.index.interval.bytes", 4096, minimum=1, topic="index.interval.bytes", most=MAX_INT32
    )
    """Bytes of a segment per index entry."""
    # Kafka's default is a minute. Here the file is written only when a recovery point has changed.
    log_flush_offset_checkpoint_interval_ms: int = _key("log.flush.offset.checkpoint.interval.ms", 1_000, minimum=1)
    """How often recovery points are written to disk."""
    log_flush_interval_messages: int = _key(
        "log.flush.interval.messages", 0, minimum=0, topic="flush.messages", topic_minimum=1
    )
    """1: a record counts as replicated after it is on disk; 0: after it is in the page cache (other values are not
    supported)."""
    producer_id_expiration_ms: int = _key("producer.id.expiration.ms", 86_400_000, minimum=1)
    """A producer that has not written for this time is forgotten."""
    producer_id_expiration_check_interval_ms: int = _key("producer.id.expiration.check.interval.ms", 600_000, minimum=1)
    """How often the broker checks for expired producers."""
    message_max_bytes: int = _key(
        "message.max.bytes", 8 << 20, minimum=1, topic="max.message.bytes", topic_minimum=0, most=MAX_INT32
    )
    """The largest batch."""

    log_cleanup_policy: str = _key(
        "log.cleanup.policy", "delete", topic="cleanup.policy", allowed=("delete", "compact")
    )
    """`delete`, `compact` or `compact,delete`."""
    log_cleaner_backoff_ms: int = _key("log.cleaner.backoff.ms", 15_000, minimum=1)
    """How often the broker looks for logs to compact."""
    log_cleaner_min_cleanable_ratio: float = _key(
        "log.cleaner.min.cleanable.ratio", 0.5, topic="min.cleanable.dirty.ratio"
    )
    """The share of a log that must be new before it is compacted, 0 to 1."""
    log_cleaner_min_compaction_lag_ms: int = _key(
        "log.cleaner.min.compaction.lag.ms", 0, minimum=0, topic="min.compaction.lag.ms"
    )
    """Records younger than this are not compacted."""
    log_cleaner_delete_retention_ms: int = _key(
        "log.cleaner.delete.retention.ms", 86_400_000, minimum=0, topic="delete.retention.ms"
    )
    """How long compaction keeps tombstones."""
    log_retention_ms: int = _key("log.retention.ms", -1, minimum=-1, topic="retention.ms")
    """Records older than this are deleted; -1: never (Kafka's default is seven days)."""
    log_retention_bytes: int = _key("log.retention.bytes", -1, minimum=-1, topic="retention.bytes")
    """If a log is larger than this, its oldest segments are deleted; -1: never."""
    log_retention_check_interval_ms: int = _key("log.retention.check.interval.ms", 300_000, minimum=1)
    """How often the broker looks for segments to delete."""
    auto_create_topics_enable: bool = _key("auto.create.topics.enable", False)
    """Whether a producer's or consumer's metadata request creates an unknown topic."""

    # tiered storage (KIP-405)
    remote_log_storage_system_enable: bool = _key("remote.log.storage.system.enable", False)
    """Whether topics may use tiered storage ([tiered.md](tiered.md)); identical on every broker."""
    rsm_config_url: str = _key("rsm.config.url", "")
    """The object store of tiered storage: `file:///directory`, shared by all brokers, or `s3://bucket/prefix`."""
    rsm_config_endpoint: str = _key("rsm.config.endpoint", "")
    """The address of an S3-compatible service; empty: that of AWS."""
    rsm_config_region: str = _key("rsm.config.region", "us-east-1")
    """The region of the S3 bucket."""
    rsm_config_credentials_file: str | None = _key("rsm.config.credentials.file", None)
    """A file with the lines `access.key.id=...` and `secret.access.key=...`; without it the store is used without
    credentials."""
    rsm_config_timeout_ms: int = _key("rsm.config.timeout.ms", 30_000, minimum=1)
    """An operation of the object store without progress for this time has failed."""
    remote_log_manager_task_interval_ms: int = _key("remote.log.manager.task.interval.ms", 30_000, minimum=1)
    """How often a leader looks for segments to upload and for remote segments to delete."""
    remote_log_reader_cache_bytes: int = _key("remote.log.reader.cache.bytes", 64 << 20, minimum=1 << 20)
    """Memory for parts of remote segments that consumers read."""
    remote_log_reader_chunk_bytes: int = _key("remote.log.reader.chunk.bytes", 4 << 20, minimum=4096)
    """How many bytes of a remote segment are read at once."""
    remote_log_metadata_topic_num_partitions: int = _key(
        "rlmm.config.remote.log.metadata.topic.num.partitions", 50, minimum=1
    )
    """Partitions of `__remote_log_metadata`, when it is created."""
    remote_log_metadata_topic_replication_factor: int = _key(
        "rlmm.config.remote.log.metadata.topic.replication.factor", 3, minimum=1
    )
    """Replicas of `__remote_log_metadata`; it is created only when this many brokers exist."""
    log_local_retention_ms: int = _key("log.local.retention.ms", -2, minimum=-2, topic="local.retention.ms")
    """Local copies of records that are in remote storage are deleted after this time; -2: after `log.retention.ms`, -1:
    never."""
    log_local_retention_bytes: int = _key("log.local.retention.bytes", -2, minimum=-2, topic="local.retention.bytes")
    """Local copies of the oldest segments in remote storage are deleted if the local log is larger than this; -2:
    `log.retention.bytes` applies, -1: never."""

    # consumer groups
    offsets_topic_num_partitions: int = _key("offsets.topic.num.partitions", 50, minimum=1)
    """Partitions of `__consumer_offsets`, when it is created."""
    offsets_topic_replication_factor: int = _key("offsets.topic.replication.factor", 3, minimum=1)
    """Replicas of `__consumer_offsets`; it is created only when this many brokers exist."""
    offsets_topic_segment_bytes: int = _key("offsets.topic.segment.bytes", 100 << 20, minimum=4096)
    """Segment size of `__consumer_offsets`."""
    offsets_commit_timeout_ms: int = _key("offsets.commit.timeout.ms", 5_000, minimum=1)
    """An offset commit that is not committed after this time has failed."""
    offsets_retention_minutes: int = _key("offsets.retention.minutes", 10_080, minimum=1)
    """How long the offsets of a group without members are kept."""
    offsets_retention_check_interval_ms: int = _key("offsets.retention.check.interval.ms", 600_000, minimum=1)
    """How often the broker looks for expired offsets."""
    offset_metadata_max_bytes: int = _key("offset.metadata.max.bytes", 4_096, minimum=0)
    """The longest metadata text of a committed offset."""
    group_initial_rebalance_delay_ms: int = _key("group.initial.rebalance.delay.ms", 3_000, minimum=0)
    """How long an empty group waits for more members before its first assignment."""
    group_min_session_timeout_ms: int = _key("group.min.session.timeout.ms", 6_000, minimum=1)
    """The shortest session timeout that a member may request."""
    group_max_session_timeout_ms: int = _key("group.max.session.timeout.ms", 1_800_000, minimum=1)
    """The longest session timeout that a member may request."""
    group_max_size: int = _key("group.max.size", MAX_INT32, minimum=1)
    """The largest number of members of a group."""
    group_coordinator_max_bytes: int = _key("group.coordinator.max.bytes", 256 << 20, minimum=1 << 20)
    """The memory for all groups that a broker coordinates: half for members, half for offsets ([limits.md](limits.md)).
    """

    # server
    metrics_port: int = _key("metrics.port", 0, minimum=0)
    """Port of the metrics over HTTP, at `/metrics`; 0: no metrics."""
    socket_request_max_bytes: int = _key("socket.request.max.bytes", 100 << 20, minimum=1024)
    """The largest request."""
    max_connections: int = _key("max.connections", 2_000, minimum=1)
    """The largest number of client connections."""
    max_connections_per_ip: int = _key("max.connections.per.ip", MAX_INT32, minimum=0)
    """The largest number of client connections of one address."""
    max_connections_per_ip_overrides: str = _key("max.connections.per.ip.overrides", "")
    """The same for single addresses: `10.0.0.1:100,10.0.0.2:5`."""
    connections_max_idle_ms: int = _key("connections.max.idle.ms", 600_000, minimum=-1)
    """An idle connection is closed after this time; -1: never."""
    queued_max_requests: int = _key("queued.max.requests", 1_000, minimum=1)
    """The number of pending requests of a connection at which the broker stops reading from it."""

    @property
    def addresses(self) -> str:
        """The addresses of the listeners as text for messages."""
        return ", ".join(f"{listener.host}:{listener.port}" for listener in self.listeners)

    @property
    def controller_names(self) -> tuple[str, ...]:
        return parse_names(self.controller_listener_names)

    @property
    def controller_listener(self) -> ListenerEndpoint | None:
        """The listener for controller requests; None for a node that is not a voter, or the only one."""
        return next((listener for listener in self.listeners if listener.name in self.controller_names), None)

    @property
    def controller_protocol(self) -> SecurityProtocol:
        """The security protocol of all controller listeners."""
        names = self.controller_names
        if not names:
            return SecurityProtocol.PLAINTEXT
        return parse_protocols(self.listener_security_protocol_map, names, "configuration")[names[0]]

    @property
    def broker_listeners(self) -> tuple[ListenerEndpoint, ...]:
        """The listeners of clients and of other brokers' replicas, in the order of the file."""
        return tuple(listener for listener in self.listeners if listener.name not in self.controller_names)

    @property
    def inter_broker_listener(self) -> ListenerEndpoint:
        """The listener for other brokers; all brokers have one with this name and protocol."""
        name = self.inter_broker_listener_name
        return next(listener for listener in self.broker_listeners if not name or listener.name == name)

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
        """How long a connection may be silent, in seconds; None (`connections.max.idle.ms` = -1): unlimited."""
        return None if self.connections_max_idle_ms < 0 else max(self.connections_max_idle_ms, 1) / 1000

    @classmethod
    def load(cls, path: Path) -> "BrokerConfig":
        """Read a properties file. Raises `StartupError` naming file, key and remedy."""
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise StartupError(f"{path}: cannot be read: {error.strerror}; give --config a readable file") from error
        return cls.from_properties(parse_properties(text, str(path)), str(path))

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], source: str = "configuration") -> "BrokerConfig":
        """Check and convert properties. Raises `StartupError` for a missing, unknown or malformed key."""
        remaining = dict(properties)
        node_id = integer(source, "node.id", take(remaining, source, "node.id"), 0)
        names = parse_names(remaining.get("controller.listener.names", ""))
        protocols = parse_protocols(remaining.get("listener.security.protocol.map", ""), names, source)
        listeners = parse_listeners(take(remaining, source, "listeners"), protocols, source)
        voters = parse_voters(take(remaining, source, "quorum.voters"), source)
        log_dir = take(remaining, source, "log.dir")
        values: dict[str, Any] = {"source": source, "given": frozenset(properties)}
        values["trace_path"] = remaining.pop("trace.path", None)
        for spec in fields(cls):
            key = spec.metadata.get("key")
            if key is None or key not in remaining:
                continue
            text = remaining.pop(key)
            if isinstance(spec.default, bool):
                values[spec.name] = boolean(source, key, text)
            elif isinstance(spec.default, int):
                values[spec.name] = integer(source, key, text, spec.metadata["minimum"])
            elif isinstance(spec.default, float):
                values[spec.name] = ratio(source, key, text)
            else:
                values[spec.name] = text
        if remaining:
            keys = sorted(f.metadata["key"] for f in fields(cls) if "key" in f.metadata)
            raise StartupError(
                f"{source}: unknown key {sorted(remaining)[0]!r}; remove it or use one of: {', '.join(keys)}"
            )
        config = cls(node_id=node_id, listeners=listeners, voters=voters, log_dir=log_dir, **values)
        config._check(source)
        return config

    def _check(self, source: str) -> None:
        """Raises `StartupError` for keys that contradict each other."""
        parse_overrides(self.max_connections_per_ip_overrides, source)
        if self.broker_lease_ms >= self.broker_session_timeout_ms:
            raise StartupError(
                f"{source}: broker.lease.ms ({self.broker_lease_ms}) must be smaller than broker.session.timeout.ms "
                f"({self.broker_session_timeout_ms}): a leader must stop answering before another can be elected"
            )
        policies = [part.strip() for part in self.log_cleanup_policy.split(",")]
        if not set(policies) <= {"delete", "compact"} or len(set(policies)) < len(policies):
            given = shown(self.log_cleanup_policy)
            raise StartupError(f"{source}: log.cleanup.policy: {given} is not delete, compact or compact,delete")
        check_address(source, "rsm.config.url", self.rsm_config_url)
        check_address(source, "rsm.config.endpoint", self.rsm_config_endpoint)
        if self.remote_log_storage_system_enable and not self.rsm_config_url:
            raise StartupError(
                f"{source}: rsm.config.url is missing: tiered storage needs an object store; add "
                "rsm.config.url=file:///a/directory/of/all/brokers or rsm.config.url=s3://bucket/prefix"
            )
        for key, value, known in (
            ("ssl.client.auth", self.ssl_client_auth, ("none", "requested", "required")),
            ("ssl.endpoint.identification.algorithm", self.ssl_endpoint_identification_algorithm, ("https", "")),
        ):
            if value not in known:
                raise StartupError(f"{source}: {key}: {shown(value)} is not one of {', '.join(map(repr, known))}")
        self._check_listeners(source)

    def _check_listeners(self, source: str) -> None:
        """A quorum of several nodes needs controller listeners: no other listener accepts votes."""
        name = self.inter_broker_listener_name
        if not any(not name or listener.name == name for listener in self.broker_listeners):
            raise StartupError(
                f"{source}: listeners: no listener for brokers and clients"
                + (f" with the name in inter.broker.listener.name, {shown(name)}" if name else "")
                + "; add one that is not in controller.listener.names"
            )
        if all(voter.id == self.node_id for voter in self.voters):
            return
        if not self.controller_names:
            raise StartupError(
                f"{source}: controller.listener.names is missing: nodes of a quorum communicate over controller "
                "listeners; add controller.listener.names=CONTROLLER, add CONTROLLER://host:port to listeners, and "
                "name these ports in quorum.voters"
            )
        if self.is_voter and self.controller_listener is None:
            raise StartupError(
                f"{source}: listeners: a voter of quorum.voters needs one of controller.listener.names="
                f"{self.controller_listener_names}; add {self.controller_names[0]}://host:port"
            )


@cache
def setting_texts() -> Mapping[str, str]:
    """The text of each setting, by its key."""
    texts = field_texts(BrokerConfig)
    keys = {spec.name: spec.metadata.get("key") or spec.metadata.get("needed") for spec in fields(BrokerConfig)}
    return {key: texts[name] for name, key in keys.items() if key}


def parse_voters(text: str, source: str) -> tuple[Endpoint, ...]:
    """Parse `1@n1:9092,2@n2:9092`. Raises `StartupError` for other text, and for a duplicate id (K595-1)."""
    voters = []
    for part in text.split(","):
        identifier, at, address = part.strip().partition("@")
        host, colon, port = address.rpartition(":")
        host = host.strip("[]")  # of an IPv6 address
        if not (at and colon and host and is_number(identifier, MAX_INT32) and is_port(port)):
            raise StartupError(f"{source}: quorum.voters: {shown(part.strip())} is not of the form id@host:port")
        voters.append(Endpoint(int(identifier), host, int(port)))
    if len({voter.id for voter in voters}) != len(voters):
        raise StartupError(f"{source}: quorum.voters: an id is given twice in {text!r}; each voter needs its own")
    return tuple(voters)


def parse_overrides(text: str, source: str) -> dict[str, int]:
    """Parse `10.0.0.1:100,10.0.0.2:5`, or nothing. Raises `StartupError` for other text, including host names."""
    bounds: dict[str, int] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        address, _, count = part.rpartition(":")
        try:
            address = str(ipaddress.ip_address(address.strip("[]")))
        except ValueError:
            address = ""
        if not address or not is_number(count, MAX_INT32):
            raise StartupError(
                f"{source}: max.connections.per.ip.overrides: {shown(part)} is not of the form address:count, such as "
                "10.0.0.1:100; host names are not supported"
            )
        bounds[address] = int(count)
    return bounds

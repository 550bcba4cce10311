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


def _key(name: str, default: Any, *, minimum: int | None = None) -> Any:
    """A field with the value of the property `name`."""
    return field(default=default, metadata={"key": name, "minimum": minimum})


@dataclass(frozen=True)
class BrokerConfig:
    """The configuration of one broker. `node_id`, `voters` and `log_dir` have no defaults; all keys have Kafka's
    meaning.

    `quorum.voters` lists `id@host:port`; a broker that is not in it is an observer of the metadata quorum.
    """

    node_id: int
    listeners: tuple[ListenerEndpoint, ...]
    voters: tuple[Endpoint, ...]
    log_dir: str
    trace_path: str | None = None
    cluster_id: str | None = _key("cluster.id", None)
    """None: the first controller makes an id, and brokers without one adopt the cluster's."""
    source: str = field(default="configuration", compare=False)
    """The file's name, for messages."""
    given: frozenset[str] = field(default=frozenset(), compare=False)
    """The keys that the file contains."""

    # listeners
    listener_security_protocol_map: str = _key("listener.security.protocol.map", "")
    controller_listener_names: str = _key("controller.listener.names", "")
    inter_broker_listener_name: str = _key("inter.broker.listener.name", "")
    """Empty: the first listener that is not a controller listener."""

    # security
    ssl_keystore_location: str | None = _key("ssl.keystore.location", None)
    """A PEM file with this broker's private key and its certificates."""
    ssl_truststore_location: str | None = _key("ssl.truststore.location", None)
    ssl_client_auth: str = _key("ssl.client.auth", "none")
    ssl_endpoint_identification_algorithm: str = _key("ssl.endpoint.identification.algorithm", "https")
    sasl_enabled_mechanisms: str = _key("sasl.enabled.mechanisms", "SCRAM-SHA-256,SCRAM-SHA-512")
    sasl_mechanism_inter_broker_protocol: str = _key("sasl.mechanism.inter.broker.protocol", "SCRAM-SHA-512")
    sasl_plain_without_tls: bool = _key("sasl.plain.without.tls", False)
    sasl_server_max_receive_size: int = _key("sasl.server.max.receive.size", 64 << 10, minimum=8 << 10)
    """Kafka's default is 512 KB. With this one `max.connections` such requests fit into the memory of all receive
    buffers, and the longest token fits into the smallest buffer."""
    connections_max_reauth_ms: int = _key("connections.max.reauth.ms", 0, minimum=0)
    """0: an authentication is valid until the connection ends."""
    sasl_users_file: str | None = _key("sasl.users.file", None)
    sasl_inter_broker_credentials_file: str | None = _key("sasl.inter.broker.credentials.file", None)
    authorizer_class_name: str = _key("authorizer.class.name", "")
    super_users: str = _key("super.users", "")
    allow_everyone_if_no_acl_found: bool = _key("allow.everyone.if.no.acl.found", False)

    # metadata quorum (KIP-595)
    quorum_fetch_timeout_ms: int = _key("quorum.fetch.timeout.ms", 1_000, minimum=1)
    quorum_election_timeout_ms: int = _key("quorum.election.timeout.ms", 700, minimum=1)
    quorum_election_backoff_max_ms: int = _key("quorum.election.backoff.max.ms", 300, minimum=1)
    quorum_request_timeout_ms: int = _key("quorum.request.timeout.ms", 1_000, minimum=1)
    quorum_retry_backoff_ms: int = _key("quorum.retry.backoff.ms", 20, minimum=1)
    quorum_retry_backoff_max_ms: int = _key("quorum.retry.backoff.max.ms", 500, minimum=1)

    metadata_log_max_record_bytes_between_snapshots: int = _key(
        "metadata.log.max.record.bytes.between.snapshots", 20 << 20, minimum=1
    )
    metadata_log_max_snapshot_interval_ms: int = _key("metadata.log.max.snapshot.interval.ms", 3_600_000, minimum=0)

    # controller and registration
    broker_session_timeout_ms: int = _key("broker.session.timeout.ms", 1_500, minimum=1)
    broker_heartbeat_interval_ms: int = _key("broker.heartbeat.interval.ms", 300, minimum=1)
    broker_lease_ms: int = _key("broker.lease.ms", 1_200, minimum=1)

    # partitions
    min_insync_replicas: int = _key("min.insync.replicas", 1, minimum=1)
    default_replication_factor: int = _key("default.replication.factor", 1, minimum=1)
    num_partitions: int = _key("num.partitions", 1, minimum=1)
    unclean_leader_election_enable: bool = _key("unclean.leader.election.enable", False)
    replica_lag_time_max_ms: int = _key("replica.lag.time.max.ms", 3_000, minimum=1)
    replica_fetch_wait_max_ms: int = _key("replica.fetch.wait.max.ms", 500, minimum=1)
    replica_fetch_max_bytes: int = _key("replica.fetch.max.bytes", 1 << 20, minimum=1)
    follower_fetch_last_tiered_offset_enable: bool = _key("follower.fetch.last.tiered.offset.enable", False)
    follower_fetch_last_tiered_offset_timeout_ms: int = _key(
        "follower.fetch.last.tiered.offset.timeout.ms", 60_000, minimum=1
    )
    tiered_replicas_lead_last_enable: bool = _key("tiered.replicas.lead.last.enable", False)
    replica_fetch_backoff_ms: int = _key("replica.fetch.backoff.ms", 100, minimum=1)
    replica_socket_timeout_ms: int = _key("replica.socket.timeout.ms", 2_000, minimum=1)
    high_watermark_checkpoint_interval_ms: int = _key("replica.high.watermark.checkpoint.interval.ms", 1_000, minimum=1)

    # log
    log_segment_bytes: int = _key("log.segment.bytes", 1 << 30, minimum=4096)
    log_roll_ms: int = _key("log.roll.ms", 604_800_000, minimum=1)
    log_segment_delete_delay_ms: int = _key("log.segment.delete.delay.ms", 60_000, minimum=0)
    log_message_timestamp_after_max_ms: int = _key("log.message.timestamp.after.max.ms", 3_600_000, minimum=0)
    log_message_timestamp_before_max_ms: int = _key("log.message.timestamp.before.max.ms", MAX_INT64, minimum=0)
    log_index_interval_bytes: int = _key("log.index.interval.bytes", 4096, minimum=1)
    log_flush_offset_checkpoint_interval_ms: int = _key("log.flush.offset.checkpoint.interval.ms", 1_000, minimum=1)
    """Kafka's default is a minute. Here the file is written only when a recovery point has changed."""
    log_flush_interval_messages: int = _key("log.flush.interval.messages", 0, minimum=0)
    producer_id_expiration_ms: int = _key("producer.id.expiration.ms", 86_400_000, minimum=1)
    producer_id_expiration_check_interval_ms: int = _key("producer.id.expiration.check.interval.ms", 600_000, minimum=1)
    message_max_bytes: int = _key("message.max.bytes", 8 << 20, minimum=1)

    log_cleanup_policy: str = _key("log.cleanup.policy", "delete")
    log_cleaner_backoff_ms: int = _key("log.cleaner.backoff.ms", 15_000, minimum=1)
    log_cleaner_min_cleanable_ratio: float = _key("log.cleaner.min.cleanable.ratio", 0.5)
    log_cleaner_min_compaction_lag_ms: int = _key("log.cleaner.min.compaction.lag.ms", 0, minimum=0)
    log_cleaner_delete_retention_ms: int = _key("log.cleaner.delete.retention.ms", 86_400_000, minimum=0)
    log_retention_ms: int = _key("log.retention.ms", -1, minimum=-1)
    """-1 (Kafka: seven days): nothing is deleted by default."""
    log_retention_bytes: int = _key("log.retention.bytes", -1, minimum=-1)
    log_retention_check_interval_ms: int = _key("log.retention.check.interval.ms", 300_000, minimum=1)
    auto_create_topics_enable: bool = _key("auto.create.topics.enable", False)

    # tiered storage (KIP-405)
    remote_log_storage_system_enable: bool = _key("remote.log.storage.system.enable", False)
    rsm_config_url: str = _key("rsm.config.url", "")
    rsm_config_endpoint: str = _key("rsm.config.endpoint", "")
    rsm_config_region: str = _key("rsm.config.region", "us-east-1")
    rsm_config_credentials_file: str | None = _key("rsm.config.credentials.file", None)
    rsm_config_timeout_ms: int = _key("rsm.config.timeout.ms", 30_000, minimum=1)
    remote_log_manager_task_interval_ms: int = _key("remote.log.manager.task.interval.ms", 30_000, minimum=1)
    remote_log_reader_cache_bytes: int = _key("remote.log.reader.cache.bytes", 64 << 20, minimum=1 << 20)
    remote_log_reader_chunk_bytes: int = _key("remote.log.reader.chunk.bytes", 4 << 20, minimum=4096)
    remote_log_metadata_topic_num_partitions: int = _key(
        "rlmm.config.remote.log.metadata.topic.num.partitions", 50, minimum=1
    )
    remote_log_metadata_topic_replication_factor: int = _key(
        "rlmm.config.remote.log.metadata.topic.replication.factor", 3, minimum=1
    )
    log_local_retention_ms: int = _key("log.local.retention.ms", -2, minimum=-2)
    log_local_retention_bytes: int = _key("log.local.retention.bytes", -2, minimum=-2)

    # consumer groups
    offsets_topic_num_partitions: int = _key("offsets.topic.num.partitions", 50, minimum=1)
    offsets_topic_replication_factor: int = _key("offsets.topic.replication.factor", 3, minimum=1)
    offsets_topic_segment_bytes: int = _key("offsets.topic.segment.bytes", 100 << 20, minimum=4096)
    offsets_commit_timeout_ms: int = _key("offsets.commit.timeout.ms", 5_000, minimum=1)
    offsets_retention_minutes: int = _key("offsets.retention.minutes", 10_080, minimum=1)
    offsets_retention_check_interval_ms: int = _key("offsets.retention.check.interval.ms", 600_000, minimum=1)
    offset_metadata_max_bytes: int = _key("offset.metadata.max.bytes", 4_096, minimum=0)
    group_initial_rebalance_delay_ms: int = _key("group.initial.rebalance.delay.ms", 3_000, minimum=0)
    group_min_session_timeout_ms: int = _key("group.min.session.timeout.ms", 6_000, minimum=1)
    group_max_session_timeout_ms: int = _key("group.max.session.timeout.ms", 1_800_000, minimum=1)
    group_max_size: int = _key("group.max.size", MAX_INT32, minimum=1)
    group_coordinator_max_bytes: int = _key("group.coordinator.max.bytes", 256 << 20, minimum=1 << 20)
    """Half for members, half for offsets; see `broker.groups.memory_quota`."""

    # server
    metrics_port: int = _key("metrics.port", 0, minimum=0)
    """0: no metrics listener."""
    socket_request_max_bytes: int = _key("socket.request.max.bytes", 100 << 20, minimum=1024)
    max_connections: int = _key("max.connections", 2_000, minimum=1)
    max_connections_per_ip: int = _key("max.connections.per.ip", MAX_INT32, minimum=0)
    max_connections_per_ip_overrides: str = _key("max.connections.per.ip.overrides", "")
    connections_max_idle_ms: int = _key("connections.max.idle.ms", 600_000, minimum=-1)
    queued_max_requests: int = _key("queued.max.requests", 1_000, minimum=1)

    @property
    def addresses(self) -> str:
        """The addresses of the listeners as text for messages."""
        return ", ".join(f"{each.host}:{each.port}" for each in self.listeners)

    @property
    def controller_names(self) -> tuple[str, ...]:
        return parse_names(self.controller_listener_names)

    @property
    def controller_listener(self) -> ListenerEndpoint | None:
        """The listener for controller requests; None for a node that is not a voter, or the only one."""
        return next((each for each in self.listeners if each.name in self.controller_names), None)

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
        return tuple(each for each in self.listeners if each.name not in self.controller_names)

    @property
    def inter_broker_listener(self) -> ListenerEndpoint:
        """The listener for other brokers; all brokers have one with this name and protocol."""
        name = self.inter_broker_listener_name
        return next(each for each in self.broker_listeners if not name or each.name == name)

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
        node_id = integer(source, "node.id", take(rest, source, "node.id"), 0)
        names = parse_names(rest.get("controller.listener.names", ""))
        protocols = parse_protocols(rest.get("listener.security.protocol.map", ""), names, source)
        listeners = parse_listeners(take(rest, source, "listeners"), protocols, source)
        voters = parse_voters(take(rest, source, "quorum.voters"), source)
        log_dir = take(rest, source, "log.dir")
        values: dict[str, Any] = {"source": source, "given": frozenset(properties)}
        values["trace_path"] = rest.pop("trace.path", None)
        for spec in fields(cls):
            key = spec.metadata.get("key")
            if key is None or key not in rest:
                continue
            text = rest.pop(key)
            if isinstance(spec.default, bool):
                values[spec.name] = boolean(source, key, text)
            elif isinstance(spec.default, int):
                values[spec.name] = integer(source, key, text, spec.metadata["minimum"])
            elif isinstance(spec.default, float):
                values[spec.name] = ratio(source, key, text)
            else:
                values[spec.name] = text
        if rest:
            known = sorted(f.metadata["key"] for f in fields(cls) if "key" in f.metadata)
            raise StartupError(
                f"{source}: unknown key {sorted(rest)[0]!r}; remove it or use one of: {', '.join(known)}"
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
        if not any(not name or each.name == name for each in self.broker_listeners):
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


def parse_voters(text: str, source: str) -> tuple[Endpoint, ...]:
    """Parse `1@n1:9092,2@n2:9092`. Raises `StartupError` for other text, and for a duplicate id (K595-1)."""
    voters = []
    for part in text.split(","):
        identifier, at, address = part.strip().partition("@")
        host, colon, port = address.rpartition(":")
        if not (at and colon and host and is_number(identifier, MAX_INT32) and is_port(port)):
            raise StartupError(f"{source}: quorum.voters: {shown(part.strip())} is not of the form id@host:port")
        voters.append(Endpoint(int(identifier), host, int(port)))
    if len({voter.id for voter in voters}) != len(voters):
        raise StartupError(f"{source}: quorum.voters: an id is given twice in {text!r}; each voter needs its own")
    return tuple(voters)


def parse_overrides(text: str, source: str) -> dict[str, int]:
    """Parse `10.0.0.1:100,10.0.0.2:5`, or nothing. Raises `StartupError` for other text, including host names."""
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
                "10.0.0.1:100; host names are not supported"
            )
        bounds[address] = int(count)
    return bounds

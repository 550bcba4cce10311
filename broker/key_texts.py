"""What the configuration's keys say: the text of docs/by-hand.md, which a test keeps complete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

REQUIRED: Final[Mapping[str, str]] = {
    "node.id": "the broker's number, which no other has; also its id as a voter",
    "listeners": "where it listens, and what it is known by to others: `NAME://host:port,...`",
    "quorum.voters": (
        "all voters of the metadata quorum, `id@host:port,...`, the same on every broker; one that is "
        "not in the list is an observer"
    ),
    "log.dir": "its data directory, which no other process may use",
}
"""The keys without a default."""

OPTIONAL: Final[Mapping[str, str]] = {
    "cluster.id": (
        "the cluster's id, which every broker must have; without it the first controller makes one, and "
        "whoever has none takes the cluster's over"
    ),
    "listener.security.protocol.map": (
        "`NAME:PROTOCOL,...` with `PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`; a listener that is "
        "called as a protocol has it, and controllers' have `PLAINTEXT` ([security.md](security.md))"
    ),
    "controller.listener.names": (
        "the listeners at which nodes of the metadata quorum and controllers are asked; needed where "
        "there is more than one voter"
    ),
    "inter.broker.listener.name": "where brokers find each other; without it at the first that is no controller's",
    "ssl.keystore.location": "a file in PEM with this broker's private key and its certificates",
    "ssl.truststore.location": "a file in PEM with the certificates that are trusted",
    "ssl.client.auth": "whether clients show a certificate: `none`, `requested`, `required`",
    "ssl.endpoint.identification.algorithm": (
        "`https`: brokers compare the name of the host that they connect to with the certificate; empty: they do not"
    ),
    "sasl.enabled.mechanisms": "how clients may say who they are",
    "sasl.mechanism.inter.broker.protocol": "how brokers say it",
    "sasl.plain.without.tls": "whether passwords may be sent in the clear",
    "sasl.server.max.receive.size": "the largest request of a client that has not said yet who it is, in bytes",
    "connections.max.reauth.ms": (
        "how long it is believed that a client is who it has said; 0: as long as its connection lasts"
    ),
    "sasl.users.file": "a file with users and their passwords",
    "sasl.inter.broker.credentials.file": "a file with the name and password of this broker",
    "authorizer.class.name": "what decides who may do what; without it everybody may everything",
    "super.users": "who may do everything",
    "allow.everyone.if.no.acl.found": "whether everybody may do what no rule speaks of",
    "quorum.fetch.timeout.ms": (
        "without a word from the leader for so long, a voter stands for election; a leader that hears of "
        "no majority for 1.5 times as long resigns"
    ),
    "quorum.election.timeout.ms": "how long a candidate waits for votes",
    "quorum.election.backoff.max.ms": "the longest random delay before an election",
    "quorum.request.timeout.ms": "past it a request to another node has failed, and its connection is dropped",
    "quorum.retry.backoff.ms": "the first delay before a request is sent again; it doubles",
    "quorum.retry.backoff.max.ms": "the longest of these delays",
    "metadata.log.max.record.bytes.between.snapshots": "so many bytes of metadata records make a new snapshot",
    "metadata.log.max.snapshot.interval.ms": (
        "so much time after the last snapshot there is a new one, if the log has grown; 0: only bytes count"
    ),
    "broker.session.timeout.ms": (
        "a broker that the controller has not heard of for so long is fenced; a new controller waits for the longest "
        "that an earlier one had, as long as leases of that may last"
    ),
    "broker.heartbeat.interval.ms": "how often a broker tells the controller that it lives",
    "broker.lease.ms": (
        "for so long after a heartbeat a broker acts as a leader, by the controller's file; shorter than the session, "
        "so that nobody answers who has been replaced: at most four fifths of it, where clocks gain or lose up to 10 %"
    ),
    "min.insync.replicas": (
        "in-sync replicas without which nothing is committed, of topics that do not say themselves; the first "
        "controller writes its own into the metadata, and from then on "
        "[the cluster's counts](limits.md#minimum-of-in-sync-replicas)"
    ),
    "default.replication.factor": "replicas of a topic whose creator does not say",
    "num.partitions": "partitions of a topic whose creator does not say",
    "unclean.leader.election.enable": "whether a replica that may lack committed records may lead when nobody else can",
    "replica.lag.time.max.ms": "a replica that has not caught up for so long leaves the ISR",
    "replica.fetch.wait.max.ms": "how long a follower's fetch waits for something new",
    "replica.fetch.max.bytes": "the most that a follower takes of a partition at once",
    "replica.fetch.backoff.ms": "a follower's pause after an error",
    "replica.socket.timeout.ms": "a fetch of a follower that makes no progress for so long has failed",
    "replica.high.watermark.checkpoint.interval.ms": "how often high watermarks are written",
    "log.segment.bytes": "the size at which a segment of a log is complete",
    "log.index.interval.bytes": "bytes of a segment for each entry of its index",
    "log.flush.offset.checkpoint.interval.ms": "how often it is written up to where logs are on disk",
    "log.flush.interval.messages": (
        "1: a record counts for the ISR once it is on disk; 0: once it is in the page cache (nothing "
        "else has a meaning here)"
    ),
    "producer.id.expiration.ms": "a producer that has not written for so long is forgotten",
    "producer.id.expiration.check.interval.ms": "how often that is looked for",
    "message.max.bytes": "the largest batch",
    "log.cleanup.policy": "`delete`, `compact` or `compact,delete`",
    "log.cleaner.backoff.ms": "how often logs are looked for that can be compacted",
    "log.cleaner.min.cleanable.ratio": "the part of a log that must be new before it is compacted, 0 to 1",
    "log.cleaner.min.compaction.lag.ms": "records younger than this are not compacted",
    "log.cleaner.delete.retention.ms": "how long compaction keeps tombstones",
    "log.retention.ms": "records older than this are deleted; -1, unlike Kafka's seven days: never",
    "log.retention.bytes": "the size of a log past which its oldest segments are deleted; -1: never",
    "log.retention.check.interval.ms": "how often that is looked for",
    "auto.create.topics.enable": "whether a topic is created when a producer or consumer asks for it",
    "offsets.topic.num.partitions": "partitions of `__consumer_offsets`, when it is created",
    "offsets.topic.replication.factor": "its replicas; it is not created before there are as many brokers",
    "offsets.topic.segment.bytes": "its segments' size",
    "offsets.commit.timeout.ms": "past it a commit of offsets that is not committed has failed",
    "offsets.retention.minutes": "how long the offsets of a group without members are kept",
    "offsets.retention.check.interval.ms": "how often that is looked for",
    "offset.metadata.max.bytes": "the longest text that may be committed with an offset",
    "group.initial.rebalance.delay.ms": "how long an empty group waits for more members before it assigns anything",
    "group.min.session.timeout.ms": "the shortest session that a member may ask for",
    "group.max.session.timeout.ms": "the longest one",
    "group.max.size": "the most members of a group",
    "group.coordinator.max.bytes": (
        "the most memory for all groups that a broker coordinates: half for members, half for offsets "
        "([limits.md](limits.md))"
    ),
    "metrics.port": "where metrics are served over HTTP, at `/metrics`; 0: nowhere",
    "socket.request.max.bytes": "the largest request",
    "max.connections": "the most connections of clients",
    "max.connections.per.ip": "the most of one address",
    "max.connections.per.ip.overrides": "the same for single addresses: `10.0.0.1:100,10.0.0.2:5`",
    "connections.max.idle.ms": "a connection on which nothing moves for so long is closed; -1: never",
    "queued.max.requests": "requests that may wait at a time; past that nothing more is read",
}
"""The others, as `BrokerConfig` has them."""

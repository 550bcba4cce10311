"""Descriptions of the broker's settings, by key: the source of docs/by-hand.md. A test keeps them complete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

REQUIRED: Final[Mapping[str, str]] = {
    "node.id": "the broker's number, unique in the cluster; also its id as a voter",
    "listeners": "the addresses at which the broker listens and which it advertises: `NAME://host:port,...`",
    "quorum.voters": (
        "all voters of the metadata quorum, `id@host:port,...`, identical on every broker; a broker that is not in "
        "the list is an observer"
    ),
    "log.dir": "the data directory; no other process may use it",
}
"""The keys without a default."""

OPTIONAL: Final[Mapping[str, str]] = {
    "cluster.id": (
        "the cluster's id, identical on every broker; without it the first controller generates one, and a broker "
        "without an id adopts the cluster's"
    ),
    "listener.security.protocol.map": (
        "`NAME:PROTOCOL,...` with `PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`; a listener named like a "
        "protocol uses that protocol, a listener for controllers uses `PLAINTEXT` by default "
        "([security.md](security.md))"
    ),
    "controller.listener.names": (
        "the listeners for requests of the metadata quorum and to the controller; required with more than one voter"
    ),
    "inter.broker.listener.name": (
        "the listener for replication between brokers; default: the first that is not for controllers"
    ),
    "ssl.keystore.location": "PEM file with this broker's private key and certificates",
    "ssl.truststore.location": "PEM file with the trusted certificates",
    "ssl.client.auth": "whether clients present a certificate: `none`, `requested`, `required`",
    "ssl.endpoint.identification.algorithm": (
        "`https`: brokers verify the host name of the broker that they connect to against its certificate; empty: "
        "no verification"
    ),
    "sasl.enabled.mechanisms": "the SASL mechanisms for clients",
    "sasl.mechanism.inter.broker.protocol": "the SASL mechanism with which this broker authenticates to others",
    "sasl.plain.without.tls": "whether PLAIN is allowed without TLS, which sends passwords in the clear",
    "sasl.server.max.receive.size": "the largest request of a client that has not authenticated yet, in bytes",
    "connections.max.reauth.ms": "how long an authentication is valid; 0: as long as its connection",
    "sasl.users.file": "a file with users and their passwords",
    "sasl.inter.broker.credentials.file": "a file with the name and password of this broker",
    "authorizer.class.name": "the authorizer, which enforces ACLs; without it every user has all permissions",
    "super.users": "users with all permissions",
    "allow.everyone.if.no.acl.found": "whether every user may use a resource without ACLs",
    "quorum.fetch.timeout.ms": (
        "a voter that has no answer from the leader for this time stands for election; a leader that has no fetch "
        "from a majority for 1.5 times this time resigns"
    ),
    "quorum.election.timeout.ms": "how long a candidate waits for votes",
    "quorum.election.backoff.max.ms": "the longest random delay before an election",
    "quorum.request.timeout.ms": "after this time a request to another node has failed and its connection is closed",
    "quorum.retry.backoff.ms": "the first delay before a request is repeated; it doubles with each repetition",
    "quorum.retry.backoff.max.ms": "the longest of these delays",
    "metadata.log.max.record.bytes.between.snapshots": (
        "a new snapshot is written after this many bytes of metadata records"
    ),
    "metadata.log.max.snapshot.interval.ms": (
        "a new snapshot is written this time after the last one if the log has grown; 0: only bytes count"
    ),
    "broker.session.timeout.ms": (
        "the controller fences a broker without a heartbeat for this time; a new controller waits for the longest "
        "timeout of its predecessors after they were last heard, because leases under it may still be valid"
    ),
    "broker.heartbeat.interval.ms": "how often a broker sends a heartbeat to the controller",
    "broker.lease.ms": (
        "how long a broker may act as leader after the controller has proven that it leads; the controller's value "
        "applies. A value above 9/11 of the session timeout counts as 9/11, so that the lease ends before another "
        "broker can lead even if clocks are 10 % fast or slow"
    ),
    "min.insync.replicas": (
        "in-sync replicas that a commit needs, for topics without their own value; the first controller writes its "
        "value into the metadata, and from then on [the cluster's value](limits.md#minimum-of-in-sync-replicas) "
        "applies"
    ),
    "default.replication.factor": "replicas of a topic whose creator gives no number",
    "num.partitions": "partitions of a topic whose creator gives no number",
    "unclean.leader.election.enable": (
        "whether a replica that may lack committed records may lead if no other replica can"
    ),
    "replica.lag.time.max.ms": "a replica that has not caught up for this time leaves the ISR",
    "replica.fetch.wait.max.ms": "how long a follower's fetch waits for new records",
    "replica.fetch.max.bytes": "the largest part of a partition that a follower fetches at once",
    "follower.fetch.last.tiered.offset.enable": (
        "whether an empty follower of a topic with remote storage starts after the last tiered offset, not at the "
        "leader's local log start (KIP-1023); a value for all brokers in the metadata has precedence"
    ),
    "follower.fetch.last.tiered.offset.timeout.ms": (
        "after this time a follower whose leader does not know its last tiered offset starts at the leader's local log "
        "start"
    ),
    "tiered.replicas.lead.last.enable": (
        "whether a replica that started after the last tiered offset is the last choice in elections; the "
        "controller's value applies, and a value for all brokers in the metadata has precedence"
    ),
    "replica.fetch.backoff.ms": "a follower's pause after an error",
    "replica.socket.timeout.ms": "a follower's fetch without progress for this time has failed",
    "replica.high.watermark.checkpoint.interval.ms": "how often high watermarks are written to disk",
    "log.segment.bytes": "the size at which a segment of a log is complete",
    "log.roll.ms": (
        "the age at which a segment of a log is complete, measured by the timestamps of its records; it ends with the "
        "next record"
    ),
    "log.segment.delete.delay.ms": (
        "how long the files of removed segments remain, renamed to `*.deleted`, before they are unlinked"
    ),
    "log.message.timestamp.after.max.ms": "how far the timestamp of a record may be ahead of the broker's clock",
    "log.message.timestamp.before.max.ms": "how far the timestamp of a record may be behind the broker's clock",
    "log.index.interval.bytes": "bytes of a segment per index entry",
    "log.flush.offset.checkpoint.interval.ms": "how often recovery points are written to disk",
    "log.flush.interval.messages": (
        "1: a record counts as replicated after it is on disk; 0: after it is in the page cache (other values are "
        "not supported)"
    ),
    "producer.id.expiration.ms": "a producer that has not written for this time is forgotten",
    "producer.id.expiration.check.interval.ms": "how often the broker checks for expired producers",
    "message.max.bytes": "the largest batch",
    "log.cleanup.policy": "`delete`, `compact` or `compact,delete`",
    "log.cleaner.backoff.ms": "how often the broker looks for logs to compact",
    "log.cleaner.min.cleanable.ratio": "the share of a log that must be new before it is compacted, 0 to 1",
    "log.cleaner.min.compaction.lag.ms": "records younger than this are not compacted",
    "log.cleaner.delete.retention.ms": "how long compaction keeps tombstones",
    "log.retention.ms": "records older than this are deleted; -1: never (Kafka's default is seven days)",
    "log.retention.bytes": "if a log is larger than this, its oldest segments are deleted; -1: never",
    "log.retention.check.interval.ms": "how often the broker looks for segments to delete",
    "auto.create.topics.enable": "whether a producer's or consumer's metadata request creates an unknown topic",
    "remote.log.storage.system.enable": (
        "whether topics may use tiered storage ([tiered.md](tiered.md)); identical on every broker"
    ),
    "rsm.config.url": (
        "the object store of tiered storage: `file:///directory`, shared by all brokers, or `s3://bucket/prefix`"
    ),
    "rsm.config.endpoint": "the address of an S3-compatible service; empty: that of AWS",
    "rsm.config.region": "the region of the S3 bucket",
    "rsm.config.credentials.file": (
        "a file with the lines `access.key.id=...` and `secret.access.key=...`; without it the store is used without "
        "credentials"
    ),
    "rsm.config.timeout.ms": "an operation of the object store without progress for this time has failed",
    "remote.log.manager.task.interval.ms": (
        "how often a leader looks for segments to upload and for remote segments to delete"
    ),
    "remote.log.reader.cache.bytes": "memory for parts of remote segments that consumers read",
    "remote.log.reader.chunk.bytes": "how many bytes of a remote segment are read at once",
    "rlmm.config.remote.log.metadata.topic.num.partitions": (
        "partitions of `__remote_log_metadata`, when it is created"
    ),
    "rlmm.config.remote.log.metadata.topic.replication.factor": (
        "replicas of `__remote_log_metadata`; it is created only when this many brokers exist"
    ),
    "log.local.retention.ms": (
        "local copies of records that are in remote storage are deleted after this time; -2: after "
        "`log.retention.ms`, -1: never"
    ),
    "log.local.retention.bytes": (
        "local copies of the oldest segments in remote storage are deleted if the local log is larger than this; -2: "
        "`log.retention.bytes` applies, -1: never"
    ),
    "offsets.topic.num.partitions": "partitions of `__consumer_offsets`, when it is created",
    "offsets.topic.replication.factor": (
        "replicas of `__consumer_offsets`; it is created only when this many brokers exist"
    ),
    "offsets.topic.segment.bytes": "segment size of `__consumer_offsets`",
    "offsets.commit.timeout.ms": "an offset commit that is not committed after this time has failed",
    "offsets.retention.minutes": "how long the offsets of a group without members are kept",
    "offsets.retention.check.interval.ms": "how often the broker looks for expired offsets",
    "offset.metadata.max.bytes": "the longest metadata text of a committed offset",
    "group.initial.rebalance.delay.ms": "how long an empty group waits for more members before its first assignment",
    "group.min.session.timeout.ms": "the shortest session timeout that a member may request",
    "group.max.session.timeout.ms": "the longest session timeout that a member may request",
    "group.max.size": "the largest number of members of a group",
    "group.coordinator.max.bytes": (
        "the memory for all groups that a broker coordinates: half for members, half for offsets "
        "([limits.md](limits.md))"
    ),
    "metrics.port": "port of the metrics over HTTP, at `/metrics`; 0: no metrics",
    "socket.request.max.bytes": "the largest request",
    "max.connections": "the largest number of client connections",
    "max.connections.per.ip": "the largest number of client connections of one address",
    "max.connections.per.ip.overrides": "the same for single addresses: `10.0.0.1:100,10.0.0.2:5`",
    "connections.max.idle.ms": "an idle connection is closed after this time; -1: never",
    "queued.max.requests": "the number of pending requests of a connection at which the broker stops reading from it",
}
"""The keys with a default, in the order of `BrokerConfig`."""

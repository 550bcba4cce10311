"""BrokerHeartbeat (63)."""

from __future__ import annotations

from typing import Annotated

from broker.protocol.schema import NO_ID, Bool, Int16, Int32, Int64, Message, ServedApi, Tag, Uuid, v

LEASE_TAG = 10_000
"""Far above the tags that Apache Kafka assigns."""
TIERED_STARTS_TAG = 10_001


class TieredStarts(Message):
    """The partitions of a topic whose replicas started after the last tiered offset (KIP-1023)."""

    topic_id: Uuid = NO_ID
    partitions: list[Int32] = []


class BrokerHeartbeatRequest(Message):
    API = ServedApi(63, v("0-1"), advertised=v("none"), operation="CLUSTER_ACTION")
    VERSIONS = v("0-1")
    FLEXIBLE = v("0+")

    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    current_metadata_offset: Int64 = 0
    want_fence: Bool = False
    want_shut_down: Bool = False
    offline_log_dirs: Annotated[list[Uuid], v("1+"), Tag(0)] = []
    tiered_starts: Annotated[list[TieredStarts], Tag(TIERED_STARTS_TAG)] = []
    """The broker's replicas with few local records. Apache Kafka has no such field."""


class BrokerHeartbeatResponse(Message):
    VERSIONS = v("0-1")
    FLEXIBLE = v("0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    is_caught_up: Bool = False
    is_fenced: Bool = True
    should_shut_down: Bool = False
    lease_ms: Annotated[Int64, Tag(LEASE_TAG)] = 0
    """How long after it sent the request the broker may act as a leader, in ms. Apache Kafka has no leases."""

"""ConsumerGroupHeartbeat (68, KIP-848)."""

from __future__ import annotations

from typing import Annotated

from broker.protocol.schema import NO_ID, Int8, Int16, Int32, Message, ServedApi, String, Uuid, v

ABSENT = -1
"""Stands for a structure that is null."""


class TopicPartitions(Message):
    topic_id: Uuid = NO_ID
    partitions: list[Int32] = []


class ConsumerGroupHeartbeatRequest(Message):
    API = ServedApi(68, v("0-1"), operation="none")
    VERSIONS = v("0-1")
    FLEXIBLE = v("0+")

    group_id: String = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    instance_id: String | None = None
    rack_id: String | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: list[String] | None = None
    subscribed_topic_regex: Annotated[String | None, v("1+")] = None
    server_assignor: String | None = None
    topic_partitions: list[TopicPartitions] | None = None


class ConsumerGroupHeartbeatResponse(Message):
    VERSIONS = v("0-1")
    FLEXIBLE = v("0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    member_id: String | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Int8 = ABSENT
    """No member has one."""

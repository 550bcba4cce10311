"""ElectLeaders (43): KIP-183, KIP-460."""

from __future__ import annotations

from typing import Annotated

from broker.protocol.schema import Int8, Int16, Int32, Message, ServedApi, String, v

PREFERRED, UNCLEAN = 0, 1
"""The values of `election_type`; before version 1 only elections of the preferred replica exist."""


class TopicPartitions(Message):
    topic: String = ""
    partitions: list[Int32] = []


class ElectLeadersRequest(Message):
    """`topic_partitions` None: all partitions."""

    API = ServedApi(43, v("0-2"), operation="ALTER")
    VERSIONS = v("0-2")
    FLEXIBLE = v("2+")

    election_type: Annotated[Int8, v("1+")] = PREFERRED
    topic_partitions: list[TopicPartitions] | None = []
    timeout_ms: Int32 = 60_000


class PartitionResult(Message):
    partition_id: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""


class ReplicaElectionResult(Message):
    topic: String = ""
    partition_result: list[PartitionResult] = []


class ElectLeadersResponse(Message):
    VERSIONS = v("0-2")
    FLEXIBLE = v("2+")

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, v("1+")] = 0
    replica_election_results: list[ReplicaElectionResult] = []

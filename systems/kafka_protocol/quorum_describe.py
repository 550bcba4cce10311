"""Asks a metadata quorum's leader for its state and prints it as Kafka's tool does (KIP-595)."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from broker.errors import ErrorCode
from broker.protocol.messages.cluster_apis import MetadataRequest, MetadataResponse
from broker.protocol.messages.quorum_apis import (
    DescribeQuorumPartitionData,
    DescribeQuorumPartitionResult,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopicData,
    ReplicaState,
)
from systems.errors import ClusterError, InputError
from systems.kafka_protocol import requests
from systems.kafka_protocol.observer import METADATA_TOPIC

Address = tuple[str, int]

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5
_ASK_S = 1.0


@dataclass(frozen=True)
class ReplicaLine:
    """One replica. Times are in milliseconds; -1 if the leader does not know."""

    replica_id: int
    log_end_offset: int
    lag: int
    lag_time_ms: int
    status: str


@dataclass(frozen=True)
class QuorumState:
    cluster_id: str
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[int, ...]
    observers: tuple[int, ...]
    replicas: tuple[ReplicaLine, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def status_lines(self) -> list[str]:
        """As `describe --status` (K595-50)."""
        followers = [replica for replica in self.replicas if replica.status == "Follower"]
        rows = {
            "ClusterId": self.cluster_id,
            "LeaderId": self.leader_id,
            "LeaderEpoch": self.leader_epoch,
            "HighWatermark": self.high_watermark,
            "MaxFollowerLag": max((replica.lag for replica in followers), default=0),
            "MaxFollowerLagTimeMs": max((replica.lag_time_ms for replica in followers), default=0),
            "CurrentVoters": _ids(self.voters),
            "CurrentObservers": _ids(self.observers),
        }
        return [f"{name + ':':<24}{value}" for name, value in rows.items()]

    def replication_lines(self) -> list[str]:
        """As `describe --replication` (K595-51)."""
        rows = [("ReplicaId", "LogEndOffset", "Lag", "LagTimeMs", "Status")]
        rows += [
            (str(r.replica_id), str(r.log_end_offset), str(r.lag), str(r.lag_time_ms), r.status) for r in self.replicas
        ]
        return ["".join(f"{cell:<16}" for cell in row).rstrip() for row in rows]


def describe(bootstrap: Sequence[Address], *, timeout_s: float) -> QuorumState:
    """Ask until the leader answers (K595-45). Raises `ClusterError` when it does not answer in time, and `InputError`
    when no broker answers.

    A broker that knows the leader names it, and the next request goes there. Otherwise, and if the named broker names
    another one (two brokers that do not know of an election yet may name each other), the next request goes to a random
    broker after a pause that doubles each time.
    """
    deadline, pause_s = time.monotonic() + timeout_s, _FIRST_PAUSE_S
    addresses: dict[int, Address] = {}
    target, was_named, complaint = random.choice(bootstrap), False, "no broker was asked"
    while time.monotonic() < deadline:
        try:
            cluster = _metadata(target)
            addresses |= {broker.node_id: (broker.host, broker.port) for broker in cluster.brokers}
            result = _ask(target)
        except requests.RequestError as error:
            complaint, result = str(error), None
        if result is not None and result.error_code == ErrorCode.NONE:
            return _state(cluster.cluster_id or "", result)
        if result is not None:
            complaint = f"{target[0]}:{target[1]}: {ErrorCode(result.error_code).name}, leader {result.leader_id}"
            leader = addresses.get(result.leader_id, target)
            if leader != target and not was_named:
                target, was_named = leader, True
                continue
        time.sleep(min(pause_s, max(0.0, deadline - time.monotonic())))
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        target, was_named = random.choice([*bootstrap, *addresses.values()]), False
    if not addresses:
        raise InputError(f"no broker answered within {timeout_s:g} s; last: {complaint}; name a broker that runs")
    raise ClusterError(f"no leader of the quorum answered within {timeout_s:g} s; last: {complaint}")


def _metadata(target: Address) -> MetadataResponse:
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    return requests.ask(target, request, MetadataResponse, 9, timeout_s=_ASK_S)


def _ask(target: Address) -> DescribeQuorumPartitionResult | None:
    request = DescribeQuorumRequest(topics=[DescribeQuorumTopicData(METADATA_TOPIC, [DescribeQuorumPartitionData(0)])])
    answer = requests.ask(target, request, DescribeQuorumResponse, 1, timeout_s=_ASK_S)
    if answer.error_code != ErrorCode.NONE:
        return DescribeQuorumPartitionResult(error_code=answer.error_code, leader_id=-1)
    return answer.topics[0].partitions[0] if answer.topics and answer.topics[0].partitions else None


def _state(cluster_id: str, result: DescribeQuorumPartitionResult) -> QuorumState:
    end = max((r.log_end_offset for r in result.current_voters if r.replica_id == result.leader_id), default=-1)
    now_ms = max((r.last_fetch_timestamp for r in [*result.current_voters, *result.observers]), default=-1)

    def line(replica: ReplicaState, status: str) -> ReplicaLine:
        if replica.replica_id == result.leader_id:
            return ReplicaLine(replica.replica_id, replica.log_end_offset, 0, 0, "Leader")
        lag = end - replica.log_end_offset if replica.log_end_offset >= 0 and end >= 0 else -1
        caught_up = replica.last_caught_up_timestamp
        lag_time = max(0, now_ms - caught_up) if caught_up >= 0 and now_ms >= 0 else -1
        return ReplicaLine(replica.replica_id, replica.log_end_offset, lag, lag_time, status)

    lines = [line(replica, "Follower") for replica in result.current_voters]
    lines += [line(replica, "Observer") for replica in result.observers]
    return QuorumState(
        cluster_id,
        result.leader_id,
        result.leader_epoch,
        result.high_watermark,
        tuple(sorted(replica.replica_id for replica in result.current_voters)),
        tuple(sorted(replica.replica_id for replica in result.observers)),
        tuple(sorted(lines, key=lambda entry: (entry.status != "Leader", entry.status, entry.replica_id))),
    )


def _ids(numbers: Sequence[int]) -> str:
    return f"[{','.join(map(str, numbers))}]"

"""The output of `quorum describe` for a leader's answer."""

import random
from collections.abc import Mapping

import pytest

from broker.errors import ErrorCode
from broker.protocol.messages.cluster_apis import MetadataRequest, MetadataResponse, MetadataResponseBroker
from broker.protocol.messages.quorum_apis import (
    DescribeQuorumPartitionResult,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ReplicaState,
)
from broker.protocol.schema import Message, QuorumTopic
from nemeses.scheduling import Scheduler
from systems.errors import ClusterError
from systems.kafka_protocol import observer
from systems.kafka_protocol.observer import METADATA_TOPIC, QuorumState, _state, describe_quorum

NOW = 1_700_000_000_000


def answered(*, silent: int | None = None) -> QuorumState:
    """Three voters with leader 2, and an observer; `silent` has not fetched since the leader was elected."""

    def replica(number: int, end: int, behind_ms: int) -> ReplicaState:
        if number == silent:
            return ReplicaState(replica_id=number, log_end_offset=-1)
        return ReplicaState(
            replica_id=number,
            log_end_offset=end,
            last_fetch_timestamp=NOW - 5 if number != 2 else NOW,
            last_caught_up_timestamp=NOW - behind_ms,
        )

    result = DescribeQuorumPartitionResult(
        leader_id=2,
        leader_epoch=7,
        high_watermark=118,
        current_voters=[replica(1, 118, 30), replica(2, 120, 0), replica(3, 110, 450)],
        observers=[replica(9, 90, 2_000)],
    )
    return _state("Q2x1c3Rlci1vZi10ZXN0cw", result)


@pytest.mark.conforms("K595-50")
def test_the_status_of_the_quorum() -> None:
    assert answered().status_lines() == [
        "ClusterId:              Q2x1c3Rlci1vZi10ZXN0cw",
        "LeaderId:               2",
        "LeaderEpoch:            7",
        "HighWatermark:          118",
        "MaxFollowerLag:         10",
        "MaxFollowerLagTimeMs:   450",
        "CurrentVoters:          [1,2,3]",
        "CurrentObservers:       [9]",
    ]


@pytest.mark.conforms("K595-51")
def test_the_replication_of_the_metadata_log() -> None:
    rows = [line.split() for line in answered().replication_lines()]
    assert rows == [
        ["ReplicaId", "LogEndOffset", "Lag", "LagTimeMs", "Status"],
        ["2", "120", "0", "0", "Leader"],
        ["1", "118", "2", "30", "Follower"],
        ["3", "110", "10", "450", "Follower"],
        ["9", "90", "30", "2000", "Observer"],
    ]


@pytest.mark.conforms("K595-51")
def test_a_replica_without_a_fetch_has_no_times() -> None:
    rows = [line.split() for line in answered(silent=3).replication_lines()]
    assert ["3", "-1", "-1", "-1", "Follower"] in rows


class Brokers:
    """Brokers at n1, n2, ..., which know each other, and a clock that advances with queries and pauses.

    `leaders`: the leader by each broker's answer, -1: none; a broker that names itself answers. After `calm` queries,
    the answers of `later` replace them.
    """

    def __init__(self, leaders: Mapping[int, int], later: Mapping[int, int] | None = None, calm: int = 0) -> None:
        self.asked: list[int] = []
        self.pauses: list[float] = []
        self.now = 0.0
        self._leaders = leaders
        self._later = later or leaders
        self._calm = calm

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def ask(
        self, _: Scheduler, address: tuple[str, int], request: Message, version: int, *, timeout_s: float
    ) -> Message:
        asked = type(request), version, timeout_s
        assert asked in ((MetadataRequest, 9, 1.0), (DescribeQuorumRequest, 1, 1.0))
        self.now += 0.001
        number = int(address[0][1:])
        leaders = self._later if len(self.asked) >= self._calm else self._leaders
        if isinstance(request, MetadataRequest):
            brokers = [MetadataResponseBroker(node_id=each, host=f"n{each}", port=9092) for each in leaders]
            return MetadataResponse(cluster_id="c", brokers=brokers)
        self.asked.append(number)
        assert len(self.asked) < 1_000, "it does not end"
        leads = leaders[number] == number
        result = DescribeQuorumPartitionResult(
            error_code=ErrorCode.NONE if leads else ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id=leaders[number]
        )
        return DescribeQuorumResponse(topics=[QuorumTopic(METADATA_TOPIC, [result])])


def described(brokers: Brokers, monkeypatch: pytest.MonkeyPatch, timeout_s: float = 60.0) -> QuorumState:
    """The result of a query that starts with n1 only."""
    monkeypatch.setattr(observer, "ask", brokers.ask)
    monkeypatch.setattr(observer, "time", brokers)
    monkeypatch.setattr(observer, "random", random.Random(1))
    return describe_quorum([("n1", 9092)], timeout_s=timeout_s)


@pytest.mark.conforms("K595-45")
def test_the_next_query_goes_to_the_leader_named_by_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers({1: 2, 2: 2, 3: 2})
    assert described(brokers, monkeypatch).leader_id == 2
    assert (brokers.asked, brokers.pauses) == ([1, 2], [])


@pytest.mark.conforms("K595-45")
def test_without_a_leader_the_pauses_grow_and_the_brokers_are_queried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers({1: -1}, later={1: -1, 3: 3}, calm=9)
    assert described(brokers, monkeypatch).leader_id == 3
    assert brokers.asked[:9] == [1] * 9
    assert brokers.pauses[:8] == [0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5, 0.5]


@pytest.mark.conforms("K595-45")
def test_at_the_deadline_the_error_states_that_no_leader_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers({1: 2, 2: 1})
    with pytest.raises(ClusterError, match=r"no leader of the quorum answered within 3 s; last: n.:9092: NOT_LEADER"):
        described(brokers, monkeypatch, timeout_s=3.0)
    assert 3.0 <= brokers.now < 3.1
    assert len(brokers.asked) <= 2 * len(brokers.pauses), "brokers that name each other are not asked in haste"

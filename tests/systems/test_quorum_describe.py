"""What `quorum describe` prints, from what a leader answers."""

from __future__ import annotations

import pytest

from broker.protocol.messages.describe_quorum import PartitionResult, ReplicaState
from systems.kafka_protocol.quorum_describe import QuorumState, _state

NOW = 1_700_000_000_000


def answered(*, silent: int | None = None) -> QuorumState:
    """Three voters, of which 2 leads, and an observer; `silent` has not been heard of since the leader leads."""

    def replica(number: int, end: int, behind_ms: int) -> ReplicaState:
        if number == silent:
            return ReplicaState(replica_id=number, log_end_offset=-1)
        return ReplicaState(
            replica_id=number,
            log_end_offset=end,
            last_fetch_timestamp=NOW - 5 if number != 2 else NOW,
            last_caught_up_timestamp=NOW - behind_ms,
        )

    result = PartitionResult(
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
def test_of_a_replica_that_was_not_heard_of_nothing_is_made_up() -> None:
    rows = [line.split() for line in answered(silent=3).replication_lines()]
    assert ["3", "-1", "-1", "-1", "Follower"] in rows

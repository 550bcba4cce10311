"""Recovery points on simulated disks: never beyond the data that a power cut leaves, and the oracle that checks
this."""

from typing import Any

import pytest

from broker.log.checkpoint import Key
from broker.log.log import PartitionLog
from broker.log.recovery_points import RecoveryPoints
from simulator.cluster import SimulatedCluster
from simulator.oracles.findings import POINT_AHEAD
from tests.simulator.storm import QUICK, storm

SMALL_SEGMENTS = {
    **QUICK,
    "log.segment.bytes": "4096",
    "log.flush.offset.checkpoint.interval.ms": "300",
    "log.flush.interval.messages": "0",
}


def checked(cluster: SimulatedCluster) -> tuple[int, bool]:
    """The number of comparisons of recovery points, and whether one was ahead."""
    findings = cluster.watch.findings
    return findings.checks[POINT_AHEAD], POINT_AHEAD in {each.oracle for each in findings.found}


@pytest.mark.conforms("LOG-2", "LOG-3")
@pytest.mark.kills("unflushed_roll")
@pytest.mark.parametrize("mutant", [None, "unflushed_roll"])
def test_a_recovery_point_past_an_unflushed_segment_is_found(mutant: str | None) -> None:
    cluster = storm(1, *filter(None, [mutant]), faults=["kill"], seconds=3.0, writers=4, properties=SMALL_SEGMENTS)
    comparisons, found = checked(cluster)
    assert comparisons > 3
    assert found == (mutant is not None)


def test_a_point_that_is_written_ahead_of_the_log_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file itself is wrong: every log has one record more than its recovery point."""
    watch = RecoveryPoints.watch

    class Ahead:
        def __init__(self, log: PartitionLog) -> None:
            self._log = log

        @property
        def recovery_point(self) -> int:
            return self._log.recovery_point + 1

    def watch_ahead(points: RecoveryPoints, key: Key, log: PartitionLog) -> None:
        ahead: Any = Ahead(log)
        watch(points, key, ahead)

    monkeypatch.setattr(RecoveryPoints, "watch", watch_ahead)
    with pytest.raises(AssertionError, match=POINT_AHEAD):  # as for every finding without a mutant
        storm(1, faults=["pause"], seconds=3.0, properties=SMALL_SEGMENTS, until=POINT_AHEAD)

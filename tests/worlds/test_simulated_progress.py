"""A broker that stands still while a fault lasts is found, by the oracles and by the clients' histories."""

from pathlib import Path

import pytest

from broker.replica.leader import PartitionLeader
from tests.campaign_text import campaign_text
from tests.worlds.simulated import simulate

PLAN = campaign_text(
    "plan",
    topology={"nodes": 3, "world": "simulation"},
    broker={
        "min.insync.replicas": 2,
        "replica.lag.time.max.ms": 2000,
        "broker.session.timeout.ms": 2500,
        "broker.lease.ms": 1800,
    },
    workload={
        "topic": "log", "partitions": 1, "replication_factor": 3, "producers": 2, "consumers": 1, "rate": 60,
        "duration_s": 60,
    },
    nemesis={
        "kind": "steps",
        "step": [
            {"do": "wait", "seconds": 5, "why": "some records are acknowledged"},
            {"do": "name", "node": "follower:0", "as": "F"},
            {"do": "kill", "node": "F"},
            {"do": "wait", "seconds": 45, "why": "longer than the bound"},
            {"do": "start", "node": "F"},
        ],
    },
    checks={"min_ok": 1, "min_share": 0, "progress_s": 15},
)  # fmt: skip
STOPS_AT = 400


@pytest.mark.rotating(2)
@pytest.mark.parametrize("stands_still", [True, False])
def test_standing_still_while_a_follower_is_down_is_found(
    stands_still: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if stands_still:
        advance = PartitionLeader._advance_high_watermark

        def stop(role: PartitionLeader) -> bool:
            return role._committable_end < STOPS_AT and advance(role)

        monkeypatch.setattr(PartitionLeader, "_advance_high_watermark", stop)
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    verdict = simulate(path, tmp_path / "store").verdict
    names = {anomaly.name for anomaly in verdict.anomalies}
    if stands_still:
        assert verdict.verdict == "fail"
        assert names >= {"stands-still", "no-acknowledgement"}
    else:
        assert verdict.verdict == "pass", verdict.reasons
        (progress,) = [check for check in verdict.checks if check.name == "progress"]
        assert progress.verdict == "pass"
        assert "1 smaller in-sync set" in progress.detail

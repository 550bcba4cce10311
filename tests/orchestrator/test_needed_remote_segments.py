"""The number of complete remote segments that a run with tiered storage needs: one, unless the campaign sets
another."""

import json
from pathlib import Path

import pytest

from orchestrator.command.line import main

IDLE = """
name = "idle"
[topology]
nodes = 1
world = "simulation"
[broker]
"remote.log.storage.system.enable" = "true"
"rlmm.config.remote.log.metadata.topic.replication.factor" = 1
"log.flush.interval.messages" = 1
[workload]
partitions = 1
replication_factor = 1
topic_settings = {{ "remote.storage.enable" = "true", "retention.ms" = -1, "retention.bytes" = -1 }}
producers = 1
consumers = 1
rate = 40
duration_s = 3
[checks]
min_ok = 5
{checks}
"""
LACKING = "0 segments completely in remote storage; {} needed (min_remote_segments)"


@pytest.mark.rotating(3, among="brokers with tiered storage")
@pytest.mark.parametrize(
    ("checks", "verdict", "reason"),
    [
        ("", "unknown", LACKING.format(1)),
        ("min_remote_segments = 2", "unknown", LACKING.format(2)),
        ("min_remote_segments = 0", "pass", None),
    ],
)
def test_the_demand_for_remote_segments_decides_a_run_with_one_open_segment(
    tmp_path: Path, checks: str, verdict: str, reason: str | None
) -> None:
    campaign = tmp_path / "idle.toml"
    campaign.write_text(IDLE.format(checks=checks))
    main(["run", str(campaign), "--store", str(tmp_path / "store"), "--quiet"])
    (path,) = (tmp_path / "store" / "idle").glob("*/verdict.json")
    found = json.loads(path.read_text())
    assert found["verdict"] == verdict
    assert [each for each in found["reasons"] if "needed" in each] == ([] if reason is None else [reason])

"""A broker that ends by itself is a finding and ends the run at once; its own words say why."""

from __future__ import annotations

import json
from pathlib import Path

from orchestrator.command.line import main

ALIEN = """
name = "alien"
[topology]
world = "process"
[broker.n2]
"cluster.id" = "another"
"""


def test_a_broker_that_gives_up_is_not_waited_for(tmp_path: Path) -> None:
    campaign = tmp_path / "alien.toml"
    campaign.write_text(ALIEN)
    code = main(["run", str(campaign), "--store", str(tmp_path / "store"), "--engine", "in-process", "--quiet"])

    (verdict_file,) = (tmp_path / "store" / "alien").glob("*/verdict.json")
    verdict = json.loads(verdict_file.read_text())
    assert (code, verdict["verdict"]) == (1, "fail")
    (found,) = verdict["anomalies"]
    assert found["name"] == "unexpected-exit"
    assert "n2 ended with exit code 70" in found["sentence"]
    assert "correct cluster.id" in found["sentence"]
    journal = next((tmp_path / "store" / "alien").glob("*/history/journal.jsonl")).read_text()
    assert "n2: the service has ended by itself" in journal
    assert "not within" not in journal

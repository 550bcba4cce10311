"""Decisions of `brownout gate` over a stored campaign, and changes to what is stored."""

import json
import shutil
from pathlib import Path

from tests.orchestrator.junit_schema import suite_of
from tests.orchestrator.stored_campaign import Answer, StoredCampaign, ask

LIMITS = ["nothing here is real", "the paper world was chosen because it is of paper"]
"""The limits that each stored run names."""


def decided(path: Path) -> Answer:
    """What the gate says of a campaign, whose documents say the same and are valid."""
    answer = ask("gate", path, "--json")
    assert "Traceback" not in answer.err
    summary = json.loads((path / "summary.json").read_text())
    assert (summary["verdict"], summary["reason"]) == (answer.json["verdict"], answer.json["reason"])
    assert answer.json["verdict"] in (path / "report.html").read_text()
    suite = suite_of(path / "junit.xml")
    assert (answer.code == 0) == (suite.get("failures") == suite.get("errors") == "0")
    assert (answer.code == 1) == (suite.get("failures") != "0")
    assert ask("gate", path).code == ask("gate", path, "--markdown").code == answer.code
    return answer


def runs_of(campaign: StoredCampaign) -> list[Path]:
    return sorted(path.parent for path in campaign.path.glob("*/run.toml"))


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def lose_replica(run: Path) -> None:
    shutil.rmtree(run / "nodes" / "n2")


def truncate_verdict(run: Path) -> None:
    path = run / "verdict.json"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

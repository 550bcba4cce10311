"""Drawn clusters that once showed a defect, a false alarm or no verdict: each seed with its finding.

The swarm decides what a seed draws, so each story also has a separate test if one can show it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from analysis.verdict import PASS
from orchestrator.campaign.parser import load
from orchestrator.campaign.plan import PlannedRun, run_id
from orchestrator.campaign.swarm import draw
from orchestrator.running.interrupts import Interrupts
from orchestrator.running.progress import Progress
from orchestrator.search.run_maker import WHERE, Maker
from orchestrator.store.directories import Store

CAMPAIGNS = Path(__file__).resolve().parents[2] / "campaigns"


@pytest.mark.rotating(10, among="storms")
@pytest.mark.parametrize(
    ("campaign", "seed"),
    [
        pytest.param("swarm", 41, id="a role that started and ended at one time had committed"),
        pytest.param("swarm", 382, id="a sync failed, and the next process's sync of clean pages was believed"),
        pytest.param("swarm", 567, id="a follower's log rotted between two processes"),
        pytest.param("swarm", 1289, id="a leader heard late of its election"),
        pytest.param("swarm", 3940, id="a leader's next process found its log damaged, and held a lease"),
        pytest.param("swarm", 29, id="a replica of the metadata of remote segments was set aside"),
        pytest.param("swarm-groups", 409, id="a base offset rotted, and its follower cut it off"),
        pytest.param("swarm-groups", 6002, id="a leader epoch rotted"),
        pytest.param("swarm-groups", 1489, id="a paused connection was handed more than its buffer took"),
    ],
)
def test_a_drawn_cluster_passes(campaign: str, seed: int, tmp_path: Path) -> None:
    """They last for a fraction of the time that the campaigns draw."""
    text = (CAMPAIGNS / f"{campaign}.toml").read_text()
    short_s = "[6, 12]" if campaign == "swarm-groups" else "[5, 10]"
    drawn, shortened = re.subn(r"(?m)^(duration_s = )\[\d+, 40\]$", rf"\g<1>{short_s}", text)
    assert shortened == 1
    file = tmp_path / f"{campaign}.toml"
    file.write_text(drawn)
    short = load(file)
    cell = short.cells[0]
    maker = Maker(Store(tmp_path / "store"), Progress(quiet=True), Interrupts(lambda: None, lambda: None))
    made = maker.make(PlannedRun(run_id("drawn", cell.name, seed), draw(short, seed), cell, seed, WHERE))
    assert made.verdict.verdict == PASS, made.verdict.reasons

"""A drawn cluster of each profile passes."""

import json
import re
from pathlib import Path

import pytest

from analysis.verdict import PASS
from orchestrator.campaign.parser import load
from orchestrator.campaign.plan import PlannedRun, run_id
from orchestrator.campaign.profiles import PROFILES
from orchestrator.campaign.swarm import draw
from orchestrator.running.interrupts import Interrupts
from orchestrator.running.progress import Progress
from orchestrator.search.run_maker import WHERE, Maker
from orchestrator.store.directories import Store

CAMPAIGNS = Path(__file__).resolve().parents[2] / "campaigns"
SEED = 1


@pytest.mark.rotating(len(PROFILES), among="storms")
@pytest.mark.parametrize("profile", PROFILES)
def test_a_drawn_cluster_passes(profile: str, tmp_path: Path) -> None:
    """They last for a fraction of the time that the campaigns draw."""
    name, short_s = ("swarm-groups", "[6, 12]") if PROFILES[profile].kind == "group" else ("swarm", "[5, 10]")
    text = (CAMPAIGNS / f"{name}.toml").read_text()
    drawn, shortened = re.subn(
        r"(?m)^(duration_s = )\[\d+, 40\]$", rf"\g<1>{short_s}\nprofiles = {json.dumps([profile])}", text
    )
    assert shortened == 1
    file = tmp_path / f"{name}.toml"
    file.write_text(drawn)
    short = load(file)
    cell = short.cells[0]
    maker = Maker(Store(tmp_path / "store"), Progress(quiet=True), Interrupts(lambda: None, lambda: None))
    made = maker.make(PlannedRun(run_id("drawn", cell.name, SEED), draw(short, SEED), cell, SEED, WHERE))
    assert made.verdict.verdict == PASS, made.verdict.reasons

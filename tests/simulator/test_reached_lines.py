"""The measurement of reached lines: every campaign has a run, and every module with few reached lines a row."""

import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from orchestrator.campaign.parser import load
from tests.simulator.reached_lines import (
    DRAWN,
    LEAST,
    ROOT,
    Reached,
    measured,
    page,
    runs,
)


@pytest.mark.rotating(6, among="long simulations")
def test_every_run_has_an_unmutated_broker_and_the_rest_is_drawn() -> None:
    made = list(islice(runs(), 200))
    assert len(set(made)) == len(made)
    campaigns = {path: load(path) for path in {run.campaign for run in made}}
    for run in made:
        assert not next(cell for cell in campaigns[run.campaign].cells if cell.name == run.cell).mutants
    for campaign in DRAWN:
        drawn = [run.seed for run in made if run.campaign == campaign]
        assert drawn == list(range(1, len(drawn) + 1))
        assert 0 < len(drawn) < 100


def test_the_page_has_a_row_for_each_module_that_is_reached_too_little() -> None:
    text = page(
        [
            Reached("broker.disk", 100, 0, "1-100"),
            Reached("broker.replica.leader", 10, 8, "3-4"),
            Reached("b", 10, 9, ""),
        ],
        list(islice(runs(), 60)),
    )
    assert f"1 of 3 modules have {LEAST:.0%} or more of their lines reached; all modules together 14.2%." in text
    assert "| `broker.replica.leader` | 10 | 80% | 3-4 |" in text
    assert "| `b` |" not in text


@pytest.mark.rotating(6, among="long simulations")
def test_reached_lines_of_a_run_are_kept_and_counted_again(tmp_path: Path) -> None:
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-m", "tests.simulator.reached_lines", "--seeds", "1", "--jobs", "1", "--keep", tmp_path],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert "broker.server.security" in done.stdout, done.stderr
    assert next(runs()).made(tmp_path).read_text() == "", "it reached its verdict"
    reached = {it.module: it.share for it in measured(tmp_path)}
    assert reached["broker.replica.leader"] > 0.5
    assert reached["broker.server.security"] < 0.5
    assert len(list(tmp_path.glob(".reached*"))) == 1, "it was made once"

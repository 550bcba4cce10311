"""Many runs on the workers of a Spark session: each is judged alone."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from analysis.engines.spark import SparkHandle
from orchestrator.campaign.runs_on_workers import judge_each, judge_here
from tests.orchestrator.stored_campaign import StoredCampaign, ask


def _dies_with_the_second(run: str) -> None:
    """As `judge_here`, but the worker is killed when it gets the marked run."""
    if (Path(run) / "kills").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    judge_here(run)


@pytest.mark.spark
def test_a_worker_that_dies_concerns_its_run_only(spark: SparkHandle, tmp_path: Path) -> None:
    runs = StoredCampaign(tmp_path / "a store's").made()
    for run in runs:
        (run / "verdict.json").unlink()
    (runs[1] / "kills").touch()
    failures = dict(judge_each(runs, spark.context(), _dies_with_the_second))
    assert failures[runs[0]] == ""
    assert "exited unexpectedly" in failures[runs[1]]
    assert json.loads((runs[0] / "verdict.json").read_text())["verdict"] == "pass"
    assert not (runs[1] / "verdict.json").exists()
    assert dict(judge_each(runs[:1], spark.context())) == {runs[0]: ""}  # the session lives on


def test_a_campaign_and_a_store_stand_for_their_runs(tmp_path: Path) -> None:
    campaign = StoredCampaign(tmp_path / "store")
    runs = campaign.made()
    for named in (campaign.path, campaign.path.parent):
        for run in runs:
            (run / "verdict.json").unlink()
        assert ask("analyze", "--engine", "in-process", named).code == 0
        assert [json.loads((run / "verdict.json").read_text())["verdict"] for run in runs] == ["pass"] * len(runs)
        assert json.loads((campaign.path / "summary.json").read_text())["verdict"] == "pass"

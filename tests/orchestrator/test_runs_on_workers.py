"""Many runs on the workers of a Spark session: each is analyzed alone."""

import json
import os
import signal
from pathlib import Path

import pytest

from analysis.engines.spark import SparkHandle
from orchestrator.running.engine import judge_each, judge_here
from orchestrator.store.directories import Store
from orchestrator.store.tables import write_tables
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
    failures = dict(judge_each(runs, spark.tasks(), _dies_with_the_second))
    assert failures[runs[0]] == ""
    assert "exited unexpectedly" in failures[runs[1]]
    assert json.loads((runs[0] / "verdict.json").read_text())["verdict"] == "pass"
    assert not (runs[1] / "verdict.json").exists()
    assert dict(judge_each(runs[:1], spark.tasks())) == {runs[0]: ""}  # the session lives on


@pytest.mark.spark
def test_a_worker_with_other_code_of_the_analysis_does_no_task(
    spark: SparkHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker may join at any time. The test changes the driver's revision, so that all workers have other code."""
    (run,) = StoredCampaign(tmp_path / "store", "").made()
    before = (run / "verdict.json").read_bytes()
    monkeypatch.setattr("analysis.engines.task_map.revision", lambda: "0123456789abcdef")
    failures = dict(judge_each([run], spark.tasks()))
    assert "has other code of the analysis" in failures[run]
    assert (run / "verdict.json").read_bytes() == before
    with pytest.raises(RuntimeError, match="has other code of the analysis"):
        spark.tasks()(str, [1, 2, 3])


@pytest.mark.spark
def test_workers_write_the_same_tables(spark: SparkHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.store.tables.RUNS_PER_TASK", 1)
    store = Store(tmp_path / "a store's")
    runs = StoredCampaign(store.root).made()
    (runs[0] / "tables" / "seconds.parquet").unlink()
    folder, left_out = write_tables(store)
    here = {table.name: table.read_bytes() for table in folder.glob("*.parquet")}
    assert len(here) == 5
    assert write_tables(store, spark.tasks()) == (folder, left_out)
    assert {table.name: table.read_bytes() for table in folder.glob("*.parquet")} == here


def test_a_campaign_and_a_store_name_their_runs(tmp_path: Path) -> None:
    campaign = StoredCampaign(tmp_path / "store")
    runs = campaign.made()
    for named in (campaign.path, campaign.path.parent):
        for run in runs:
            (run / "verdict.json").unlink()
        assert ask("analyze", "--engine", "in-process", named).code == 0
        assert [json.loads((run / "verdict.json").read_text())["verdict"] for run in runs] == ["pass"] * len(runs)
        assert json.loads((campaign.path / "summary.json").read_text())["verdict"] == "pass"

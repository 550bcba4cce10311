"""Tables over all runs of a store, made from the runs' verdicts."""

import json
import os
import re
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.orchestrator.stored_campaign import StoredCampaign, ask


def table(store: Path, name: str) -> list[dict[str, Any]]:
    content = BytesIO((store / ".tables" / f"{name}.parquet").read_bytes())
    rows: list[dict[str, Any]] = pq.ParquetFile(content).read().to_pylist()
    return rows


def test_each_table_has_the_content_of_the_verdicts(tmp_path: Path) -> None:
    store = tmp_path / "store"
    runs = StoredCampaign(store).made()
    assert ask("list", "--store", store, "--tables").code == 0
    verdicts = {run.name: json.loads((run / "verdict.json").read_text()) for run in runs}
    for row in table(store, "runs"):
        verdict = verdicts[row["run"]]
        assert (row["stored_verdict"], row["stored_met"]) == (verdict["verdict"], verdict["met"])
        for same in ("cell", "seed", "world", "evidence", "analysis", "finished", "codes"):
            assert row[same] == verdict[same]
    for name, column in (("checks", "check"), ("faults", "fault"), ("anomalies", "anomaly")):
        there = [(each, verdict) for each, verdict in verdicts.items() for _ in verdict[name]]
        rows = table(store, name)
        keys = [(row["run"], row["evidence"], row["analysis"]) for row in rows]
        assert sorted(keys) == sorted((each, verdict["evidence"], verdict["analysis"]) for each, verdict in there)
        assert all(row[column] for row in rows)
    assert {row["run"] for row in table(store, "seconds")} <= verdicts.keys()


@pytest.mark.parametrize("damage", ["torn", "foreign", "a directory"])
def test_an_older_table_has_no_influence(tmp_path: Path, damage: str) -> None:
    store = tmp_path / "store"
    (run,) = StoredCampaign(store, "").made()
    runs = store / ".tables" / "runs.parquet"
    if damage == "a directory":
        runs.mkdir(parents=True)
    else:
        assert ask("list", "--store", store, "--tables").code == 0
        whole = runs.read_bytes()
        runs.write_bytes(whole[:-9] if damage == "torn" else (store / ".tables" / "checks.parquet").read_bytes())
    assert ask("list", "--store", store, "--tables").code == 0
    assert [row["run"] for row in table(store, "runs")] == [run.name]


def test_a_run_with_an_unreadable_verdict_is_named(tmp_path: Path) -> None:
    store = tmp_path / "store"
    first, second = StoredCampaign(store).made()
    (second / "verdict.json").write_text("{")
    result = ask("list", "--store", store, "--tables")
    assert result.code == 0
    assert f"{second}: its verdict cannot be read" in result.err
    assert [(row["run"], row["stored_verdict"], row["verdict"]) for row in table(store, "runs")] == [
        (first.name, "pass", "pass"),
        (second.name, None, "unknown"),
    ]
    assert {row["run"] for row in table(store, "checks")} == {first.name}


def test_the_tables_directory_is_not_listed_as_a_campaign(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    assert ask("list", "--store", store, "--tables").code == 0
    assert table(store, "runs") == []
    StoredCampaign(store).made()
    before = ask("list", "--store", store, "--json").out
    assert ask("list", "--store", store, "--tables").code == 0
    assert ask("list", "--store", store, "--json").out == before


def test_names_that_are_not_utf_8_become_escapes(tmp_path: Path) -> None:
    store = tmp_path / os.fsdecode(b"st\xffore")
    (run,) = StoredCampaign(tmp_path / "made", "").made()
    campaign = store / os.fsdecode(b"camp\xe4ign")
    store.mkdir()
    run.parent.rename(campaign)
    (campaign / run.name).rename(campaign / os.fsdecode(b"run\xfe"))
    result = ask("list", "--store", store, "--tables")
    assert (result.code, "cannot be read" in result.err) == (0, False)
    (row,) = table(store, "runs")
    assert (row["campaign"], row["run"]) == ("camp\\udce4ign", "run\\udcfe")
    assert table(store, "checks")[0]["run"] == "run\\udcfe"
    assert [each["run"] for each in table(store, "seconds")] == ["run\\udcfe"] * len(table(store, "seconds"))


@pytest.mark.parametrize("runs_per_task", [1, 256])
def test_tables_of_several_tasks_have_the_rows_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs_per_task: int
) -> None:
    monkeypatch.setattr("orchestrator.store.tables.RUNS_PER_TASK", runs_per_task)
    store = tmp_path / "store"
    runs = StoredCampaign(store).made()
    (store / ".tables" / ".draft").mkdir(parents=True)
    (store / ".tables" / ".draft" / "left by a process that was killed").touch()
    assert ask("list", "--store", store, "--tables").code == 0
    assert [row["run"] for row in table(store, "runs")] == [run.name for run in runs]
    assert {row["run"] for row in table(store, "checks")} == {run.name for run in runs}
    assert sorted(each.name for each in (store / ".tables").iterdir()) == sorted(
        [".lock", "anomalies.parquet", "checks.parquet", "faults.parquet", "runs.parquet", "seconds.parquet"]
    )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--master", "spark://127.0.0.1:7077"], "add --tables"),
        (["--tables", "--master", "spark://nowhere"], "--master spark://nowhere: .*give spark://HOST:PORT"),
    ],
)
def test_a_master_that_cannot_write_tables_is_refused(tmp_path: Path, words: list[str], complaint: str) -> None:
    (tmp_path / "store").mkdir()
    result = ask("list", "--store", tmp_path / "store", *words)
    assert result.code == 64
    assert re.search(complaint, result.err)

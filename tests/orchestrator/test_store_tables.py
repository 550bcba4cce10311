"""Tables over all runs of a store, made from the runs' verdicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.orchestrator.stored_campaign import StoredCampaign, ask


def table(store: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.ParquetFile(store / ".tables" / f"{name}.parquet").read().to_pylist()
    return rows


def test_each_table_has_the_content_of_the_verdicts(tmp_path: Path) -> None:
    store = tmp_path / "store"
    runs = StoredCampaign(store).made()
    assert ask("list", "--store", store, "--tables").code == 0
    verdicts = {run.name: json.loads((run / "verdict.json").read_text()) for run in runs}
    assert {row["run"]: row["verdict"] for row in table(store, "runs")} == {
        name: verdict["verdict"] for name, verdict in verdicts.items()
    }
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


def test_a_run_whose_verdict_cannot_be_read_is_named(tmp_path: Path) -> None:
    store = tmp_path / "store"
    first, second = StoredCampaign(store).made()
    (second / "verdict.json").write_text("{")
    told = ask("list", "--store", store, "--tables")
    assert told.code == 0
    assert f"{second}: its verdict cannot be read" in told.err
    assert [row["run"] for row in table(store, "runs")] == [first.name]


def test_tables_are_no_campaign(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    assert ask("list", "--store", store, "--tables").code == 0
    assert table(store, "runs") == []
    StoredCampaign(store).made()
    before = ask("list", "--store", store, "--json").out
    assert ask("list", "--store", store, "--tables").code == 0
    assert ask("list", "--store", store, "--json").out == before

"""The tables of the base runs as DataFrames: what `list --json`, verdict.json and the files of operations say."""

import json
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from brownout_api import results
from tests.mutations.base_runs import BASES
from tests.mutations.bench import Bench
from tests.orchestrator.stored_campaign import ask


@pytest.fixture(scope="module")
def result(bench: Bench) -> Any:
    return results(store_of(bench))


def store_of(bench: Bench) -> Path:
    return bench.bases["log"].parent.parent


def records(frame: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(frame.to_json(orient="records"))
    return rows


def test_runs_are_those_of_the_list(bench: Bench, result: Any) -> None:
    rows = {row["run"]: row for row in records(result.runs)}
    listed = ask("list", "--store", store_of(bench), "--json").json
    assert len(rows) == len(listed) == len(BASES)
    for row in listed:
        assert {name: rows[row["run"]][name] for name in row} == row


@pytest.mark.parametrize("name", BASES)
def test_tables_have_the_content_of_the_verdict(bench: Bench, result: Any, name: str) -> None:
    run = bench.bases[name]
    verdict = json.loads((run / "verdict.json").read_text())
    (row,) = (row for row in records(result.runs) if row["run"] == run.name)
    for same in ("cell", "seed", "world", "evidence", "analysis", "finished", "codes", "limits", "mutants"):
        assert row[same] == verdict[same]
    of_run = {table: [each for each in records(getattr(result, table)) if each["run"] == run.name] for table in TABLES}
    assert [(each["check"], each["verdict"]) for each in of_run["checks"]] == [
        (each["name"], each["verdict"]) for each in verdict["checks"]
    ]
    names = ("kind", "targets", "status", "start_s", "end_s")
    assert [[each[same] for same in names] for each in of_run["faults"]] == [
        [each[same] for same in names] for each in verdict["faults"]
    ]
    assert of_run["anomalies"] == verdict["anomalies"] == []


TABLES = ("checks", "faults", "anomalies")


@pytest.mark.parametrize("name", BASES)
def test_operations_and_seconds_are_those_of_the_files(bench: Bench, result: Any, name: str) -> None:
    run = bench.bases[name]
    with warnings.catch_warnings(action="error"):
        frame = result.operations(run.name)
        seconds = result.seconds
    stored = [
        (shape, row)
        for folder, shape in (("operations", "log"), ("registers", "register"))
        for path in (run / "tables" / folder).rglob("*.parquet")
        for row in pq.ParquetFile(path).read().to_pylist()
    ]
    assert len(frame) == len(stored) > 0
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    columns = [column for column in frame.columns if column not in ("campaign", "run", "evidence", "analysis")]
    expected = Counter(str([shape, *(row.get(column) for column in columns[1:])]) for shape, row in stored)
    assert Counter(str([plain(row[column]) for column in columns]) for row in rows) == expected
    verdict = json.loads((run / "verdict.json").read_text())
    assert int(seconds[seconds["run"] == run.name]["operations"].sum()) == len(stored)
    assert set(frame["evidence"]) == {verdict["evidence"]}


def plain(value: Any) -> Any:
    """The value as Python has it; lists of columns are arrays of numpy."""
    return value.tolist() if hasattr(value, "tolist") else value

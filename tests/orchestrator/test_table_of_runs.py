"""Trends and comparisons read the table of a store's runs, which is made again when it is not the store's."""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.orchestrator.stored_campaign import NAME, Answer, StoredCampaign, ask


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A decided campaign of two runs, in a path with spaces and quotes."""
    campaign = StoredCampaign(tmp_path / "a store's")
    campaign.made()
    assert ask("gate", campaign.path).code == 0
    return campaign.store


def trends(store: Path, *options: str) -> Any:
    answer = ask("list", "--store", store, "--trends", "--json", *options)
    assert answer.code == 0, answer.err
    return answer.json


def compared(before: Path, after: Path) -> Any:
    answer = ask("compare", before, after, "--json")
    assert answer.code == 0, answer.err
    return answer.json


def runs_of(store: Path) -> Path:
    return store / ".tables" / "runs.parquet"


def rows_of(store: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.ParquetFile(runs_of(store)).read().to_pylist()
    return rows


def state_of(file: Path) -> tuple[int, int]:
    """A replaced file has another one."""
    return file.stat().st_ino, file.stat().st_mtime_ns


def test_a_row_has_the_decision_as_it_is_listed(store: Path) -> None:
    trends(store)
    listed = {row["run"]: row for row in ask("list", "--store", store, "--json").json}
    rows = rows_of(store)
    assert len(rows) == len(listed) == 2
    for row in rows:
        same = row.keys() & listed[row["run"]].keys()
        assert same >= {"campaign", "made", "verdict", "met", "counts", "anomalies", "reasons", "system", "duration_s"}
        assert {name: row[name] for name in same} == {name: listed[row["run"]][name] for name in same}
    assert [bool(row["settings"]) for row in rows] == [True, False], "only the first run of a cell has settings"
    assert json.loads(rows[0]["settings"])["world"] == "paper"


def test_a_current_table_is_read_and_not_written(store: Path) -> None:
    first = trends(store)
    written = state_of(runs_of(store))
    assert trends(store) == first
    compared(store, store)
    assert state_of(runs_of(store)) == written


def test_a_copy_of_the_store_has_a_current_table(store: Path, tmp_path: Path) -> None:
    first = trends(store)
    copy = shutil.copytree(store, tmp_path / "copy", symlinks=True)
    written = state_of(runs_of(copy))
    assert trends(copy) == first
    assert state_of(runs_of(copy)) == written


@pytest.mark.parametrize("change", ["newer verdict", "no verdict", "no summary", "another run"])
def test_a_table_of_an_earlier_state_is_not_used(store: Path, change: str) -> None:
    assert [(point["met"], point["runs"]) for point in trends(store)] == [(2, 2)]
    summary = store / NAME / "summary.json"
    run = sorted(path.parent for path in store.glob("*/*/verdict.json"))[0]
    if change == "newer verdict":
        with (run / "verdict.json").open("a") as file:
            file.write("\n")
        expected = [(1, 2)]
    elif change == "no verdict":
        (run / "verdict.json").unlink()
        expected = [(1, 2)]
    elif change == "no summary":
        summary.unlink()
        expected = [(2, 2)]
    else:
        shutil.copytree(run, run.with_name("20260101T000000aa-main-1"))
        expected = [(1, 1), (2, 2)]
    assert [(point["met"], point["runs"]) for point in trends(store)] == expected
    assert {row["run"]: row["counts"] for row in rows_of(store)}[run.name] is (change != "no summary")


def test_trends_and_comparison_write_the_table_that_list_writes(store: Path) -> None:
    assert ask("list", "--store", store, "--tables").code == 0
    whole = runs_of(store).read_bytes()
    runs_of(store).unlink()
    trends(store)
    assert runs_of(store).read_bytes() == whole
    runs_of(store).unlink()
    compared(store, store)
    assert runs_of(store).read_bytes() == whole


@pytest.mark.parametrize("damage", ["torn", "foreign", "older columns", "another form", "a directory", "no value"])
def test_a_damaged_table_is_replaced(store: Path, damage: str) -> None:
    first = trends(store)
    whole, file = runs_of(store).read_bytes(), runs_of(store)
    table = pq.ParquetFile(file).read()
    if damage == "torn":
        file.write_bytes(whole[: len(whole) // 2])
    elif damage == "foreign":
        pq.write_table(pa.table({"animal": ["cat"]}), file)
    elif damage == "older columns":
        pq.write_table(table.drop_columns(["settings"]), file)
    elif damage == "another form":
        stamp = table.schema.metadata[b"brownout.store"]
        pq.write_table(table.replace_schema_metadata({b"brownout.store": b"0" + stamp[1:]}), file)
    elif damage == "no value":
        column = table.schema.names.index("met")
        pq.write_table(table.set_column(column, "met", pa.nulls(table.num_rows, pa.bool_())), file)
    else:
        file.unlink()
        file.mkdir()
    assert trends(store) == first
    assert file.read_bytes() == whole


def test_a_changed_bit_has_no_influence(store: Path) -> None:
    first = trends(store)
    whole, file, drawn = runs_of(store).read_bytes(), runs_of(store), random.Random(1)
    for _ in range(60):
        changed = bytearray(whole)
        changed[drawn.randrange(len(whole))] ^= 1 << drawn.randrange(8)
        file.write_bytes(changed)
        assert trends(store) == first


@pytest.mark.parametrize("obstacle", ["not writable", "another process writes"])
def test_a_table_that_cannot_be_written_is_not_needed(store: Path, obstacle: str) -> None:
    expected = trends(store), compared(store, store)
    runs_of(store).unlink()
    if obstacle == "not writable":
        shutil.rmtree(store / ".tables")
        (store / ".tables").touch()  # a directory without write permission does not stop root
        assert (trends(store), compared(store, store)) == expected
        return
    with open(store / ".tables" / ".lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert (trends(store), compared(store, store)) == expected
    assert not runs_of(store).exists()


def test_tables_alone_are_a_side_of_a_comparison(store: Path, tmp_path: Path) -> None:
    whole = compared(store, store)
    tables = shutil.copytree(store / ".tables", tmp_path / "base line" / ".tables")
    for run in store.glob("*/*/run.toml"):
        if run.parent.name != "latest":
            run.write_text(run.read_text().replace("[topology]\nnodes = 3", "[topology]\nnodes = 4"))
    found = compared(tables, store)
    assert found["before"] == whole["before"] | {"path": str(tables)}
    assert found["cells"] == whole["cells"]
    assert found["figures"] == whole["figures"]
    assert [(each["key"], each["before"], each["after"]) for each in found["settings"]] == [("topology.nodes", 3, 4)]
    assert found["notes"] == [f"{tables}: tables alone; its runs are as they were when the tables were written"]
    shutil.rmtree(store / NAME)
    assert compared(tables, tables)["cells"] == whole["cells"]


@pytest.mark.parametrize("damage", ["torn", "older columns", "a directory"])
def test_damaged_tables_alone_are_wrong_usage(store: Path, tmp_path: Path, damage: str) -> None:
    trends(store)
    file = shutil.copytree(store / ".tables", tmp_path / "tables") / "runs.parquet"
    if damage == "torn":
        file.write_bytes(file.read_bytes()[:-9])
    elif damage == "older columns":
        pq.write_table(pq.ParquetFile(file).read().drop_columns(["settings"]), file)
    else:
        file.unlink()
        file.mkdir()
    answer = ask("compare", file.parent, store)
    assert_names(answer, file, "./brownout list --tables")


def test_a_store_without_its_runs_keeps_its_table(store: Path) -> None:
    trends(store)
    whole = runs_of(store).read_bytes()
    shutil.rmtree(store / NAME)
    assert trends(store) == []
    assert_names(ask("compare", store, store), store / ".tables", "to compare the tables alone")
    assert runs_of(store).read_bytes() == whole


def assert_names(answer: Answer, file: Path, remedy: str) -> None:
    assert answer.code == 64
    assert str(file) in answer.err
    assert remedy in answer.err
    assert "Traceback" not in answer.err


def test_a_campaign_as_a_side_writes_no_table(store: Path) -> None:
    whole = compared(store, store)
    shutil.rmtree(store / ".tables")
    found = compared(store / NAME, store / NAME)
    assert not (store / ".tables").exists()
    assert found["cells"] == whole["cells"]
    assert found["figures"] == whole["figures"]


def test_a_campaign_name_outside_utf8_is_found(store: Path) -> None:
    name = os.fsdecode(b"camp\xe4ign")
    (store / NAME).rename(store / name)
    assert [point["met"] for point in trends(store, "--campaign", name)] == [2]
    assert ask("list", "--store", store, "--trends", "--campaign", NAME, "--json").code == 64
    (cell,) = compared(store, store)["cells"]
    assert cell["campaign"] == "camp\\udce4ign"


@pytest.mark.parametrize("key", ["seed", "acknowledged", "faults"])
def test_a_number_that_no_table_can_have_is_a_damaged_summary(store: Path, key: str) -> None:
    summary = store / NAME / "summary.json"
    content = json.loads(summary.read_text())
    content["runs"][0][key] = 1 << 64
    summary.write_text(json.dumps(content))
    trends(store)
    assert ask("list", "--store", store, "--tables").code == 0
    assert {row["counts"] for row in rows_of(store)} == {False}

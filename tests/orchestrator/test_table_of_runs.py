"""The table `runs` of a store, and comparisons with such a table alone."""

import contextlib
import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orchestrator.store.tables import read_rows
from tests.orchestrator.stored_campaign import NAME, Answer, StoredCampaign, ask


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A decided campaign of two runs and its tables, in a path with spaces and quotes."""
    campaign = StoredCampaign(tmp_path / "a store's")
    campaign.made()
    assert ask("gate", campaign.path).code == 0
    assert ask("list", "--store", campaign.store, "--tables").code == 0
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


def test_a_row_has_the_decision_as_it_is_listed(store: Path) -> None:
    listed = {row["run"]: row for row in ask("list", "--store", store, "--json").json}
    rows = rows_of(store)
    assert len(rows) == len(listed) == 2
    for row in rows:
        assert {name: row[name] for name in listed[row["run"]]} == listed[row["run"]]
    assert [bool(row["settings"]) for row in rows] == [True, False], "only the first run of a cell has settings"
    assert json.loads(rows[0]["settings"])["world"] == "paper"


@pytest.mark.parametrize("change", ["newer verdict", "no verdict", "no summary", "another run", "damaged table"])
def test_trends_show_the_present_state_whatever_the_table_has(store: Path, change: str) -> None:
    assert [(point["met"], point["runs"]) for point in trends(store)] == [(2, 2)]
    run = sorted(path.parent for path in store.glob("*/*/verdict.json"))[0]
    expected = [(1, 2)] if "verdict" in change else [(2, 2)]
    if change == "newer verdict":
        with (run / "verdict.json").open("a") as file:
            file.write("\n")
    elif change == "no verdict":
        (run / "verdict.json").unlink()
    elif change == "no summary":
        (store / NAME / "summary.json").unlink()
    elif change == "damaged table":
        runs_of(store).write_bytes(b"PAR1")
    else:
        shutil.copytree(run, run.with_name("20260101T000000aa-main-1"))
        expected = [(1, 1), (2, 2)]
    whole = runs_of(store).read_bytes()
    assert [(point["met"], point["runs"]) for point in trends(store)] == expected
    compared(store, store)
    assert runs_of(store).read_bytes() == whole, "only `list --tables` writes tables"


def test_a_changed_bit_of_a_table_has_no_influence(store: Path, tmp_path: Path) -> None:
    """The rows of such a table are refused, or they are those of the whole table."""
    rows = read_rows(runs_of(store))
    whole, file, drawn = runs_of(store).read_bytes(), tmp_path / "runs.parquet", random.Random(1)
    for _ in range(200):
        changed = bytearray(whole)
        changed[drawn.randrange(len(whole))] ^= 1 << drawn.randrange(8)
        file.write_bytes(changed)
        with contextlib.suppress(OSError, ValueError):
            assert read_rows(file) == rows


@pytest.mark.parametrize("column", ["seed", "met", "counts", "campaign"])
def test_a_table_without_a_value_of_a_run_is_refused(store: Path, column: str) -> None:
    table = pq.ParquetFile(runs_of(store)).read()
    index = table.schema.names.index(column)
    empty = pa.nulls(table.num_rows, table.schema.field(column).type)
    pq.write_table(table.set_column(index, column, empty), runs_of(store))
    with pytest.raises(ValueError, match=rf"\$\.{column}"):
        read_rows(runs_of(store))


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


@pytest.mark.parametrize("damage", ["torn", "foreign", "older columns", "a directory"])
def test_damaged_tables_alone_are_wrong_usage(store: Path, tmp_path: Path, damage: str) -> None:
    file = shutil.copytree(store / ".tables", tmp_path / "tables") / "runs.parquet"
    if damage == "torn":
        file.write_bytes(file.read_bytes()[:-9])
    elif damage == "foreign":
        pq.write_table(pa.table({"animal": pa.array([], pa.string())}), file)
    elif damage == "older columns":
        pq.write_table(pq.ParquetFile(file).read().drop_columns(["settings"]), file)
    else:
        file.unlink()
        file.mkdir()
    answer = ask("compare", file.parent, store)
    assert_names(answer, file, "./brownout list --tables")


@pytest.mark.parametrize("settings", ["{", "[]", pytest.param('{"a": ' + "[" * 100_000, id="deep")])
def test_damaged_settings_of_tables_alone_are_named(store: Path, settings: str) -> None:
    table = pq.ParquetFile(runs_of(store)).read()
    column = pa.array([settings if value else "" for value in table["settings"].to_pylist()], pa.string())
    pq.write_table(table.set_column(table.schema.names.index("settings"), "settings", column), runs_of(store))
    found = compared(runs_of(store).parent, store)
    assert "main are not compared: the table of runs has damaged ones" in found["notes"][-1]


def test_a_store_without_its_runs_keeps_its_table(store: Path) -> None:
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
    assert ask("list", "--store", store, "--tables").code == 0
    assert {row["counts"] for row in rows_of(store)} == {False}


@pytest.mark.parametrize("key", ["seed", "acknowledged"])
def test_a_verdict_with_a_number_that_no_table_can_have_is_unknown(store: Path, key: str) -> None:
    run = sorted(path.parent for path in store.glob("*/*/verdict.json"))[0]
    content = json.loads((run / "verdict.json").read_text())
    (content if key == "seed" else content["stats"])[key] = 1 << 64
    other = run.with_name("20260101T000000aa-main-1")
    shutil.copytree(run, other)
    (other / "verdict.json").write_text(json.dumps(content))
    assert ask("list", "--store", store, "--tables").code == 0
    assert [row["verdict"] for row in rows_of(store) if row["run"] == other.name] == ["unknown"]

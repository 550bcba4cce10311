"""The tables of a store as DataFrames of pandas, and the questions of docs/tables.md."""

import contextlib
import io
import json
import os
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from brownout_api import InputError, results
from docs.generators.tables import PAGE
from tests.orchestrator import worked_store
from tests.orchestrator.stored_campaign import NAME, StoredCampaign, ask

TABLES = ("runs", "checks", "faults", "anomalies", "seconds", "operations")


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return worked_store.make(tmp_path_factory.mktemp("worked"))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A decided campaign of two runs."""
    campaign = StoredCampaign(tmp_path / "a store's [*] %41")
    campaign.made()
    assert ask("gate", campaign.path).code == 0
    return campaign.store


def runs_in(store: Path) -> list[Path]:
    return sorted(path.parent for path in (store / NAME).glob("*/run.toml"))


def examples(section: str) -> Iterator[tuple[str, str | None]]:
    """The Python of a section of docs/tables.md, each with its documented output."""
    text = PAGE.read_text(encoding="utf-8").partition(f"## {section}\n")[2].partition("\n## ")[0]
    for code, output in re.findall(r"```python\n(.*?)```(?:\n```text\n(.*?)```)?", text, re.DOTALL):
        yield code, output or None


def test_the_documented_questions_print_the_documented_output(worked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(worked.parent)
    names: dict[str, Any] = {}
    outputs = list(examples("Three questions"))
    assert [output is None for _, output in outputs] == [True, False, False, False]
    for code, output in outputs:
        assert printed(code, names) == (output or "")


def printed(code: str, names: dict[str, Any]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), warnings.catch_warnings(action="error"):
        exec(code, names)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def test_the_lines_for_a_notebook_run_on_a_store(worked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(worked.parent)
    names: dict[str, Any] = {}
    shown = [printed(code, names) for code, _ in examples("In a notebook") if "pyspark" not in code]
    assert len(shown) == 2
    assert "hasty" in shown[0]
    assert set(names["appends"]["f"]) == {0}


def test_columns_have_types_of_arrow(store: Path) -> None:
    result = results(store)
    for frame in (*(getattr(result, name) for name in TABLES[:-1]), result.operations(), result.left_out):
        assert {type(column) for column in frame.dtypes} == {pd.ArrowDtype}


def test_results_write_no_file_into_the_store(store: Path) -> None:
    def files() -> set[Path]:
        return set(store.rglob("*"))

    before = files()
    result = results(store)
    assert [len(getattr(result, name)) > 0 for name in TABLES[:3]] == [True] * 3
    assert len(result.operations()) > 0
    assert files() == before


def test_results_use_the_path_as_it_was(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(store.parent)
    result = results(store.name)
    monkeypatch.chdir("/")
    assert len(result.seconds) > 0


DAMAGES: dict[str, tuple[Callable[[Path], object], tuple[str, ...], str]] = {
    "no verdict": (lambda run: (run / "verdict.json").unlink(), TABLES[1:], "its verdict cannot be read"),
    "torn verdict": (lambda run: (run / "verdict.json").write_text("{"), TABLES[1:], "its verdict cannot be read"),
    "no tables": (lambda run: shutil.rmtree(run / "tables"), TABLES[4:], "brownout analyze"),
    "no seconds": (lambda run: (run / "tables" / "seconds.parquet").unlink(), TABLES[4:5], "seconds.parquet"),
    "torn seconds": (lambda run: torn(run / "tables" / "seconds.parquet"), TABLES[4:5], "seconds.parquet"),
    "torn index": (lambda run: torn(run / "tables" / "index.parquet"), TABLES[5:], "index.parquet"),
    "a file of operations is missing": (lambda run: first_file(run).unlink(), TABLES[5:], "is missing"),
    "a file of operations is torn": (lambda run: torn(first_file(run)), TABLES[5:], "cannot be read as Parquet"),
    "a file of operations has damaged pages": (lambda run: zeroed(first_file(run)), TABLES[5:], "is damaged"),
    "a file of operations is a pipe": (lambda run: piped(first_file(run)), TABLES[5:], "a named pipe"),
    "a file of operations is of another run": (
        lambda run: shutil.copy(first_file(run), first_file(run).with_name("more.parquet")),
        TABLES[5:],
        "is not in tables/index.parquet",
    ),
}


def first_file(run: Path) -> Path:
    return sorted((run / "tables" / "operations").rglob("*.parquet"))[0]


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def zeroed(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:4] + bytes(200) + content[204:])


def piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("name", DAMAGES)
def test_a_run_with_damaged_files_is_left_out_with_its_reason(store: Path, name: str) -> None:
    damage, tables, reason = DAMAGES[name]
    whole, damaged = runs_in(store)
    damage(damaged)
    result = results(store)
    for table in TABLES[1:]:
        expected = pytest.warns(UserWarning, match=f"^{table}: rows are left out") if table in tables else calm()
        with expected:
            frame = result.operations() if table == "operations" else getattr(result, table)
        if table != "anomalies":
            assert set(frame["run"]) == {whole.name} | (set() if table in tables else {damaged.name})
    assert len(result.runs) == 2
    rows = result.left_out.to_dict("records")
    assert {row["run"] for row in rows} == {damaged.name}
    assert [table for row in rows for table in row["tables"]] == list(tables)
    assert any(reason in row["reason"].replace("./brownout", "brownout") for row in rows), rows


@contextlib.contextmanager
def calm() -> Iterator[None]:
    with warnings.catch_warnings(action="error"):
        yield


def test_a_campaign_without_a_decision_is_named(store: Path) -> None:
    (store / NAME / "summary.json").unlink()
    result = results(store)
    with pytest.warns(UserWarning, match="summary.json is missing"):
        assert len(result.runs) == 2
    (row,) = result.left_out.to_dict("records")
    assert (row["campaign"], row["run"], list(row["tables"])) == (NAME, "", ["runs"])


@pytest.mark.parametrize("name", ["a:b", "*", "[x]{y}?", "ca mp'\"aign\\", "naïve", "%41", "-- DROP TABLE runs", "_x"])
def test_a_campaign_may_have_any_name(store: Path, name: str) -> None:
    (store / NAME).rename(store / name)
    result = results(store)
    assert {*result.runs["campaign"], *result.faults["campaign"], *result.seconds["campaign"]} == {name}
    run = result.runs["run"][0]
    assert set(result.operations(f"{name}/{run}")["campaign"]) == {name}
    assert result.left_out.empty


def test_a_name_that_is_not_utf_8_has_escapes(store: Path) -> None:
    (store / NAME).rename(store / os.fsdecode(b"camp\xe4ign"))
    result = results(store)
    assert set(result.checks["campaign"]) == {"camp\\udce4ign"}
    with pytest.warns(UserWarning, match="operations: rows are left out"):
        assert result.operations("camp\\udce4ign/" + result.runs["run"][0]).empty
    assert result.left_out["reason"].str.contains("cannot be read as Parquet").tolist() == [True]


@pytest.mark.parametrize(
    ("select", "count"),
    [
        (lambda _: None, 2),
        (lambda runs: runs["run"][0], 1),
        (lambda runs: f"{NAME}/{runs['run'][1]}", 1),
        (lambda runs: list(runs["run"]) * 2, 2),
        (lambda runs: runs["run"].head(1), 1),
        (lambda runs: runs.tail(1), 1),
        (lambda runs: runs.head(0), 0),
        (lambda _: (), 0),
    ],
)
def test_operations_are_those_of_the_named_runs(store: Path, select: Callable[[Any], Any], count: int) -> None:
    result = results(store)
    frame = result.operations(select(result.runs), columns=["run", "f"])
    assert list(frame.columns) == ["run", "f"]
    assert frame["run"].nunique() == count


@pytest.mark.parametrize("columns", ["inv", ["run"], ["evidence", "shape"], ["values", "key", "run", "values"]])
def test_operations_have_the_named_columns_and_all_rows(store: Path, columns: str | list[str]) -> None:
    result = results(store)
    whole = result.operations()
    frame = result.operations(columns=columns)
    names = [columns] if isinstance(columns, str) else list(dict.fromkeys(columns))
    pd.testing.assert_frame_equal(frame, whole[names])


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ({"runs": "nosuch"}, "has no run 'nosuch'"),
        ({"runs": ["*"]}, r"has no run '\*'"),
        ({"runs": "' OR 1=1 --"}, "has no run"),
        ({"runs": [3]}, "3 names no run; give names of runs"),
        ({"runs": 3}, "3 names no run; give names of runs"),
        ({"runs": pd.DataFrame({"run": ["a"]})}, "no column campaign"),
        ({"columns": "of"}, "no column 'of'; did you mean"),
        ({"columns": ["offset", 1]}, "no column 1"),
        ({"columns": []}, "the list is empty"),
        ({"columns": 5}, "5 names no column"),
    ],
)
def test_wrong_arguments_of_operations_are_named(store: Path, asked: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        results(store).operations(**asked)


def test_a_run_of_two_campaigns_needs_the_name_of_one(store: Path) -> None:
    shutil.copytree(store / NAME, store / "copy")
    result = results(store)
    run = result.runs["run"][0]
    with pytest.raises(InputError, match=f"give copy/{run} or {NAME}/{run}"):
        result.operations(run)
    assert set(result.operations(f"copy/{run}")["campaign"]) == {"copy"}


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("nosuch", "nosuch: No such file or directory; give the directory of runs"),
        ("file", "file: Not a directory; give the directory of runs"),
        ("empty", "empty has no campaign; give the directory of runs"),
        ("nu\0ll", "null byte; give the directory of runs"),
        (f"store/{NAME}", r"story is a part of a store; give the store: .*/store$"),
        ("store/latest", "latest is a part of a store; give the store: .*/store$"),
    ],
)
def test_another_directory_than_a_store_is_refused(tmp_path: Path, path: str, complaint: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    if path.startswith("store"):
        (run,) = StoredCampaign(tmp_path / "store", "").made()
        (tmp_path / "store" / "latest").unlink(missing_ok=True)
        (tmp_path / "store" / "latest").symlink_to(run)
    with pytest.raises(InputError, match=complaint):
        results(tmp_path / path)


def test_missing_pandas_is_an_error_that_names_the_extra(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match=r"pandas DataFrame needs the extra \[spark\], .* install it: "):
        results(store)


@pytest.mark.parametrize("session", ["local[2]", 3, object()])
def test_another_object_than_a_session_is_refused(store: Path, session: object) -> None:
    with pytest.raises(InputError, match="is not a session; give SparkSession"):
        results(store, spark=session)


def test_rows_are_those_of_the_list_and_of_the_tables_in_files(worked: Path) -> None:
    result = results(worked)
    listed = ask("list", "--store", worked, "--json", "--tables").json
    frame = result.runs
    assert len(frame) == len(listed) == 4
    for row in listed:
        (stored,) = json.loads(frame[frame["run"] == row["run"]].to_json(orient="records"))
        assert {name: stored[name] for name in row} == row
    for name in TABLES[:-1]:
        files = pd.read_parquet(worked / ".tables" / f"{name}.parquet", dtype_backend="pyarrow")
        pd.testing.assert_frame_equal(getattr(result, name), files)
    shutil.rmtree(worked / ".tables")

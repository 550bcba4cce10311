"""The tables of a store as DataFrames of a Spark session: the same columns and rows as those of pandas."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from analysis.engines.spark import SparkHandle
from brownout_api import InputError, results
from history.record.operation_tables import read_index, write_index
from history.record.operations import files_of_all_shapes
from history.record.shapes import LOG, Shape
from tests.orchestrator import worked_store
from tests.orchestrator.stored_campaign import NAME, StoredCampaign
from tests.orchestrator.test_results import TABLES, examples, first_file, printed, runs_in, torn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
SKIPS = ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles")


@pytest.fixture
def session(spark: SparkHandle) -> Iterator[SparkSession]:
    """A session whose user wants no errors of missing and damaged files."""
    session = spark.tasks().session
    for key, value in {"spark.sql.shuffle.partitions": "2", **dict.fromkeys(SKIPS, "true")}.items():
        session.conf.set(key, value)
    yield session
    for key in SKIPS:
        session.conf.unset(key)


def rows_of(frame: Any) -> list[str]:
    """The rows of a DataFrame of either kind, as texts, in an order of their own."""
    table = frame.toArrow() if hasattr(frame, "toArrow") else pa.Table.from_pandas(frame, preserve_index=False)
    return sorted(map(str, table.to_pylist()))


def test_spark_has_the_columns_and_rows_of_pandas(session: SparkSession, tmp_path: Path) -> None:
    store = worked_store.make(tmp_path)
    odd = store.rename(tmp_path / ".[a]{b}*? %41 sto\\re,é'\"#&+")
    (odd / NAME).rename(odd / "-- DROP TABLE `x`; *")
    of_pandas, of_spark = results(odd), results(odd, spark=session)
    for name in (*TABLES[:-1], "left_out"):
        here, there = getattr(of_pandas, name), getattr(of_spark, name)
        assert there.columns == list(here.columns)
        assert rows_of(there) == rows_of(here)
    assert of_spark.operations().columns == list(of_pandas.operations().columns)
    assert rows_of(of_spark.operations()) == rows_of(of_pandas.operations())
    failed = of_spark.operations(of_spark.runs.filter("verdict = 'fail'"), ["value", "run", "key"])
    expected = of_pandas.operations(of_pandas.runs.query("verdict == 'fail'"), ["value", "run", "key"])
    assert rows_of(failed) == rows_of(expected)
    assert len(expected) > 0
    assert of_spark.operations([]).count() == 0


def test_the_lines_for_spark_run(session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(worked_store.make(tmp_path).parent)
    (code,) = [code for code, _ in examples("In a notebook") if "pyspark" in code]
    assert re.search(r"\| *kill\|confirmed\| +4\|", printed(code, {"results": results}))
    assert not session.sparkContext._jsc.sc().isStopped()


def test_a_run_with_damaged_operations_is_left_out(session: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "store"
    StoredCampaign(store).made()
    whole, damaged = runs_in(store)
    torn(first_file(damaged))
    result = results(store, spark=session)
    with pytest.warns(UserWarning, match="operations: rows are left out"):
        frame = result.operations(columns=["run"])
    assert {row["run"] for row in frame.collect()} == {whole.name}
    assert damaged.name in {row["run"] for row in result.left_out.collect()}


@pytest.mark.parametrize("name", ["_x-1.parquet", ".x-1.parquet"])
def test_a_file_that_spark_would_not_list_is_left_out(session: SparkSession, tmp_path: Path, name: str) -> None:
    StoredCampaign(tmp_path / "store", "").made()
    (run,) = runs_in(tmp_path / "store")
    tables, file = run / "tables", first_file(run)
    groups = read_index(LOG, tables)
    renamed = file.rename(file.with_name(name)).relative_to(tables).as_posix()
    old = file.relative_to(tables).as_posix()
    write_index(LOG, [replace(group, path=renamed) if group.path == old else group for group in groups], tables)
    assert len(results(tmp_path / "store").operations()) > 0
    with pytest.warns(UserWarning, match=f"reads no file whose name starts with '{name[0]}'"):
        assert results(tmp_path / "store", spark=session).operations().count() == 0


def test_a_path_with_a_colon_beside_a_pattern_is_left_out(session: SparkSession, tmp_path: Path) -> None:
    StoredCampaign(tmp_path / "a:b", "").made()
    assert results(tmp_path / "a:b", spark=session).operations().count() > 0
    (tmp_path / "a:b").rename(tmp_path / "a:[b]")
    with pytest.warns(UserWarning, match="HADOOP-3257"):
        assert results(tmp_path / "a:[b]", spark=session).operations().count() == 0


def test_a_file_that_disappears_later_is_an_error_of_the_job(session: SparkSession, tmp_path: Path) -> None:
    StoredCampaign(tmp_path / "store", "").made()
    (run,) = runs_in(tmp_path / "store")
    frame = results(tmp_path / "store", spark=session).operations()
    first_file(run).unlink()
    with pytest.raises(Exception, match="FILE_NOT_EXIST"):
        frame.select("value").collect()


def test_a_store_that_only_the_driver_sees_is_refused(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names of the files are changed behind the driver's look at them, as workers with other mounts see them."""
    StoredCampaign(tmp_path / "store", "").made()

    def unseen(tables: Path) -> dict[Path, Shape]:
        files = files_of_all_shapes(tables)
        return {Path("/nowhere") / path.relative_to("/"): shape for path, shape in files.items()}

    monkeypatch.setattr("orchestrator.store.results.files_of_all_shapes", unseen)
    result = results(tmp_path / "store", spark=session)
    assert result.faults.count() == 1
    with pytest.raises(InputError, match=r"the workers of local\[2\] cannot read /nowhere/.*same path as this machine"):
        result.operations()

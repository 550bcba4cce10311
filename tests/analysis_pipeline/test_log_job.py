"""The log check gives one report: in process and on Spark, for whole partitions and for spread ones."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.logjob import check_in_process, check_on_spark, files_of, plan
from analysis.spark import SparkHandle, java_version
from history import History, compact
from history.schemas import FAULTS, PHASES, RESERVATIONS
from tests.analysis.log_histories import random_history, table


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkHandle]:
    if java_version() is None:
        pytest.skip("no Java runtime: install openjdk-17-jre-headless")
    handle = SparkHandle.start_in_background(tmp_path_factory.mktemp("spark"))
    yield handle
    handle.stop()


def compacted(run: Path, seed: int, partitions: int, rows_per_file: int) -> Path:
    """Random histories, good and bad, as the Parquet files of a run; its `tables/`."""
    rng = random.Random(seed)
    operations = table(*(random_history(rng) for _ in range(partitions)))
    nothing = RESERVATIONS.empty_table()
    compact(
        History(operations, nothing, FAULTS.empty_table(), PHASES.empty_table(), []), run, rows_per_file=rows_per_file
    )
    return run / "tables"


@pytest.mark.spark
@pytest.mark.parametrize("files_per_task", [100, 1], ids=["whole partitions", "spread partitions"])
def test_spark_and_process_give_the_same_report(spark: SparkHandle, tmp_path: Path, files_per_task: int) -> None:
    files = files_of(compacted(tmp_path, seed=7, partitions=40, rows_per_file=2))
    assert max(len(paths) for paths in files.values()) > 2
    expected = check_in_process(files, upper_bound="strict")
    found = check_on_spark(spark.session(), files, upper_bound="strict", files_per_task=files_per_task)
    assert len({anomaly.name for anomaly in expected.anomalies}) >= 5
    assert found == expected


@pytest.mark.spark
def test_an_empty_run_is_judged_too(spark: SparkHandle, tmp_path: Path) -> None:
    report = check_on_spark(spark.session(), files_of(tmp_path), upper_bound="strict")
    assert report == check_in_process({}, upper_bound="strict")
    assert report.ok


def test_a_partition_with_many_files_is_cut_into_tasks(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.parquet" for number in range(5)]
    tasks = plan({("log", 0): paths, ("log", 1): paths[:1]}, 2)
    assert [(task.key, len(task.paths), task.whole) for task in tasks] == [
        (("log", 0), 2, False),
        (("log", 0), 2, False),
        (("log", 0), 1, False),
        (("log", 1), 1, True),
    ]

"""The report on a history does not depend on the size of the ranges, on how its rows are stored, or on the map."""

import os
import random
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.core.rows import DamagedError
from analysis.engines.log import LogPlan
from analysis.engines.task_map import WorkerProcesses, bundles
from history.record.operation_tables import table_files
from history.record.shapes import LOG
from history.upper_bounds import UPPER_BOUNDS
from tests.analysis.log_checks import GroupsInMemory, check, check_log
from tests.analysis.log_histories import ok, random_history, stored, table, weak_history


@pytest.mark.rotating(3)
@pytest.mark.parametrize("upper_bound", UPPER_BOUNDS)
@pytest.mark.parametrize("seed", range(4))
def test_every_range_size_and_segmentation_gives_the_same_report(upper_bound: str, seed: int) -> None:
    rng = random.Random(f"ranges {upper_bound} {seed}")
    operations = table(*(random_history(rng) for _ in range(12)))
    expected = check(operations, upper_bound=upper_bound)
    for most, span in ((1, 1), (2, 2), (5, 3), (100, 64)):
        found = GroupsInMemory.of(operations, most, rng).report(span, upper_bound=upper_bound)
        assert found.anomalies == expected.anomalies, (most, span)
        assert found == expected


@pytest.mark.parametrize("upper_bound", UPPER_BOUNDS)
def test_stored_row_groups_give_the_same_report(tmp_path: Path, upper_bound: str) -> None:
    rng = random.Random(f"stored ranges {upper_bound}")
    operations = table(*(random_history(rng) for _ in range(8)), *(weak_history(rng) for _ in range(4)))
    plan = LogPlan.of(stored(tmp_path, operations, 5), span=2)
    assert check_log(plan, upper_bound=upper_bound) == check(operations, upper_bound=upper_bound)


def test_worker_processes_give_the_same_report(tmp_path: Path) -> None:
    rng = random.Random("processes")
    histories = [*(random_history(rng) for _ in range(5)), weak_history(rng)]
    plan = LogPlan.of(stored(tmp_path, table(*histories), 3), span=2)
    assert check_log(plan, WorkerProcesses(2), upper_bound="strict") == check_log(plan, upper_bound="strict")


def test_a_worker_that_ends_is_an_error_and_no_result() -> None:
    with pytest.raises(BrokenProcessPool):
        WorkerProcesses(1)(os._exit, [3])


def test_a_corrupt_offset_is_an_anomaly_and_no_lack_of_memory(tmp_path: Path) -> None:
    operations = table([ok(1, 10, 20, 0), ok(2, 30, 40, 1 << 50)])
    plan = LogPlan.of(stored(tmp_path, operations, 1))
    assert check_log(plan, upper_bound="strict") == check(operations)


def test_the_first_damage_is_named_wherever_its_task_is(tmp_path: Path) -> None:
    histories = [[ok(1, 20, 10, 0)], [*(ok(n, 10, 20, n) for n in range(9)), ok(9, 10, 20, 9, acks=-1)]]
    plan = LogPlan.of(stored(tmp_path, table(*histories), 4), span=4)
    assert plan.tasks[0].key == ("log", 1)
    with pytest.raises(DamagedError, match="returned before its invocation"):
        check_log(plan, upper_bound="strict")


def test_a_file_that_is_torn_is_named(tmp_path: Path) -> None:
    tables = stored(tmp_path, table([ok(1, 10, 20, 0)]), 4)
    plan = LogPlan.of(tables)
    (path,) = table_files(LOG, tables)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DamagedError, match=rf"{path.name} cannot be read"):
        LogPlan.of(tables)
    with pytest.raises(DamagedError, match=rf"{path.name} cannot be read"):
        check_log(plan, upper_bound="strict")


@pytest.mark.parametrize(
    ("changes", "why"),
    [({"rows": 3}, "2 rows, 3 are stated"), ({"low": 1}, "offsets 0 to 1"), ({"high": 0}, "offsets 0 to 1")],
)
def test_rows_that_differ_from_the_stated_digest_are_damage(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    plan = LogPlan.of(stored(tmp_path, table([ok(1, 10, 20, 0), ok(2, 30, 40, 1)]), 4))
    (group,) = plan.groups["log", 0]
    (task,) = plan.tasks
    other = replace(plan, tasks=[replace(task, groups=(replace(group, **changes),))])
    with pytest.raises(DamagedError, match=why):
        check_log(other, upper_bound="strict")


def test_rows_of_another_partition_are_damage(tmp_path: Path) -> None:
    plan = LogPlan.of(stored(tmp_path, table([ok(1, 10, 20, 0)]), 4))
    other = replace(plan, tasks=[replace(task, key=("log", 7)) for task in plan.tasks])
    with pytest.raises(DamagedError, match="operations of other partitions than log-7"):
        check_log(other, upper_bound="strict")


def test_heavy_tasks_are_alone_and_light_ones_share() -> None:
    assert bundles([9 << 20, 5 << 20, 2 << 20, 100, 90], 4) == [[0], [1], [2], [3, 4]]
    assert bundles([10] * 8, 4) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert bundles([1], 4) == [[0]]

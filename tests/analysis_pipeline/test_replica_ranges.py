"""The report on replicas does not depend on how their files are divided among tasks, or on the map."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.core.replica_evidence import ReplicaReport
from analysis.core.replicas import check_partition
from analysis.engines.replica import check_replicas, tasks_of
from analysis.engines.row_groups import read, row_groups_of
from analysis.engines.task_map import TaskMap, WorkerProcesses, in_sequence
from analysis.replicafiles.kafka import partitions, read_partition, read_remote
from tests.analysis.client_orders import appends_of, client_orders
from tests.analysis_pipeline.random_replicas import KEY, NODES, RandomReplicas

SEEDS = 40


def by_ranges(run: RandomReplicas, span: int, part_bytes: int, spread: TaskMap = in_sequence) -> ReplicaReport:
    groups = row_groups_of(run.run / "tables")
    tasks = tasks_of(run.run, groups, {KEY: NODES}, run.around, run.dumps)
    return check_replicas(tasks, spread, span=span, part_bytes=part_bytes)


def whole(run: RandomReplicas) -> ReplicaReport:
    """The rules applied to whole logs in memory."""
    operations = read([group.path for group in row_groups_of(run.run / "tables")[KEY]])
    nodes = {node: run.run / "nodes" / node / "data" for node in NODES}
    remote = read_remote(nodes, run.run / "shared", KEY)
    logs, earlier = (
        [
            read_partition(node, KEY, data, compacted=run.around.compacts, remote=remote)
            for node, data in places.items()
            if KEY in partitions(data)
        ]
        for places in (nodes, {node: data.with_name("earlier") for node, data in nodes.items()})
    )
    return check_partition(
        logs, client_orders(operations).get(KEY), appends_of(operations).get(KEY), run.around, earlier
    )


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_division_into_tasks_gives_the_same_report(tmp_path: Path, seed: int) -> None:
    run = RandomReplicas(tmp_path, seed)
    expected = by_ranges(run, 1 << 18, 1 << 25)
    assert replace(expected, undecided=()) == replace(whole(run), undecided=())
    assert expected.undecided[: len(whole(run).undecided)] == whole(run).undecided
    for span, part_bytes in ((1, 1), (3, 1), (4, 300)):
        assert by_ranges(run, span, part_bytes) == expected, (span, part_bytes)


def test_the_stages_of_a_small_partition_are_one_task(tmp_path: Path) -> None:
    calls: list[int] = []

    def counted(function: Any, tasks: Any, weights: Any = None) -> list[Any]:
        calls.append(len(tasks))
        return in_sequence(function, tasks, weights)

    run = RandomReplicas(tmp_path, 1)
    by_ranges(run, 1 << 18, 1 << 25, counted)
    assert sum(calls) == 1
    calls.clear()
    by_ranges(run, 3, 1 << 25, counted)
    assert sum(calls) > 4


def test_worker_processes_give_the_same_report(tmp_path: Path) -> None:
    run = RandomReplicas(tmp_path, 1)
    assert by_ranges(run, 3, 1, WorkerProcesses(2)) == by_ranges(run, 1 << 18, 1 << 25)
